//! Tests of the configuration file: what is accepted, and that what is not says where it stands.

use super::*;
use crate::{ErrorKind, Opener};

fn json(text: &str) -> Result<ConfigFile> {
    ConfigFile::parse_json("some.json", text)
}

/// Opening a memory store with it.
fn open(config: Result<ConfigFile>) -> Result<()> {
    let opener = Opener { config: Some(config?), ..Opener::default() };
    opener.open("memory:").map(|_| ())
}

fn refused(config: Result<ConfigFile>, wanted: &[&str]) {
    let error = open(config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    for part in wanted {
        assert!(error.to_string().contains(part), "{error} does not hold {part:?}");
    }
}

#[test]
fn b013_every_form_of_a_boolean_is_equal_in_effect() {
    for value in ["true", "\"true\"", "\"True\"", "\"1\"", "1", "\"yes\"", "\"on\"", "false", "0", "\"no\""] {
        open(json(&format!("{{\"memory\": {{\"accept_unverified\": {value}}}}}"))).unwrap();
    }
    for value in ["\"flase\"", "2", "1.5", "\"\""] {
        let text = format!("{{\"memory\": {{\"accept_unverified\": {value}}}}}");
        refused(json(&text), &["some.json: memory.accept_unverified", value.trim_matches('"')]);
    }
    for value in ["null", "[1]", "{\"a\": 1}"] {
        let text = format!("{{\"memory\": {{\"accept_unverified\": {value}}}}}");
        refused(json(&text), &["some.json", "memory.accept_unverified"]);
    }
}

#[test]
fn b013_an_option_outside_its_section_is_refused() {
    let text = "{\"accept_unverified\": true, \"memory\": {\"accept_unverified\": false}}";
    refused(json(text), &["accept_unverified", "section"]);
}

#[test]
fn b014_a_misspelt_option_is_refused_with_its_nearest() {
    refused(json("{\"memory\": {\"capacty\": \"1GiB\"}}"), &["memory.capacty", "did you mean capacity?"]);
    refused(json("{\"memry\": {\"capacity\": \"1GiB\"}}"), &["memry", "did you mean memory?"]);
    refused(json("{\"memory\": {\"threads\": 4}}"), &["memory.threads", "no such option"]);
}

#[test]
fn b014_a_key_told_twice_is_refused() {
    refused(json("{\"memory\": {\"capacity\": 1, \"capacity\": 1}}"), &["\"capacity\"", "twice", "line 1"]);
    let toml = "[memory]\ncapacity = 1\ncapacity = 1\n";
    refused(ConfigFile::parse_toml("some.toml", toml), &["some.toml", "duplicate"]);
}

#[test]
fn b014_malformed_syntax_is_refused_in_one_line_with_its_place() {
    refused(json("{\"backend\": \"memory:\",}"), &["some.json", "line 1"]);
    let error = ConfigFile::parse_toml("some.toml", "backend = \n").unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn both_syntaxes_say_the_same() {
    let toml =
        ConfigFile::parse_toml("x", "backend = 'file:a'\n[file]\nthreads = 4\ndir = ['b', 'c']\n").unwrap();
    let json =
        ConfigFile::parse_json("x", r#"{"backend": "file:a", "file": {"threads": 4, "dir": ["b", "c"]}}"#)
            .unwrap();
    assert_eq!(toml.backend(), Some("file:a"));
    assert_eq!(json.backend(), toml.backend());
    let sorted = |config: &ConfigFile| {
        let mut options = config.sections[0].options.clone();
        options.sort();
        options
    };
    let expected = [("dir", "b"), ("dir", "c"), ("threads", "4")];
    assert_eq!(sorted(&json), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(sorted(&toml), sorted(&json));
}

#[test]
fn no_value_is_in_the_debug_text() {
    let config = json("{\"memory\": {\"capacity\": \"sesame\"}}").unwrap();
    assert!(!format!("{config:?}").contains("sesame"));
}
