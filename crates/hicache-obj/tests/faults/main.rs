//! What servers do wrong, and what a store makes of it: the cases B060 to B079, each in its kind.

mod addressing;
mod bodies;
mod checksums;
mod closing;
mod connections;
mod credentials;
mod existence;
mod expect;
mod keys;
mod leading;
mod lost_answers;
mod passed_on;
mod pieces;
mod ranges;
mod refusals;
mod removal;
mod stage;
mod strangers;
#[path = "../stub/mod.rs"]
mod stub;
mod tails;
mod throttling;
mod timeouts;
mod unfinished;
