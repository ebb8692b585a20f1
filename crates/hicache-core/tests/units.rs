//! Values as people write them.

use hicache_core::{parse_bool, parse_count, parse_duration, parse_path, parse_size};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn b013_every_form_of_a_boolean_is_read_and_nothing_else() {
    for (forms, value) in [(["true", "1", "yes", "on"], true), (["false", "0", "no", "off"], false)] {
        for form in forms {
            let mut capital = form.to_owned();
            capital[..1].make_ascii_uppercase();
            for text in [form.to_owned(), form.to_uppercase(), capital] {
                assert_eq!(parse_bool(&text), Ok(value), "{text}");
            }
        }
    }
    for text in ["flase", "null", "None", "", " true", "true ", "2", "01", "t", "y", "enabled", "\"true\""] {
        let wanted = parse_bool(text).expect_err(text);
        assert!(wanted.contains("true") && wanted.contains("false"), "{wanted}");
    }
}

#[test]
fn sizes_are_bytes_in_si_and_iec() {
    let sizes = [
        ("0", 0),
        ("4096", 4_096),
        ("1b", 1),
        ("64KiB", 65_536),
        ("64kb", 64_000),
        ("1 MiB", 1 << 20),
        ("1MB", 1_000_000),
        ("2gib", 2 << 30),
        ("2GB", 2_000_000_000),
        ("3TiB", 3 << 40),
        (" 1TB ", 1_000_000_000_000),
        ("18446744073709551615", u64::MAX),
        ("16777215TiB", 16_777_215 << 40),
    ];
    for (text, bytes) in sizes {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    let bad = [
        "",
        " ",
        "KiB",
        "1.5GiB",
        "-1",
        "+1",
        "1k",
        "1g",
        "1 KiB x",
        "1,000",
        "0x10",
        "1e9",
        "18446744073709551616",
        "16777216TiB",
        "1PiB",
        "١",
    ];
    for text in bad {
        assert!(parse_size(text).expect_err(text).contains("want bytes"));
    }
}

#[test]
fn durations_have_a_unit() {
    let durations = [
        ("0s", Duration::ZERO),
        ("500ms", Duration::from_millis(500)),
        ("30s", Duration::from_secs(30)),
        ("30 S", Duration::from_secs(30)),
        ("5m", Duration::from_secs(300)),
        ("1h", Duration::from_secs(3_600)),
        ("18446744073709551615ms", Duration::from_millis(u64::MAX)),
    ];
    for (text, duration) in durations {
        assert_eq!(parse_duration(text), Ok(duration), "{text}");
    }
    for text in ["", "30", "s", "-1s", "1.5s", "1d", "1us", "1s 1ms", "18446744073709551615s", "5 minutes"] {
        assert!(parse_duration(text).expect_err(text).contains("with its unit"));
    }
}

#[test]
fn counts_begin_at_one() {
    assert_eq!(parse_count("1").map(u32::from), Ok(1));
    assert_eq!(parse_count("4294967295").map(u32::from), Ok(u32::MAX));
    for text in ["0", "-1", "", "1.0", "4294967296", "two", " 1"] {
        assert!(parse_count(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn a_size_in_bytes_is_itself(bytes in any::<u64>()) {
        prop_assert_eq!(parse_size(&bytes.to_string()), Ok(bytes));
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>(), number in "[0-9]{0,25}", unit in "[a-zA-Zµ ]{0,4}") {
        for text in [text, format!("{number}{unit}")] {
            let _ = (parse_bool(&text), parse_size(&text), parse_duration(&text), parse_count(&text));
        }
    }
}

#[test]
fn a_path_that_only_a_shell_would_expand_is_refused() {
    for text in ["~", "~/kv", "~me/kv"] {
        assert!(parse_path(text).unwrap_err().contains("write the whole path"), "{text}");
    }
    assert!(parse_path("").is_err());
    for text in ["/kv", "kv", "./~/kv", "/data/~kv", "kv~"] {
        assert_eq!(parse_path(text), Ok(text.into()));
    }
}
