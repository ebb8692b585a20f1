//! A server for whoever is not a test: says where it is, and ends with its standard input.
//!
//! Prints one line of JSON when the server is ready. Objects in it are gone in the end.

use hicache_s3_tests::{Kind, S3Server};
use serde_json::json;
use std::error::Error;
use std::io::{self, Read, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let server = S3Server::start_of(&Kind::ALL)?;
    let access = server.access();
    let line = json!({
        "server": server.name(),
        "endpoint": access.endpoint,
        "bucket": access.bucket,
        "region": access.region,
        "access_key": access.access_key,
        "secret_key": access.secret_key,
    });
    let mut output = io::stdout();
    writeln!(output, "{line}")?;
    output.flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
