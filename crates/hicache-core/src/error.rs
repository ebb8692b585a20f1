//! The one error type: kind, operation, facts, source.

use hicache_alloc::{AllocError, Shortage};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Cause = Arc<dyn std::error::Error + Send + Sync + 'static>;

/// What went wrong, in the caller's terms. A miss is not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option, a URL or a configuration is unknown, malformed or inconsistent.
    InvalidConfig,
    /// A call's arguments do not fit the store or one another.
    InvalidArgument,
    /// This machine, device or build cannot do it.
    Unsupported,
    /// The operating system or the service refuses it to this user.
    PermissionDenied,
    /// A pool, queue, descriptor table or other limit is full; later it may not be.
    Exhausted,
    /// The medium has no room: bytes, inodes or quota.
    NoSpace,
    /// The page is larger than the medium allows.
    TooLarge,
    /// What is stored there was laid down by something else, and is left untouched.
    Incompatible,
    /// Stored bytes fail their check.
    Corrupt,
    /// The deadline passed.
    Timeout,
    /// Somebody else holds it.
    AlreadyOpen,
    /// The store is shut down.
    Closed,
    /// The operating system or the network failed.
    Io,
    /// The service is not there, or fails so often that it is not asked for a while; later it may be.
    Unavailable,
    /// The service asks for fewer requests.
    Throttled,
}

