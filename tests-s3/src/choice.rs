//! Which server the tests get, and what happens where there is none.

use crate::container::Container;
use crate::package::Package;
use crate::server::{Access, Origin};
use std::env;
use std::fmt;

/// A server that somebody else runs.
const ENDPOINT: &str = "HICACHE_TEST_S3_ENDPOINT";
const BUCKET: &str = "HICACHE_TEST_S3_BUCKET";
const REGION: &str = "HICACHE_TEST_S3_REGION";
const ACCESS_KEY: &str = "HICACHE_TEST_S3_ACCESS_KEY";
const SECRET_KEY: &str = "HICACHE_TEST_S3_SECRET_KEY";

/// Where a server comes from, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An image that testcontainers starts; `HICACHE_TEST_S3_IMAGE` names another one than ours.
    Container,
    /// The one at `HICACHE_TEST_S3_ENDPOINT`, with `HICACHE_TEST_S3_ACCESS_KEY` and `HICACHE_TEST_S3_SECRET_KEY`.
    Endpoint,
    /// A program that pip installs into the target directory.
    Package,
}

/// Why there is no server; begins with what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent(pub(crate) String);

impl Kind {
    /// In the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Container, Self::Endpoint, Self::Package];
    /// Those whose server is the tests' own, to be killed and started again.
    pub const OWN: [Self; 2] = [Self::Container, Self::Package];

    pub(crate) fn open(self) -> Result<Origin, Absent> {
        match self {
            Self::Container => Container::start().map(Box::new).map(Origin::Container),
            Self::Endpoint => endpoint().map(Origin::Endpoint),
            Self::Package => Package::start().map(Origin::Package),
        }
    }
}

/// The first of `kinds` that there is, and why those before it are not.
pub(crate) fn first(kinds: &[Kind]) -> Result<(Origin, Vec<Absent>), Absent> {
    let mut absent = Vec::new();
    for kind in kinds {
        match kind.open() {
            Ok(origin) => return Ok((origin, absent)),
            Err(why) => absent.push(why),
        }
    }
    let reasons: Vec<String> = absent.iter().map(ToString::to_string).collect();
    Err(Absent(format!("needs an S3 server; {}", reasons.join("; "))))
}

/// Whether a test that finds no server fails instead of being skipped.
pub(crate) fn promised() -> bool {
    env::var("CI").is_ok_and(|value| value == "true")
}

fn endpoint() -> Result<Access, Absent> {
    let endpoint = named(ENDPOINT).ok_or_else(|| Absent(format!("{ENDPOINT} is not set")))?;
    let wanted = |name| named(name).ok_or_else(|| Absent(format!("{name} is not set beside {ENDPOINT}")));
    Ok(Access {
        endpoint: endpoint.trim_end_matches('/').to_owned(),
        access_key: wanted(ACCESS_KEY)?,
        secret_key: wanted(SECRET_KEY)?,
        bucket: named(BUCKET).unwrap_or_else(|| Access::BUCKET.to_owned()),
        region: named(REGION).unwrap_or_else(|| Access::REGION.to_owned()),
    })
}

fn named(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Absent {}
