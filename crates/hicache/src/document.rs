//! A configuration document, whatever its syntax, with every key told and none told twice.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;

/// The only key of the table as which the TOML reader tells a date or a time.
const TOML_DATE: &str = "$__toml_private_datetime";
/// From here on a float may stand for several whole numbers.
const EXACT_BELOW: f64 = (1u64 << 53) as f64;

/// One value of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Null,
    /// A text, a number or a boolean: its text.
    Text(String),
    /// As `Text`, but not written as a text.
    Literal(String),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

/// A table while it is read.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<(String, Node)>,
    keys: HashSet<String>,
}

impl Table {
    /// Takes the next key, whose value follows.
    ///
    /// # Errors
    ///
    /// The key is there already.
    pub(crate) fn claim(&mut self, key: &str) -> Result<(), String> {
        if self.keys.insert(key.to_owned()) { Ok(()) } else { Err(format!("the key {key:?} is there twice")) }
    }

    /// Adds what a claimed key holds.
    pub(crate) fn push(&mut self, key: String, value: Node) {
        self.entries.push((key, value));
    }

    /// All of it, in the order in which it stands.
    pub(crate) fn into_node(self) -> Node {
        Node::Table(self.entries)
    }
}

impl Node {
    /// What it is, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Text(_) => "a text",
            Self::Literal(_) => "a number or a boolean",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Literal(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Literal(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Literal(value.to_string()))
    }

    // Left out, the number would be in the error, and it may be a secret.
    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Literal(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        Ok(Node::Literal(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        // JSON's larger whole numbers arrive as floats: other digits than the file has.
        if value.is_finite() && value.abs() >= EXACT_BELOW {
            return Err(E::custom("a number with more digits than are read; write it as a text"));
        }
        // With its point, so that 1.0 is not taken for a whole number.
        Ok(Node::Literal(format!("{value:?}")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut table = Table::default();
        while let Some(key) = entries.next_key::<String>()? {
            table.claim(&key).map_err(A::Error::custom)?;
            table.push(key, entries.next_value()?);
        }
        // As in YAML, a date is its text.
        Ok(match <[_; 1]>::try_from(table.entries) {
            Ok([(key, Node::Text(date))]) if key == TOML_DATE => Node::Text(date),
            Ok(entry) => Node::Table(entry.into()),
            Err(entries) => Node::Table(entries),
        })
    }
}
