//! Where `unsafe` may stand, and the comment that each of its uses needs (invariant 8).

use super::Report;
use super::source::{Source, line_of, places};

/// Every file that may say `unsafe`. To add one: say in ARCHITECTURE.md why it cannot be in one of these.
///
/// `adopt.rs` is not part of `mapping.rs`, whose blocks all rest on having made the mapping: adopted memory rests on
/// what a caller promises. `ring/kernel.rs` is not part of `sys.rs`: its entries outlive the call that pushes them.
/// `tests/stage/adopted.rs` makes that caller's promise, which none of the others can, being what is tested.
const UNSAFE_FILES: [&str; 7] = [
    "crates/hicache-alloc/src/adopt.rs",
    "crates/hicache-alloc/src/mapping.rs",
    "crates/hicache-alloc/src/page.rs",
    "crates/hicache-alloc/src/piece.rs",
    "crates/hicache-file/src/ring/kernel.rs",
    "crates/hicache-file/src/sys.rs",
    "crates/hicache-file/tests/stage/adopted.rs",
];

/// Checks the list against the files, and every block and impl for its comment.
pub(super) fn check(sources: &[Source], report: &mut Report) {
    check_list(&UNSAFE_FILES, sources, report);
    for source in sources {
        check_comments(source, report);
    }
}

fn check_list(listed: &[&str], sources: &[Source], report: &mut Report) {
    for source in sources {
        let uses = places(&source.code, "unsafe");
        match (uses.first(), listed.contains(&source.path.as_str())) {
            (Some(&place), false) => {
                let advice =
                    "`unsafe` in a file that tidy's UNSAFE_FILES does not name; move it to one that it does";
                report.add(&source.path, line_of(&source.code, place), "unsafe-file", advice);
            }
            (None, true) => {
                report.add(
                    &source.path,
                    1,
                    "unsafe-file",
                    "no `unsafe` here; take the file off UNSAFE_FILES",
                );
            }
            _ => {}
        }
    }
    for path in listed {
        if sources.iter().all(|source| source.path != *path) {
            report.add(path, 1, "unsafe-file", "there is no such file; take it off UNSAFE_FILES");
        }
    }
}

fn check_comments(source: &Source, report: &mut Report) {
    let code: Vec<&str> = source.code.lines().collect();
    let comments: Vec<&str> = source.comments.lines().collect();
    for place in places(&source.code, "unsafe") {
        let next = source.code[place + "unsafe".len()..].trim_start();
        let opens_block = next.starts_with('{');
        let opens_impl = places(next, "impl").first() == Some(&0);
        let line = line_of(&source.code, place);
        if (opens_block || opens_impl) && !has_comment(&code, &comments, line - 1) {
            let advice = "write `// SAFETY:` right above: why this holds, and the invariant it rests on";
            report.add(&source.path, line, "unsafe-comment", advice);
        }
    }
}

/// Whether a SAFETY comment stands on this line or above it, before the statement that came earlier ends.
fn has_comment(code: &[&str], comments: &[&str], line: usize) -> bool {
    let says_why = |index: usize| comments[index].contains("SAFETY:");
    if says_why(line) {
        return true;
    }
    for index in (0..line).rev() {
        if says_why(index) {
            return true;
        }
        let (code, comment) = (code[index].trim(), comments[index].trim());
        let is_blank = code.is_empty() && comment.is_empty();
        if is_blank || code.ends_with([';', '{', '}']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rules_broken;

    fn comments(text: &str) -> Vec<(&'static str, usize)> {
        rules_broken(|report| check_comments(&Source::new("a.rs", text), report))
    }

    fn list(listed: &[&str], path: &str, text: &str) -> usize {
        rules_broken(|report| check_list(listed, &[Source::new(path, text)], report)).len()
    }

    #[test]
    fn unsafe_in_a_file_that_is_not_listed_is_caught() {
        assert_eq!(list(&[], "a.rs", "fn f() { unsafe { g() } }"), 1);
        assert_eq!(list(&["a.rs"], "a.rs", "fn f() { unsafe { g() } }"), 0);
    }

    #[test]
    fn a_list_that_names_too_much_is_caught() {
        assert_eq!(list(&["a.rs"], "a.rs", "fn f() {}"), 1);
        assert_eq!(list(&["gone.rs"], "a.rs", "fn f() {}"), 1);
    }

    #[test]
    fn the_word_in_a_comment_a_string_or_a_lint_is_not_unsafe() {
        assert_eq!(list(&[], "a.rs", "// unsafe\n#![deny(unsafe_code)]\nfn f() { g(\"unsafe\") }"), 0);
    }

    #[test]
    fn a_block_or_impl_without_its_comment_is_caught() {
        assert_eq!(comments("fn f() {\n    unsafe { g() }\n}"), [("unsafe-comment", 2)]);
        assert_eq!(comments("unsafe impl Send for A {}"), [("unsafe-comment", 1)]);
        assert_eq!(comments("// SAFETY: x.\nunsafe impl Send for A {}\nunsafe impl Sync for A {}").len(), 1);
        assert_eq!(comments("// SAFETY: x.\nlet a = 1;\nlet b = unsafe { g() };").len(), 1);
        assert_eq!(comments("// SAFETY: x.\n\nlet b = unsafe { g() };").len(), 1);
        assert_eq!(comments("let a = \"SAFETY: x\";\nlet b = unsafe { g() };").len(), 1);
    }

    #[test]
    fn a_comment_above_the_statement_is_enough() {
        assert_eq!(comments("// SAFETY: long,\n// and longer.\nlet a =\n    unsafe { g() };"), []);
        assert_eq!(comments("// SAFETY: x.\n#[allow(unsafe_code)]\nunsafe impl Send for A {}"), []);
        assert_eq!(comments("unsafe fn f() {}\nunsafe extern \"C\" fn g() {}"), []);
    }
}
