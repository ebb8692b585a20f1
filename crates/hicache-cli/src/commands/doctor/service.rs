//! The rows of an S3 bucket.

use super::{Check, Looked};
use crate::failure::Result;
use hicache::Opener;
use hicache::obj::{ObjOptions, diagnose};

/// What the endpoint and the bucket of a store allow; nothing for a store of another kind.
pub(super) fn rows(opener: &Opener, store: &Looked, checks: &mut Vec<Check>) -> Result<()> {
    let Some(location) = opener.location("s3", &store.url)? else { return Ok(()) };
    let options = ObjOptions::from_options(store.options.clone())?;
    match diagnose(&location, options) {
        Ok(rows) => checks.extend(
            rows.into_iter()
                .map(|row| Check::new(row.name, row.ok, row.found, row.wanted.to_owned(), row.fix)),
        ),
        // Nobody was asked; of the machine and of other tiers there is something to tell all the same.
        Err(error) => {
            let fix = error.advice().unwrap_or("check the options of the store").to_owned();
            let found = format!("nobody was asked: {}", error.reason());
            checks.push(Check::new("s3_reachable", false, found, "an answer of S3".to_owned(), fix));
        }
    }
    Ok(())
}
