//! The rows of an S3 bucket.

use super::{Check, Looked};
use crate::failure::Result;
use hicache::Opener;
use hicache::obj::{ObjOptions, diagnose};

/// What the endpoint and the bucket of a store allow; nothing for a store of another kind.
pub(super) fn rows(opener: &Opener, store: &Looked, checks: &mut Vec<Check>) -> Result<()> {
    let Some(location) = opener.location("s3", &store.url)? else { return Ok(()) };
    let options = ObjOptions::from_options(store.options.clone())?;
    for row in diagnose(&location, options)? {
        checks.push(Check::new(row.name, row.ok, row.found, row.wanted.to_owned(), row.fix));
    }
    Ok(())
}
