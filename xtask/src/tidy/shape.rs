//! The shape of a file: lengths, opening sentence, name, what a `lib.rs` holds, and the project's words.

use super::Report;
use super::lexer::is_word;
use super::source::{Source, item_end, line_of, lines_with, places};

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;
/// Characters, as rustfmt's `max_width`; rustfmt leaves long strings and comments alone.
const MAX_LINE: usize = 120;

/// Names that say nothing about what a module holds.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "types", "prelude"];

/// Words that ARCHITECTURE.md replaces, each with the one to use.
const SYNONYMS: [(&str, &str); 2] = [("segment", "region"), ("block_slot", "slot")];

/// Checks one file.
pub(super) fn check(source: &Source, report: &mut Report) {
    opening(source, report);
    lengths(source, report);
    functions(source, report);
    names(source, report);
    if source.file_name() == "lib.rs" {
        lib(source, report);
    }
    if source.product_of().is_some() {
        words(source, report);
    }
}

fn opening(source: &Source, report: &mut Report) {
    if !source.text.starts_with("//! ") {
        report.add(
            &source.path,
            1,
            "module-doc",
            "open the file with one `//!` sentence that says what it holds",
        );
    }
}

fn lengths(source: &Source, report: &mut Report) {
    for (index, line) in source.text.lines().enumerate() {
        let length = line.chars().count();
        if length > MAX_LINE {
            let advice = format!("{length} characters; break the line, {MAX_LINE} at most");
            report.add(&source.path, index + 1, "line-length", advice);
        }
    }
    let lines = source.text.lines().count().saturating_sub(source.test_lines);
    if in_src(source) && lines > MAX_FILE_LINES {
        let advice = format!("{lines} lines without tests; split the file, {MAX_FILE_LINES} at most");
        report.add(&source.path, 1, "file-length", advice);
    }
}

fn in_src(source: &Source) -> bool {
    source.path.contains("/src/")
}

fn functions(source: &Source, report: &mut Report) {
    let code: Vec<char> = source.code.chars().collect();
    let mut at = 0;
    let mut line = 1;
    while at < code.len() {
        if let Some(name) = function_name(&code, at) {
            let lines =
                1 + code[at..item_end(&code, at)].iter().filter(|&&character| character == '\n').count();
            if lines > MAX_FUNCTION_LINES {
                let advice = format!("`{name}` has {lines} lines; split it, {MAX_FUNCTION_LINES} at most");
                report.add(&source.path, line, "function-length", advice);
            }
        }
        line += usize::from(code[at] == '\n');
        at += 1;
    }
}

/// The name of the function whose `fn` stands at this character.
fn function_name(code: &[char], at: usize) -> Option<String> {
    let is_keyword = code[at] == 'f' && code.get(at + 1) == Some(&'n');
    let is_whole = at == 0 || !is_word(code[at - 1]) && code[at - 1] != '#';
    if !is_keyword || !is_whole || !code.get(at + 2)?.is_whitespace() {
        return None;
    }
    let rest = code[at + 2..].iter().skip_while(|character| character.is_whitespace());
    let name: String = rest.take_while(|character| is_word(**character)).collect();
    (!name.is_empty()).then_some(name)
}

fn names(source: &Source, report: &mut Report) {
    let advice = |name: &str| format!("`{name}` names no concept; name the module after what it holds");
    for part in source.path.split('/') {
        let name = part.strip_suffix(".rs").unwrap_or(part);
        if EMPTY_NAMES.contains(&name) {
            report.add(&source.path, 1, "name", advice(name));
        }
    }
    for name in EMPTY_NAMES {
        for line in lines_with(&source.code, &format!("mod {name}")) {
            report.add(&source.path, line, "name", advice(name));
        }
    }
}

fn lib(source: &Source, report: &mut Report) {
    let code: Vec<char> = source.product.chars().collect();
    for at in (0..code.len()).filter(|&at| function_name(&code, at).is_some()) {
        let line = 1 + code[..at].iter().filter(|&&character| character == '\n').count();
        report.add(
            &source.path,
            line,
            "lib-rs",
            "move the function into a module; lib.rs declares and re-exports",
        );
    }
    for line in lines_with(&source.product, "impl") {
        report.add(
            &source.path,
            line,
            "lib-rs",
            "move the `impl` into a module; lib.rs declares and re-exports",
        );
    }
}

fn words(source: &Source, report: &mut Report) {
    for (word, instead) in SYNONYMS {
        for (place, name) in declared(&source.product) {
            if says(name, word) {
                let advice = format!("`{name}` says {word}; the word here is {instead}");
                report.add(&source.path, line_of(&source.product, place), "word", advice);
            }
        }
    }
}

