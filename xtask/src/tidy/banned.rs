//! What must not be written: in any file, in a library, in core, in a store.

use super::Report;
use super::source::{Source, line_of, lines_with, places};

const CORE: &str = "hicache-core";
const COMMAND_MAIN: &str = "crates/hicache-cli/src/main.rs";
/// Crates that print: the command, and the testkit, whose place is a test's output.
const PRINTING: [&str; 2] = ["hicache-cli", "hicache-testkit"];
/// Crates that wait for events, never for time to pass.
const WITHOUT_SLEEP: [&str; 8] = [
    "hicache",
    "hicache-alloc",
    "hicache-core",
    "hicache-file",
    "hicache-obj",
    "hicache-shm",
    "hicache-tier",
    "hicache-cuda",
];
/// Crates that see pieces, never an order.
const STORES: [&str; 5] = ["hicache-file", "hicache-obj", "hicache-shm", "hicache-tier", "hicache-cuda"];

/// Patterns that no Rust file may hold, each with what to do.
const EVERYWHERE: [(&str, &str); 7] = [
    ("#[should_panic]", "check the error or the caught panic itself, so that no other panic passes for it"),
    ("#[should_panic(", "check the error or the caught panic itself, so that no other panic passes for it"),
    ("#[ignore]", "say why: `#[ignore = \"reason\"]`"),
    ("todo!(", "finish it, or return an error that says what is missing"),
    ("unimplemented!(", "finish it, or return an error that says what is missing"),
    ("dbg!(", "take it out"),
    ("#![allow(warnings)]", "allow one lint in one place, with its reason"),
];

/// What core does without (invariant 1), each with where it belongs.
const NOT_IN_CORE: [(&str, &str); 8] = [
    ("unsafe", "core is safe code; memory is hicache-alloc's"),
    ("thread::", "core has no threads; a store brings its own"),
    ("std::thread", "core has no threads; a store brings its own"),
    ("Instant::now", "core has no clock; take one as a value"),
    ("SystemTime::now", "core has no clock; take one as a value"),
    ("std::env", "core reads no environment; the facade does"),
    ("std::fs", "core touches no files; hicache-file does"),
    ("tokio", "core has no runtime"),
];
/// The same modules inside `use std::{..}`.
const NOT_IN_CORE_GROUPS: [&str; 3] = ["env", "fs", "thread"];

/// Names of an order, in code and in text.
const ORDER_NAMES: [&str; 10] = [
    "PageOrder::",
    "Order::",
    "LayerFirst",
    "PageFirst",
    "PageFirstDirect",
    "PageHead",
    "\"layer_first\"",
    "\"page_first\"",
    "\"page_first_direct\"",
    "\"page_head\"",
];

/// Types that make a static change after the program started.
const MUTABLE: [&str; 10] = [
    "Mutex",
    "RwLock",
    "OnceLock",
    "OnceCell",
    "LazyLock",
    "LazyCell",
    "Cell",
    "RefCell",
    "UnsafeCell",
    "Once",
];

/// Checks one file.
pub(super) fn check(source: &Source, report: &mut Report) {
    for (pattern, advice) in EVERYWHERE {
        add(source, &source.code, pattern, "banned", advice, report);
    }
    if source.path != COMMAND_MAIN {
        add(
            source,
            &source.code,
            "process::exit",
            "exit",
            "return an error; only the command's main exits",
            report,
        );
    }
    let Some(package) = source.product_of() else { return };
    if package == CORE {
        core(source, report);
    }
    if STORES.contains(&package) {
        for name in ORDER_NAMES {
            let advice = "a store sees pieces; ask the page layout instead of naming an order (invariant 2)";
            add(source, &source.product_literals, name, "order-name", advice, report);
        }
    }
    if !PRINTING.contains(&package) {
        for print in ["println!", "eprintln!", "print!", "eprint!"] {
            add(
                source,
                &source.product,
                print,
                "print",
                "a library does not print; use a `tracing` event",
                report,
            );
        }
    }
    if WITHOUT_SLEEP.contains(&package) {
        add(
            source,
            &source.product,
            "sleep(",
            "sleep",
            "wait for the event, with a deadline; no polling",
            report,
        );
    }
    global_state(source, report);
}

fn add(source: &Source, view: &str, pattern: &str, rule: &'static str, advice: &str, report: &mut Report) {
    for line in lines_with(view, pattern) {
        report.add(&source.path, line, rule, format!("`{pattern}`: {advice}"));
    }
}

fn core(source: &Source, report: &mut Report) {
    for (pattern, advice) in NOT_IN_CORE {
        add(source, &source.product, pattern, "core-purity", advice, report);
    }
    for place in places(&source.product, "std::{") {
        for name in group(&source.product[place + "std::{".len()..]) {
            if NOT_IN_CORE_GROUPS.contains(&name) {
                let advice = format!("`std::{name}`: core has no threads, clock, files or environment");
                report.add(&source.path, line_of(&source.product, place), "core-purity", advice);
            }
        }
    }
}

