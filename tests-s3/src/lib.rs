//! A real S3 server for tests: in a container, at an endpoint that somebody names, or from a package.
//!
//! [`S3Server::start`] finds one, and says on standard error which. What it started ends with it, also when the
//! process that started it is killed.

mod choice;
mod client;
mod container;
mod guard;
mod image;
mod install;
mod package;
mod ports;
mod server;
mod target;

pub use choice::{Absent, Kind};
pub use client::Client;
pub use server::{Access, S3Server};
