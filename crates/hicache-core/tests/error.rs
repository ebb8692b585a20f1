//! The error: one word, one line, its cause behind it.

use hicache_core::{AllocError, Error, ErrorKind, RegionSpec, Result};
use std::error::Error as _;
use std::io;
use std::mem::size_of;

fn whole() -> Error {
    Error::new(ErrorKind::NoSpace, "set page")
        .why("the device is full")
        .with("free", 0)
        .with("wanted", 4_096)
        .fix("remove something")
        .because(io::Error::other("no space left"))
        .retryable()
}

#[test]
fn an_error_is_one_word_and_crosses_threads() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Error>();
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Error>>(), size_of::<usize>());
}

#[test]
fn an_error_is_one_line_and_its_cause_is_its_source() {
    let error = whole();
    let line = "set page: no space: the device is full [free=0, wanted=4096]; remove something";
    assert_eq!(error.to_string(), line);
    assert_eq!(format!("{error:?}"), format!("{line}: no space left"));
    assert_eq!(error.source().unwrap().to_string(), "no space left");
    assert!(error.source().unwrap().downcast_ref::<io::Error>().is_some());
    assert_eq!(Error::new(ErrorKind::Closed, "get page").to_string(), "get page: closed");
    assert!(Error::new(ErrorKind::Closed, "get page").source().is_none());
}

#[test]
fn facts_are_readable_by_programs() {
    let error = whole();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::NoSpace, "set page"));
    assert_eq!(
        (error.fact("free"), error.fact("wanted"), error.fact("none")),
        (Some("0"), Some("4096"), None)
    );
    assert!(error.is_retryable());
    assert!(!Error::new(ErrorKind::Io, "x").is_retryable());
}

#[test]
fn a_clone_that_is_told_more_leaves_the_first_as_it_was() {
    let error = whole();
    let more = error.clone().with("path", "x").fix("wait");
    assert_eq!(error.to_string(), whole().to_string());
    assert_eq!(error.fact("path"), None);
    assert_eq!(more.fact("path"), Some("x"));
    assert!(more.source().is_some());
}

#[test]
fn an_error_behind_an_error_is_told_to_the_end() {
    let outer = Error::new(ErrorKind::Io, "open store").because(whole());
    assert_eq!(format!("{outer:?}"), format!("open store: input/output error: {:?}", whole()));
    assert_eq!(outer.source().unwrap().source().unwrap().to_string(), "no space left");
}

#[test]
fn what_a_user_wrote_does_not_break_the_line() {
    let error = Error::new(ErrorKind::InvalidConfig, "open store").with("given", "a\nb\u{1b}[31m\u{85}é");
    assert_eq!(error.to_string(), "open store: invalid configuration [given=a\\nb\\u{1b}[31m\\u{85}é]");
    assert_eq!(error.fact("given"), Some("a\nb\u{1b}[31m\u{85}é"), "the fact is what was given");
    let turned =
        Error::new(ErrorKind::InvalidConfig, "open store").why("x\u{202e}gnirts\u{2028}\u{feff}\u{2066}");
    assert!(turned.to_string().ends_with("x\\u{202e}gnirts\\u{2028}\\u{feff}\\u{2066}"), "{turned}");
}

#[test]
fn errors_of_memory_keep_their_cause() {
    let refused = RegionSpec { len: 0, ..RegionSpec::default() }.map().unwrap_err();
    let said = refused.to_string();
    let error = Error::from(refused);
    assert_eq!((error.kind(), error.operation()), (ErrorKind::InvalidConfig, "map memory"));
    assert_eq!(error.source().unwrap().to_string(), said);
    assert!(error.source().unwrap().downcast_ref::<AllocError>().is_some());
}

#[test]
fn a_line_does_not_quote_all_of_what_is_long() {
    let long = format!("begin{}end", "\u{e9}".repeat(1 << 16));
    let error =
        Error::new(ErrorKind::InvalidConfig, "read options").why(&long).with("value", &long).fix(&long);
    let line = error.to_string();
    assert!(line.chars().count() < 1_600, "{}", line.len());
    assert_eq!((line.matches("begin").count(), line.matches("end").count()), (3, 3), "{line}");
    assert_eq!(error.fact("value"), Some(long.as_str()), "who asks for the fact gets it whole");
    let error = Error::new(ErrorKind::Io, "read page").with("path", "/\u{e9}".repeat(100));
    assert!(error.to_string().contains(&"/\u{e9}".repeat(100)), "{error}");
}