/// First path parts of the entries of a `use` group, from behind its opening brace.
fn group(rest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (place, character) in rest.char_indices() {
        match character {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                let entry = rest[start..place].trim();
                names.push(entry.split([':', ' ']).next().unwrap_or(entry));
                start = place + 1;
                if character == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

fn global_state(source: &Source, report: &mut Report) {
    let advice = "there is no global state (invariant 9); make it a value that its user holds";
    for pattern in ["lazy_static!", "thread_local!", "static mut"] {
        add(source, &source.product, pattern, "global-state", advice, report);
    }
    for place in places(&source.product, "static") {
        if source.product[..place].ends_with('\'') {
            continue;
        }
        let rest = &source.product[place..];
        let declaration = &rest[..rest.find(['=', ';', '{']).unwrap_or(rest.len())];
        let Some((_, kind)) = declaration.split_once(':') else { continue };
        let changes = MUTABLE.iter().any(|name| !places(kind, name).is_empty()) || holds_atomic(kind);
        if changes {
            report.add(&source.path, line_of(&source.product, place), "global-state", advice);
        }
    }
}

fn holds_atomic(kind: &str) -> bool {
    kind.split(|character: char| !character.is_alphanumeric()).any(|word| word.starts_with("Atomic"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules_broken;

    const CORE_FILE: &str = "crates/hicache-core/src/a.rs";
    const FILE_FILE: &str = "crates/hicache-file/src/a.rs";

    fn broken(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        rules_broken(|report| check(&Source::new(path, text), report))
    }

    #[test]
    fn what_is_banned_everywhere_is_caught_in_tests_too() {
        for text in
            ["#[should_panic]", "#[should_panic(expected = \"x\")]", "#[ignore]", "todo!()", "dbg!(x)"]
        {
            assert_eq!(broken("tests/tests/a.rs", text), [("banned", 1)], "{text}");
        }
        assert_eq!(broken("tests/tests/a.rs", "#[ignore = \"takes an hour\"] // todo!()"), []);
        assert_eq!(broken("tests/tests/a.rs", "f(\"unimplemented!()\");"), []);
    }

    #[test]
    fn an_exit_outside_the_command_is_caught() {
        assert_eq!(broken("crates/hicache-cli/src/run.rs", "std::process::exit(1)"), [("exit", 1)]);
        assert_eq!(broken(COMMAND_MAIN, "std::process::exit(1)"), []);
    }

    #[test]
    fn core_with_a_thread_a_clock_or_an_environment_is_caught() {
        for text in [
            "std::thread::spawn(f);",
            "use std::{fmt, thread};",
            "use std::{collections::{BTreeMap, HashMap}, env};",
            "use std::env;",
            "Instant::now();",
            "SystemTime::now();",
            "std::fs::read(p);",
            "unsafe { f() }",
            "tokio::spawn(f);",
        ] {
            assert!(broken(CORE_FILE, text).contains(&("core-purity", 1)), "{text}");
            assert!(!broken(FILE_FILE, text).contains(&("core-purity", 1)), "{text}");
        }
    }

    #[test]
    fn core_that_only_names_them_passes() {
        let text = "// std::env\nuse std::{fmt, time::{Duration, Instant}};\n\
            #[cfg(test)]\nmod tests { use std::thread; }\n";
        assert_eq!(broken(CORE_FILE, text), []);
        assert_eq!(broken(CORE_FILE, "env!(\"CARGO_PKG_VERSION\"); f(\"tokio\");"), []);
    }

    #[test]
    fn a_store_that_branches_on_an_order_is_caught() {
        assert_eq!(broken(FILE_FILE, "matches!(o, PageOrder::LayerFirst)").len(), 2);
        assert_eq!(broken(FILE_FILE, "if name == \"page_head\" {}"), [("order-name", 1)]);
        assert_eq!(broken(FILE_FILE, "x.load(Ordering::Relaxed); // page_head"), []);
        assert_eq!(broken(CORE_FILE, "matches!(o, PageOrder::LayerFirst)"), []);
    }

    #[test]
    fn a_library_that_prints_is_caught() {
        assert_eq!(broken(FILE_FILE, "println!(\"x\");"), [("print", 1)]);
        assert_eq!(broken("crates/hicache-cli/src/a.rs", "println!(\"x\");"), []);
        assert_eq!(broken("crates/hicache-file/tests/a.rs", "println!(\"x\");"), []);
        assert_eq!(broken(FILE_FILE, "write!(f, \"println!\");"), []);
    }

    #[test]
    fn a_sleep_in_a_library_is_caught() {
        assert_eq!(broken(FILE_FILE, "std::thread::sleep(d);"), [("sleep", 1)]);
        assert_eq!(broken(FILE_FILE, "#[cfg(test)]\nmod tests { fn f() { std::thread::sleep(d); } }"), []);
        assert_eq!(broken("crates/hicache-cli/src/a.rs", "std::thread::sleep(d);"), []);
    }

    #[test]
    fn a_static_that_changes_is_caught() {
        for text in [
            "static A: Mutex<u8> = Mutex::new(0);",
            "static A: std::sync::OnceLock<u8> = OnceLock::new();",
            "pub static A: AtomicU64 = AtomicU64::new(0);",
            "static A: [AtomicBool; 2] = x;",
            "thread_local! { static A: u8 = 1; }",
            "static mut A: u8 = 0;",
        ] {
            assert!(broken(FILE_FILE, text).contains(&("global-state", 1)), "{text}");
        }
        assert_eq!(
            broken(FILE_FILE, "static A: &[(u8, Duration)] = &[];\nfn f(a: &'static Mutex<u8>) {}"),
            []
        );
    }
}
