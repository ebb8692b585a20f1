//! Why a command ended, and the exit code that says so.

use crate::output;
use hicache::{Error, ErrorKind};
use serde_json::{Value, json};
use std::io;

/// Something failed, or there is nothing left to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The store, its memory or its configuration.
    Store(Error),
    /// A file of the user's: what was done with it, and what came of it.
    File {
        /// What was being done, with the file's name.
        what: String,
        /// The system's answer.
        error: io::Error,
    },
    /// What was asked for cannot be: the message says why and what to do.
    Usage(String),
    /// Standard output took no more.
    Write(io::Error),
    /// Whoever read standard output has left: no failure at all.
    NobodyReads,
    /// Ctrl-C, or a signal like it: the exit code, 128 and its number.
    Interrupted(u8),
}

/// How a command that ran to its end ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Done,
    /// The operation failed, and the output says how.
    Failed,
    /// Data was found wrong.
    DataWrong,
}

/// What commands return.
pub(crate) type Result<T = Ending, E = Failure> = std::result::Result<T, E>;

impl Ending {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::DataWrong => 3,
        }
    }
}

impl Failure {
    /// What came of a file of the user's.
    pub(crate) fn file(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::File { what, error }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Store(error) => match error.kind() {
                ErrorKind::InvalidConfig | ErrorKind::InvalidArgument => 2,
                // Pages of another size or layout are asked for than the namespace has.
                ErrorKind::Incompatible if error.operation() == "open namespace" => 2,
                _ => 1,
            },
            Self::File { .. } | Self::Write(_) => 1,
            Self::Usage(_) => 2,
            Self::NobodyReads => 0,
            Self::Interrupted(code) => *code,
        }
    }

    fn kind(&self) -> String {
        match self {
            Self::Store(error) => snake_case(&format!("{:?}", error.kind())),
            Self::File { .. } | Self::Write(_) => "io".to_owned(),
            Self::Usage(_) => "usage".to_owned(),
            Self::NobodyReads => "closed".to_owned(),
            Self::Interrupted(_) => "interrupted".to_owned(),
        }
    }

    /// What happened, then each cause.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Store(error) => {
                let mut lines = vec![error.to_string()];
                let mut cause = std::error::Error::source(error);
                while let Some(error) = cause {
                    lines.push(error.to_string());
                    cause = error.source();
                }
                lines
            }
            Self::File { what, error } => vec![format!("{what}: {error}")],
            Self::Usage(why) => vec![why.clone()],
            Self::Write(error) => vec![format!("write error: standard output: {error}")],
            Self::NobodyReads => Vec::new(),
            Self::Interrupted(_) => vec!["interrupted".to_owned()],
        }
    }

    /// The same, for scripts.
    pub(crate) fn document(&self) -> Value {
        json!({ "kind": self.kind(), "message": self.lines().join(": ") })
    }

    /// Tells the user on standard error.
    pub(crate) fn tell(&self) {
        for (index, line) in self.lines().iter().enumerate() {
            output::note(format_args!("{}{line}", if index == 0 { "error: " } else { "  caused by: " }));
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<hicache::AllocError> for Failure {
    fn from(error: hicache::AllocError) -> Self {
        Self::Store(error.into())
    }
}

fn snake_case(text: &str) -> String {
    let mut snake = String::new();
    for character in text.chars() {
        if character.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}
