//! YAML as a document: texts, numbers, booleans, lists and tables, all written out where they stand.
//!
//! SGLang takes its extra configuration as YAML too. What YAML has beyond that (anchors, tags, several documents) is
//! refused rather than half understood.

use crate::document::{Node, Table};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

/// Tables and lists in one another, at most; a configuration has three.
const DEPTH_MAX: usize = 32;

/// The document in `text`; one that is empty is an empty table.
///
/// # Errors
///
/// What is wrong, with its line and column. No value is quoted, since it may be a secret.
pub(crate) fn parse(text: &str) -> Result<Node, String> {
    let mut reader = Reader { parser: Parser::new_from_str(text), at: Span::default() };
    let node = match reader.content()? {
        Event::StreamEnd => return Ok(Node::Table(Vec::new())),
        event => reader.node(event, 0)?,
    };
    match reader.content()? {
        Event::StreamEnd => Ok(if node == Node::Null { Node::Table(Vec::new()) } else { node }),
        _ => Err(reader.refused("a second document, where one is read")),
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// Where the last event stands.
    at: Span,
}

impl<'a> Reader<'a> {
    /// The next event that is not about where streams and documents begin and end, or the end of all.
    fn content(&mut self) -> Result<Event<'a>, String> {
        loop {
            match self.next()? {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd => (),
                event => return Ok(event),
            }
        }
    }

    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.parser.next_event() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, at))) => {
                self.at = at;
                Ok(event)
            }
            Some(Err(error)) => Err(malformed(&error)),
        }
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(self.refused("it is nested too deeply"));
        }
        match event {
            Event::Scalar(_, _, 1.., _) | Event::SequenceStart(1.., _) | Event::MappingStart(1.., _) => {
                Err(self.refused("an anchor, which is not read here; write the value out where it is used"))
            }
            Event::Alias(_) => Err(self.refused("an alias, which is not read here; write the value out")),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                Err(self.refused("a tag, which is not read here; write the value without it"))
            }
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(plain(&text)),
            Event::Scalar(text, ..) => Ok(Node::Text(text.into_owned())),
            Event::SequenceStart(..) => self.list(depth),
            Event::MappingStart(..) => self.table(depth),
            _ => Err(self.refused("a value is missing")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Node::List(items)),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn table(&mut self, depth: usize) -> Result<Node, String> {
        let mut table = Table::default();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => return Ok(table.into_node()),
                Event::Scalar(text, _, 0, None) => text.into_owned(),
                _ => return Err(self.refused("a key that is no text")),
            };
            table.claim(&key).map_err(|why| self.refused(&why))?;
            let event = self.next()?;
            table.push(key, self.node(event, depth + 1)?);
        }
    }

    fn refused(&self, why: &str) -> String {
        place(why, self.at.start.line(), self.at.start.col())
    }
}

fn malformed(error: &ScanError) -> String {
    place(error.info(), error.marker().line(), error.marker().col())
}

fn place(why: &str, line: usize, column: usize) -> String {
    format!("{why} at line {line}, column {}", column + 1)
}

/// What a text without quotes is. `yes` and `off` stay texts: each option reads its own words.
fn plain(text: &str) -> Node {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "true" | "True" | "TRUE" => Node::Literal("true".to_owned()),
        "false" | "False" | "FALSE" => Node::Literal("false".to_owned()),
        _ if is_number(text) => Node::Literal(text.to_owned()),
        _ => Node::Text(text.to_owned()),
    }
}

/// A decimal number; what Rust reads beyond that (`inf`, `nan`) is a text.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Node {
        Node::Text(text.to_owned())
    }

    fn literal(text: &str) -> Node {
        Node::Literal(text.to_owned())
    }

    fn table<const N: usize>(entries: [(&str, Node); N]) -> Node {
        Node::Table(entries.into_iter().map(|(key, node)| (key.to_owned(), node)).collect())
    }

    #[test]
    fn a_document_is_what_it_says() {
        let document = "# of a store\nfile:\n  direct: yes\n  threads: 4\n  dir: [a, 'b c']\n  engine: \"auto\"\n\
                        more:\n  - 1.5\n  - ~\n  - True\n  - 0x10\nempty:\n\"on\": {a: -1e3}\n";
        let file = table([
            ("direct", text("yes")),
            ("threads", literal("4")),
            ("dir", Node::List(vec![text("a"), text("b c")])),
            ("engine", text("auto")),
        ]);
        let more = Node::List(vec![literal("1.5"), Node::Null, literal("true"), text("0x10")]);
        let wanted = table([
            ("file", file),
            ("more", more),
            ("empty", Node::Null),
            ("on", table([("a", literal("-1e3"))])),
        ]);
        assert_eq!(parse(document).unwrap(), wanted);
        assert_eq!(parse(&document.replace('\n', "\r\n")).unwrap(), wanted);
        assert_eq!(
            parse(r#"{"a": [1, "x"], "b": null}"#).unwrap(),
            parse("a:\n- 1\n- x\nb:\n").unwrap(),
            "JSON"
        );
        for empty in ["", "\n", "# nothing\n", "---\n", "---\n...\n", "~"] {
            assert_eq!(parse(empty).unwrap(), table([]), "{empty:?}");
        }
    }

    #[test]
    fn what_is_beyond_a_plain_document_is_refused_with_its_place() {
        let refused = [
            ("a: 1\nb: 2\na: 3\n", "\"a\" is there twice at line 3, column 1"),
            ("a: &x 1\nb: *x\n", "an anchor"),
            ("a: *x\n", "line 1"),
            ("a: &x {b: 1}\n", "an anchor"),
            ("a: !!str 1\n", "a tag"),
            ("a: !!python/object/apply:os.system ['ls']\n", "a tag"),
            ("[a]: 1\n", "no text"),
            ("? {a: 1}\n: 2\n", "no text"),
            ("a: 1\n---\nb: 2\n", "a second document"),
            ("a: [1, 2\n", "line "),
            ("a:\n\tb: 1\n", "line 2"),
            ("a: 'x\n", "line "),
        ];
        for (document, wanted) in refused {
            let why = parse(document).unwrap_err();
            assert!(why.contains(wanted) && why.contains(" at line "), "{document:?}: {why}");
        }
        for deep in ["[".repeat(100_000), "a: ".repeat(100_000), "- ".repeat(100_000), "{a: ".repeat(100_000)]
        {
            assert!(parse(&deep).is_err());
        }
    }

    #[test]
    fn a_bomb_of_aliases_is_refused_at_its_first_anchor() {
        let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n";
        assert!(parse(bomb).unwrap_err().contains("an anchor"));
    }
}
