//! Standard output, every write checked, and notes on standard error.

use crate::failure::{Failure, Result};
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, Stdout, Write};

/// Where results go: one JSON document, or lines for people.
#[derive(Debug)]
pub(crate) struct Output {
    out: BufWriter<Stdout>,
    json: bool,
    quiet: bool,
    written: bool,
}

impl Output {
    /// On standard output.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout()), json, quiet, written: false }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether nothing but results is wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether a result was written, if only in part.
    pub(crate) fn has_result(&self) -> bool {
        self.written
    }

    /// One line for people.
    pub(crate) fn line(&mut self, line: impl fmt::Display) -> Result<()> {
        self.written = true;
        writeln!(self.out, "{line}").map_err(refused)
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.written = true;
        self.out.write_all(bytes).map_err(refused)
    }

    /// The document, or part of it; `value` is written as JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        self.written = true;
        serde_json::to_writer(&mut self.out, value).map_err(|error| refused(error.into()))
    }

    /// The one document of a command.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> Result<()> {
        self.json(value)?;
        self.bytes(b"\n")
    }

    /// Everything is out.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.out.flush().map_err(refused)
    }
}

/// One line on standard error. Nobody is left to tell when that fails.
pub(crate) fn note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn refused(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe { Failure::NobodyReads } else { Failure::Write(error) }
}
