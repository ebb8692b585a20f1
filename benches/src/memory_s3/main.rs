//! An S3 server that answers at once, from memory: against it, a client shows its own ceiling.
//!
//! It speaks enough of the protocol for one bucket or any number of them to be used: PUT, GET (also of ranges), HEAD
//! and DELETE of objects, with their `x-amz-meta-` headers, ListObjectsV2 and DeleteObjects. It believes everybody:
//! signatures and checksums are not looked at. It is for measurements on loopback and nothing else.

mod connection;
mod head;
mod listing;
mod objects;
mod removal;

use crate::connection::Connection;
use crate::objects::{Keep, Objects};
use clap::Parser;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

/// Serves S3 from memory on 127.0.0.1, until it is killed
#[derive(Debug, Parser)]
struct Flags {
    /// The port; 0 for any that is free. The endpoint is printed
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Throw the bodies of uploads away, and answer each download with so many bytes, always the same
    #[arg(long, value_name = "BYTES")]
    null: Option<usize>,
}

fn main() -> io::Result<()> {
    let flags = Flags::parse();
    let keep = flags.null.map_or(Keep::All, Keep::nothing);
    let objects = Arc::new(Objects::new(keep));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, flags.port))?;
    let mut output = io::stdout();
    writeln!(output, "http://{}", listener.local_addr()?)?;
    output.flush()?;
    for stream in listener.incoming() {
        let connection = Connection::new(stream?, Arc::clone(&objects))?;
        // A client that leaves in the middle is no error of ours.
        std::thread::spawn(move || connection.serve());
    }
    Ok(())
}
