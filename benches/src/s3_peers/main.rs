//! The clients that the S3 store is measured against: the bare SDK, and the crate `object_store`.
//!
//! Both do the same: so many requests are under way at once; an upload sends the one page that all share, a download
//! is copied to where the page belongs. Payloads are not signed and have no checksums.

mod load;
mod object_store_client;
mod sdk_client;
mod step;

use crate::load::{Failure, Load};
use crate::object_store_client::ObjectStoreClient;
use crate::sdk_client::SdkClient;
use clap::{Parser, ValueEnum};
use serde_json::json;
use std::sync::Arc;

/// Measures a client that writes, asks for and reads objects, and prints one JSON document
#[derive(Clone, Debug, Parser)]
struct Flags {
    /// Whose
    #[arg(long)]
    client: Client,
    /// Where the server is, as http://127.0.0.1:9000
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    bucket: String,
    #[arg(long, default_value = "us-east-1")]
    region: String,
    #[arg(long, default_value = "measure")]
    access_key: String,
    #[arg(long, default_value = "measure-secret")]
    secret_key: String,
    /// Before the names of the objects, which are removed in the end
    #[arg(long, default_value = "peers")]
    prefix: String,
    /// Bytes of an object
    #[arg(long)]
    page_bytes: usize,
    /// Objects in all
    #[arg(long)]
    pages: usize,
    /// Requests under way at once
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Threads of the runtime
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Take whatever bytes come back: the server throws away what it is sent
    #[arg(long)]
    unchecked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Client {
    /// `aws-sdk-s3`
    Sdk,
    /// `object_store`
    ObjectStore,
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    if flags.page_bytes == 0 || flags.pages == 0 || flags.concurrency == 0 || flags.threads == 0 {
        return Err("--page-bytes, --pages, --concurrency and --threads are at least 1".into());
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(flags.threads).enable_all().build()?;
    let load = Load::new(&flags);
    let [write, exists, read] = match flags.client {
        Client::Sdk => runtime.block_on(load.run(Arc::new(SdkClient::new(&flags)?)))?,
        Client::ObjectStore => runtime.block_on(load.run(Arc::new(ObjectStoreClient::new(&flags)?)))?,
    };
    println!(
        "{}",
        json!({
            "write": write.json(), "read": read.json(), "exists": exists.json(),
            "concurrency": flags.concurrency, "threads": flags.threads, "page_bytes": flags.page_bytes,
        })
    );
    Ok(())
}
