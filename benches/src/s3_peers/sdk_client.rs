//! `aws-sdk-s3`, called as plainly as it can be.

use crate::Flags;
use crate::load::{Failure, Objects, fill, filled};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Config, Credentials, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    StalledStreamProtectionConfig,
};
use aws_smithy_http_client::pool::{self, ConnectionPool};
use bytes::Bytes;

/// One bucket.
#[derive(Debug)]
pub(crate) struct SdkClient {
    client: Client,
    bucket: String,
}

impl SdkClient {
    pub(crate) fn new(flags: &Flags) -> Result<Self, Failure> {
        let pool = ConnectionPool::builder().tcp_nodelay(true).build_http()?;
        let http = pool::Client::new(&pool)?;
        let config = Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(http)
            .endpoint_url(&flags.endpoint)
            .force_path_style(true)
            .region(Region::new(flags.region.clone()))
            .credentials_provider(Credentials::new(&flags.access_key, &flags.secret_key, None, None, "flags"))
            .retry_config(RetryConfig::disabled())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .build();
        Ok(Self { client: Client::from_conf(config), bucket: flags.bucket.clone() })
    }
}

impl Objects for SdkClient {
    async fn put(&self, key: String, body: Bytes) -> Result<(), Failure> {
        let request = self.client.put_object().bucket(&self.bucket).key(key).body(body.into());
        request.customize().disable_payload_signing().send().await?;
        Ok(())
    }

    async fn get(&self, key: String, into: &mut [u8]) -> Result<(), Failure> {
        let mut body = self.client.get_object().bucket(&self.bucket).key(key).send().await?.body;
        let mut at = 0;
        while let Some(chunk) = body.try_next().await? {
            fill(into, &mut at, &chunk)?;
        }
        filled(into, at)
    }

    async fn head(&self, key: String) -> Result<(), Failure> {
        self.client.head_object().bucket(&self.bucket).key(key).send().await?;
        Ok(())
    }

    async fn remove(&self, key: String) -> Result<(), Failure> {
        self.client.delete_object().bucket(&self.bucket).key(key).send().await?;
        Ok(())
    }
}
