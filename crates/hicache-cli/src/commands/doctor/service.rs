//! The rows of an S3 bucket.

use super::Check;
use crate::args::Place;
use crate::failure::Result;
use crate::session;
use hicache::obj::{ObjOptions, diagnose};

/// What the endpoint and the bucket of `place` allow; nothing for a store of another kind.
pub(super) fn rows(place: &Place, checks: &mut Vec<Check>) -> Result<()> {
    let (opener, url) = session::named(place, session::Absent::Refuse)?;
    let Some(url) = url.map_or_else(|| opener.url(), |url| Ok(Some(url)))? else { return Ok(()) };
    let Some(location) = opener.location("s3", &url)? else { return Ok(()) };
    let options = ObjOptions::from_options(opener.options(&url)?)?;
    for row in diagnose(&location, options)? {
        checks.push(Check::new(row.name, row.ok, row.found, row.wanted.to_owned(), row.fix));
    }
    Ok(())
}
