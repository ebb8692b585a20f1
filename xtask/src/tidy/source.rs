//! One Rust file as the rules see it: its views, its test items, and searches that respect word boundaries.

use std::ops::Range;

use super::lexer::{is_word, split};

/// A Rust file of the tree.
#[derive(Debug)]
pub(super) struct Source {
    /// Relative to the root, with `/` between its parts.
    pub(super) path: String,
    pub(super) text: String,
    /// Neither comments nor insides of literals.
    pub(super) code: String,
    /// Comments only.
    pub(super) comments: String,
    /// As `code`, without the items that exist only for tests.
    pub(super) product: String,
    /// As `product`, with the insides of literals.
    pub(super) product_literals: String,
    /// How many lines the items take that exist only for tests.
    pub(super) test_lines: usize,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let views = split(text);
        let tests = test_items(&views.code);
        let without_tests = |view: &[char]| {
            let mut view = view.to_vec();
            for item in &tests {
                for character in &mut view[item.clone()] {
                    if *character != '\n' {
                        *character = ' ';
                    }
                }
            }
            view.into_iter().collect::<String>()
        };
        let lines = |item: &Range<usize>| 1 + views.code[item.clone()].iter().filter(|&&c| c == '\n').count();
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: views.code.iter().collect(),
            comments: views.comments.iter().collect(),
            product: without_tests(&views.code),
            product_literals: without_tests(&views.literals),
            test_lines: tests.iter().map(lines).sum(),
        }
    }

    /// The package folder under `crates/`, when the file is part of that package's product: not its tests.
    pub(super) fn product_of(&self) -> Option<&str> {
        let (package, rest) = self.path.strip_prefix("crates/")?.split_once('/')?;
        let inner = rest.strip_prefix("src/")?;
        let is_tests = inner == "tests.rs" || inner.ends_with("/tests.rs") || inner.contains("tests/");
        (!is_tests).then_some(package)
    }

    pub(super) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Lines (from 1) on which the pattern stands, not as a part of a longer word.
pub(super) fn lines_with(view: &str, pattern: &str) -> Vec<usize> {
    let mut lines: Vec<usize> = places(view, pattern).into_iter().map(|place| line_of(view, place)).collect();
    lines.dedup();
    lines
}

/// Byte positions of the pattern, not as a part of a longer word.
pub(super) fn places(view: &str, pattern: &str) -> Vec<usize> {
    let opens_with_word = pattern.starts_with(is_word);
    let ends_with_word = pattern.ends_with(is_word);
    view.match_indices(pattern)
        .map(|(place, _)| place)
        .filter(|&place| {
            let before = view[..place].chars().next_back();
            let after = view[place + pattern.len()..].chars().next();
            !(opens_with_word && before.is_some_and(is_word) || ends_with_word && after.is_some_and(is_word))
        })
        .collect()
}

/// The line (from 1) that a byte position is on.
pub(super) fn line_of(view: &str, place: usize) -> usize {
    1 + view[..place].matches('\n').count()
}

/// The end of an item that starts at `start`: behind its `;` or its closing brace. Positions are characters.
pub(super) fn item_end(code: &[char], start: usize) -> usize {
    let mut braces = 0_usize;
    let mut others = 0_usize;
    for (place, character) in code.iter().enumerate().skip(start) {
        match character {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 && others == 0 {
                    return place + 1;
                }
            }
            ';' if braces == 0 && others == 0 => return place + 1,
            _ => {}
        }
    }
    code.len()
}

/// Character ranges of the items under `#[cfg(test)]` or `#[cfg(all(test, ..))]`, the attribute included.
fn test_items(code: &[char]) -> Vec<Range<usize>> {
    const OPENINGS: [&str; 2] = ["#[cfg(test", "#[cfg(all(test"];
    let mut items = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let opens = OPENINGS.iter().any(|opening| {
            let length = opening.len();
            opening.chars().eq(code[at..].iter().copied().take(length))
                && !code.get(at + length).copied().is_some_and(is_word)
        });
        if opens {
            let end = item_end(code, at);
            items.push(at..end);
            at = end;
        } else {
            at += 1;
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whole() {
        assert_eq!(lines_with("unsafe_code\nunsafe {}\nnot_unsafe", "unsafe"), [2]);
        assert_eq!(lines_with("Ordering::X\nOrder::X\nPageOrder::X", "Order::"), [2]);
        assert_eq!(lines_with("thread::sleep(x)", "sleep("), [1]);
    }

    #[test]
    fn test_items_are_not_product() {
        let source = Source::new(
            "crates/hicache-core/src/a.rs",
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n",
        );
        assert!(source.code.contains("fn b"));
        assert!(!source.product.contains("fn b"));
        assert!(source.product.contains("fn c"));
        assert_eq!(source.test_lines, 4);
    }

    #[test]
    fn an_item_for_tests_ends_at_its_semicolon() {
        let source = Source::new("crates/x/src/a.rs", "#[cfg(test)]\nuse std::fs;\nfn c() {}\n");
        assert!(!source.product.contains("std::fs"));
        assert!(source.product.contains("fn c"));
    }

    #[test]
    fn a_cfg_that_only_starts_like_test_is_product() {
        let source = Source::new("crates/x/src/a.rs", "#[cfg(testing)]\nfn c() {}\n");
        assert!(source.product.contains("fn c"));
    }

    #[test]
    fn files_of_tests_are_no_product() {
        let product = |path| Source::new(path, "").product_of().map(str::to_owned);
        assert_eq!(product("crates/hicache-core/src/a/b.rs").as_deref(), Some("hicache-core"));
        assert_eq!(product("crates/hicache-core/src/a/tests.rs"), None);
        assert_eq!(product("crates/hicache-core/tests/a.rs"), None);
        assert_eq!(product("xtask/src/main.rs"), None);
    }
}
