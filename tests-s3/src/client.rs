//! A signed client, so that tests and the wait for a server do not go by the store under test.

use crate::server::Access;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_s3::error::DisplayErrorContext;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use std::error::Error;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// For one operation.
const LIMIT: Duration = Duration::from_secs(10);

/// The objects of the tests' bucket, one operation at a time, on the caller's thread.
#[derive(Debug)]
pub struct Client {
    sdk: aws_sdk_s3::Client,
    bucket: String,
    runtime: Runtime,
}

type Outcome<T> = Result<T, String>;

impl Client {
    pub(crate) fn new(access: &Access) -> Self {
        let tls = Provider::Rustls(CryptoMode::Ring);
        let config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(aws_smithy_http_client::Builder::new().tls_provider(tls).build_https())
            .endpoint_url(&access.endpoint)
            .force_path_style(true)
            .region(Region::new(access.region.clone()))
            .credentials_provider(Credentials::new(
                &access.access_key,
                &access.secret_key,
                None,
                None,
                "tests",
            ))
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().operation_timeout(LIMIT).build())
            .build();
        let runtime = Builder::new_current_thread().enable_all().build();
        Self {
            sdk: aws_sdk_s3::Client::from_conf(config),
            bucket: access.bucket.clone(),
            runtime: runtime.expect("a runtime of one thread"),
        }
    }

    /// Stores an object.
    ///
    /// # Errors
    ///
    /// Whatever the server or the connection says.
    pub fn put(&self, key: &str, bytes: &[u8]) -> Outcome<()> {
        let body = bytes.to_vec().into();
        let request = self.sdk.put_object().bucket(&self.bucket).key(key).body(body);
        self.runtime.block_on(request.send()).map(|_| ()).map_err(told)
    }

    /// An object's bytes; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Whatever else the server or the connection says.
    pub fn get(&self, key: &str) -> Outcome<Option<Vec<u8>>> {
        let request = self.sdk.get_object().bucket(&self.bucket).key(key);
        self.runtime.block_on(async {
            match request.send().await {
                Ok(object) => {
                    let body = object.body.collect().await.map_err(told)?;
                    Ok(Some(body.to_vec()))
                }
                Err(error) if error.as_service_error().is_some_and(|error| error.is_no_such_key()) => {
                    Ok(None)
                }
                Err(error) => Err(told(error)),
            }
        })
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    ///
    /// Whatever the server or the connection says.
    pub fn remove(&self, key: &str) -> Outcome<()> {
        let request = self.sdk.delete_object().bucket(&self.bucket).key(key);
        self.runtime.block_on(request.send()).map(|_| ()).map_err(told)
    }

    /// All keys that begin with `prefix`, in order.
    ///
    /// # Errors
    ///
    /// Whatever the server or the connection says.
    pub fn keys(&self, prefix: &str) -> Outcome<Vec<String>> {
        let request = self.sdk.list_objects_v2().bucket(&self.bucket).prefix(prefix);
        let mut pages = request.into_paginator().send();
        self.runtime.block_on(async {
            let mut keys = Vec::new();
            while let Some(page) = pages.next().await {
                let page = page.map_err(told)?;
                keys.extend(page.contents().iter().filter_map(|object| object.key().map(str::to_owned)));
            }
            Ok(keys)
        })
    }

    /// Makes the bucket if it is not there, and sees an object kept.
    pub(crate) fn prove(&self) -> Outcome<()> {
        let there = self.sdk.head_bucket().bucket(&self.bucket);
        if self.runtime.block_on(there.send()).is_err() {
            let make = self.sdk.create_bucket().bucket(&self.bucket);
            if let Err(error) = self.runtime.block_on(make.send()) {
                let made = error.as_service_error().is_some_and(|error| {
                    error.is_bucket_already_owned_by_you() || error.is_bucket_already_exists()
                });
                if !made {
                    return Err(told(error));
                }
            }
        }
        let key = format!("ready-{}", std::process::id());
        self.put(&key, b"ready")?;
        match self.get(&key)?.as_deref() {
            Some(b"ready") => self.remove(&key),
            other => Err(format!("an object came back as {other:?}")),
        }
    }
}

fn told(error: impl Error) -> String {
    DisplayErrorContext(error).to_string()
}
