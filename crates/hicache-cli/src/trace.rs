//! Requests, from a trace in JSON lines.

use crate::failure::{Failure, Result};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::os::fd::AsFd;
use std::path::Path;

/// The longest line that is read, in bytes.
const LINE_LEN_MAX: u64 = 64 << 20;

/// One request: which blocks of tokens it begins with, and when it came.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(crate) struct Request {
    /// Milliseconds from the start of the trace.
    pub(crate) timestamp: f64,
    /// The blocks, in order. Equal ids are equal blocks with equal blocks before them.
    pub(crate) hash_ids: Vec<u64>,
}

/// The requests of a file, one at a time.
#[derive(Debug)]
pub(crate) struct Trace {
    name: String,
    reader: BufReader<File>,
    line: u64,
}

impl Trace {
    /// Opens the file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let opened = if path.as_os_str() == "-" {
            stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(path)
        };
        let file = opened.map_err(|error| Failure::Usage(format!("trace {name}: {error}")))?;
        Ok(Self { name, reader: BufReader::with_capacity(256 << 10, file), line: 0 })
    }

    fn read(&mut self) -> Result<Option<Request>> {
        let mut text = Vec::new();
        loop {
            text.clear();
            self.line += 1;
            let read = (&mut self.reader).take(LINE_LEN_MAX).read_until(b'\n', &mut text);
            match read {
                Ok(0) => return Ok(None),
                Ok(len) if len as u64 == LINE_LEN_MAX => return Err(self.refused("longer than 64 MiB")),
                Ok(_) if text.trim_ascii().is_empty() => continue,
                Ok(_) => break,
                Err(error) => return Err(self.refused(error)),
            }
        }
        // Without its end, so that what is missing is missing in this line.
        let parsed = serde_json::from_slice(text.trim_ascii_end());
        let request: Request = parsed.map_err(|error| self.no_request(&error))?;
        if let Some(id) = request.hash_ids.iter().find(|id| **id > i64::MAX as u64) {
            return Err(self.refused(format_args!("block id {id} is above 2^63 - 1")));
        }
        if !(request.timestamp.is_finite() && request.timestamp >= 0.0) {
            return Err(self.refused(format_args!("timestamp {} is before the start", request.timestamp)));
        }
        Ok(Some(request))
    }

    fn no_request(&self, error: &serde_json::Error) -> Failure {
        // Its lines are counted from the line that it was given.
        let (why, column) = (error.to_string(), error.column());
        let why = why.trim_end_matches(&format!(" at line {} column {column}", error.line()));
        let Self { name, line, .. } = self;
        let form = "a line is {\"timestamp\": ms, \"hash_ids\": [block ids], ...}";
        Failure::Usage(format!("trace {name}, line {line}, column {column}: {why}; {form}"))
    }

    fn refused(&self, why: impl std::fmt::Display) -> Failure {
        Failure::Usage(format!("trace {}, line {}: {why}", self.name, self.line))
    }
}

impl Iterator for Trace {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