impl ErrorKind {
    fn text(self) -> &'static str {
        match self {
            Self::InvalidConfig => "invalid configuration",
            Self::InvalidArgument => "invalid argument",
            Self::Unsupported => "not supported",
            Self::PermissionDenied => "permission denied",
            Self::Exhausted => "resource exhausted",
            Self::NoSpace => "no space",
            Self::TooLarge => "too large",
            Self::Incompatible => "incompatible",
            Self::Corrupt => "corrupt",
            Self::Timeout => "deadline passed",
            Self::AlreadyOpen => "already open",
            Self::Closed => "closed",
            Self::Io => "input/output error",
            Self::Unavailable => "unavailable",
            Self::Throttled => "throttled",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// An error with its kind, operation, facts and cause. One word wide; cheap to clone.
///
/// `Display` is one line without the cause, which [`std::error::Error::source`] gives, and without the middle of what
/// is long, which [`Error::fact`] has.
#[derive(Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    retryable: bool,
    why: Option<String>,
    facts: Vec<(&'static str, String)>,
    fix: Option<String>,
    cause: Option<Cause>,
}

impl Error {
    /// A permanent error of `operation`, which is a verb and its object, as in `"open store"`.
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        let inner =
            Inner { kind, operation, retryable: false, why: None, facts: Vec::new(), fix: None, cause: None };
        Self(Arc::new(inner))
    }

    /// Says what happened, in a clause.
    #[must_use]
    pub fn why(self, why: impl fmt::Display) -> Self {
        self.edit(|inner| inner.why = Some(why.to_string()))
    }

    /// Adds a fact.
    #[must_use]
    pub fn with(self, name: &'static str, value: impl fmt::Display) -> Self {
        self.edit(|inner| inner.facts.push((name, value.to_string())))
    }

    /// Says what the user can do about it.
    #[must_use]
    pub fn fix(self, fix: impl fmt::Display) -> Self {
        self.edit(|inner| inner.fix = Some(fix.to_string()))
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.edit(|inner| inner.cause = Some(Arc::new(cause)))
    }

    /// Marks it worth retrying.
    #[must_use]
    pub fn retryable(self) -> Self {
        self.edit(|inner| inner.retryable = true)
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// What happened, in a clause; where nobody said, the kind's name.
    pub fn reason(&self) -> &str {
        self.0.why.as_deref().unwrap_or(self.0.kind.text())
    }

    /// What the user can do about it, if that is known.
    pub fn advice(&self) -> Option<&str> {
        self.0.fix.as_deref()
    }

    /// The value of a fact.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.0.facts.iter().find(|(held, _)| *held == name).map(|(_, value)| value.as_str())
    }

    fn edit(mut self, edit: impl FnOnce(&mut Inner)) -> Self {
        edit(Arc::make_mut(&mut self.0));
        self
    }
}

/// How much of a fact a line quotes, in characters. It may be all that somebody wrote into an option.
const FACT_LEN_MAX: usize = 200;
/// How much of what happened, and of what to do, a line has: words of ours with a little of the user's.
const CLAUSE_LEN_MAX: usize = 600;

impl Inner {
    fn line(&self) -> String {
        let mut line = format!("{}: {}", self.operation, self.kind);
        if let Some(why) = &self.why {
            line.push_str(": ");
            line.push_str(&shortened(why, CLAUSE_LEN_MAX));
        }
        let fact = |(name, value): &(&str, String)| format!("{name}={}", shortened(value, FACT_LEN_MAX));
        let facts: Vec<String> = self.facts.iter().map(fact).collect();
        if !facts.is_empty() {
            line.push_str(&format!(" [{}]", facts.join(", ")));
        }
        if let Some(fix) = &self.fix {
            line.push_str("; ");
            line.push_str(&shortened(fix, CLAUSE_LEN_MAX));
        }
        one_line(line)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// By hand, since the derived source would be the `Arc`, and nobody could downcast it to the cause.
impl std::error::Error for Inner {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

/// Without its middle where it is longer than `len_max` characters.
fn shortened(text: &str, len_max: usize) -> Cow<'_, str> {
    let len = text.chars().count();
    if len <= len_max {
        return text.into();
    }
    let end = len_max / 4;
    let head: String = text.chars().take(len_max - end).collect();
    let tail: String = text.chars().skip(len - end).collect();
    format!("{head} ... {tail}").into()
}

/// What a user wrote may hold line ends, terminal codes, and marks that turn the text around; an error that quotes it
/// does not.
fn one_line(text: String) -> String {
    if !text.contains(is_unseen) {
        return text;
    }
    let plain = |c: char| if is_unseen(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(plain).collect()
}

/// Controls, and what Unicode has to break lines, to set the direction of text, and to take no room.
fn is_unseen(c: char) -> bool {
    let marks = '\u{200b}'..='\u{200f}';
    let breaks_and_turns = '\u{2028}'..='\u{202e}';
    let isolates = '\u{2060}'..='\u{206f}';
    c.is_control()
        || c == '\u{feff}'
        || marks.contains(&c)
        || breaks_and_turns.contains(&c)
        || isolates.contains(&c)
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl From<AllocError> for Error {
    fn from(error: AllocError) -> Self {
        let kind = match &error {
            AllocError::Exhausted { .. } => ErrorKind::Exhausted,
            AllocError::Unsupported { .. } => ErrorKind::Unsupported,
            AllocError::Denied { .. } => ErrorKind::PermissionDenied,
            AllocError::Os { .. } | AllocError::Register(_) => ErrorKind::Io,
            _ => ErrorKind::InvalidConfig,
        };
        let fix = way_out(&error);
        let made = Self::new(kind, "map memory").because(error);
        match fix {
            Some(fix) => made.fix(fix),
            None => made,
        }
    }
}

/// The option that would have let a store or its pool do without what was insisted on.
fn way_out(error: &AllocError) -> Option<&'static str> {
    match error {
        AllocError::Exhausted { shortage: Shortage::HugePages { .. }, .. } => {
            Some("huge_pages=prefer goes on without huge pages")
        }
        AllocError::Exhausted { shortage: Shortage::Locked { .. }, .. } => {
            Some("mlock=true goes on without the lock")
        }
        AllocError::Exhausted { shortage: Shortage::Node { .. }, .. } | AllocError::Denied { .. } => {
            Some("numa=prefer:NODE goes on with memory of any node")
        }
        AllocError::UnknownNode { .. } => {
            Some("name a node that is there in numa=prefer:NODE, or leave numa off")
        }
        _ => None,
    }
}
