//! What the tests in `tests/` share: the command in a home of its own, and how to skip aloud.

mod command;
mod skip;

pub use command::{DIRECTORY_ROWS, Home, Ran, key, tier_url};
pub use skip::skip;