/// Names that are declared: after a keyword that declares one, or before the `:` of a field or parameter.
fn declared(code: &str) -> Vec<(usize, &str)> {
    const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];
    let name_at = |place: usize| {
        let rest = &code[place..];
        let end = rest.find(|character: char| !is_word(character)).unwrap_or(rest.len());
        (place, &rest[..end])
    };
    let mut names: Vec<(usize, &str)> = KEYWORDS
        .iter()
        .flat_map(|keyword| places(code, keyword).into_iter().map(|place| place + keyword.len()))
        .map(|place| name_at(code.len() - code[place..].trim_start().len()))
        .collect();
    for (colon, _) in code.match_indices(':') {
        let before = code[..colon].trim_end_matches(is_word);
        let is_path =
            code[colon + 1..].starts_with(':') || before.ends_with(':') || code[..colon].ends_with(':');
        if !is_path {
            names.push(name_at(before.len()));
        }
    }
    names
}

/// Whether a name, in either case style, has the word (or its plural) among its parts.
fn says(name: &str, word: &str) -> bool {
    let mut snake = String::from("_");
    for character in name.chars() {
        if character.is_uppercase() && !snake.ends_with('_') && !name.contains('_') {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake.push('_');
    snake.contains(&format!("_{word}_")) || snake.contains(&format!("_{word}s_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules_broken;

    fn broken(path: &str, text: &str) -> Vec<(&'static str, usize)> {
        rules_broken(|report| check(&Source::new(path, text), report))
    }

    fn function(lines: usize) -> String {
        format!("//! A.\n/// B {{\nfn f<'a>() {{\n{}}}\n", "    g('{', \"{\");\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_without_its_sentence_is_caught() {
        assert_eq!(broken("tests/tests/a.rs", "fn a() {}\n"), [("module-doc", 1)]);
        assert_eq!(broken("tests/tests/a.rs", "//! A.\n"), []);
    }

    #[test]
    fn a_function_of_71_lines_is_caught() {
        assert_eq!(broken("a.rs", &function(71)), [("function-length", 3)]);
        assert_eq!(broken("a.rs", &function(70)), []);
    }

    #[test]
    fn a_declaration_or_pointer_is_no_long_function() {
        let text =
            format!("//! A.\ntrait T {{ fn f(&self) -> [u8; 4]; }}\ntype F = fn();\n{}", "// x\n".repeat(80));
        assert_eq!(broken("a.rs", &text), []);
    }

    #[test]
    fn a_file_of_601_lines_is_caught_unless_tests_make_it_long() {
        let long = format!("//! A.\n{}", "// x\n".repeat(600));
        assert_eq!(broken("crates/x/src/a.rs", &long), [("file-length", 1)]);
        assert_eq!(broken("crates/x/tests/a.rs", &long), []);
        let tests = format!("//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(600));
        assert_eq!(broken("crates/x/src/a.rs", &tests), []);
    }

    #[test]
    fn a_line_of_121_characters_is_caught() {
        assert_eq!(broken("a.rs", &format!("//! {}\n", "é".repeat(117))), [("line-length", 1)]);
        assert_eq!(broken("a.rs", &format!("//! {}\n", "é".repeat(116))), []);
    }

    #[test]
    fn a_module_of_odds_and_ends_is_caught() {
        assert_eq!(broken("crates/x/src/utils.rs", "//! A.\n"), [("name", 1)]);
        assert_eq!(broken("crates/x/tests/common/mod.rs", "//! A.\n"), [("name", 1)]);
        assert_eq!(broken("a.rs", "//! A.\nmod helpers;\n"), [("name", 2)]);
        assert_eq!(broken("a.rs", "//! A.\nmod page_types; // mod types\n"), []);
    }

    #[test]
    fn logic_in_a_lib_is_caught() {
        assert_eq!(broken("x/src/lib.rs", "//! A.\npub fn f() {}\n"), [("lib-rs", 2)]);
        assert_eq!(broken("x/src/lib.rs", "//! A.\nimpl A {}\n"), [("lib-rs", 2)]);
        assert_eq!(broken("x/src/lib.rs", "//! A: impl B, fn f.\nmod a;\npub use a::f;\n"), []);
    }

    #[test]
    fn a_synonym_in_a_declared_name_is_caught() {
        let path = "crates/x/src/a.rs";
        assert_eq!(broken(path, "//! A.\nfn map_segment() {}\n"), [("word", 2)]);
        assert_eq!(
            broken(path, "//! A.\nstruct SegmentMap {\n    block_slots: u8,\n}\n"),
            [("word", 2), ("word", 3)]
        );
        assert_eq!(broken(path, "//! A: a segment.\nfn f(a: u8) { url::segment(\"segment\"); }\n"), []);
        assert_eq!(broken("tests/tests/a.rs", "//! A.\nfn segment() {}\n"), []);
    }
}
