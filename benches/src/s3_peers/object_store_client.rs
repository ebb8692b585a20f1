//! The crate `object_store`.

use crate::Flags;
use crate::load::{Failure, Objects, fill, filled};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;

/// One bucket.
#[derive(Debug)]
pub(crate) struct ObjectStoreClient(AmazonS3);

impl ObjectStoreClient {
    pub(crate) fn new(flags: &Flags) -> Result<Self, Failure> {
        // Its HTTP client wants one, also where it speaks plain HTTP. Somebody may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::new()
            .with_endpoint(&flags.endpoint)
            .with_allow_http(true)
            .with_bucket_name(&flags.bucket)
            .with_region(&flags.region)
            .with_access_key_id(&flags.access_key)
            .with_secret_access_key(&flags.secret_key)
            .with_virtual_hosted_style_request(false)
            .with_unsigned_payload(true);
        Ok(Self(builder.build()?))
    }
}

impl Objects for ObjectStoreClient {
    async fn put(&self, key: String, body: Bytes) -> Result<(), Failure> {
        self.0.put(&Path::from(key), body.into()).await?;
        Ok(())
    }

    async fn get(&self, key: String, into: &mut [u8]) -> Result<(), Failure> {
        let mut body = self.0.get(&Path::from(key)).await?.into_stream();
        let mut at = 0;
        while let Some(chunk) = body.try_next().await? {
            fill(into, &mut at, &chunk)?;
        }
        filled(into, at)
    }

    async fn head(&self, key: String) -> Result<(), Failure> {
        self.0.head(&Path::from(key)).await?;
        Ok(())
    }

    async fn remove(&self, key: String) -> Result<(), Failure> {
        self.0.delete(&Path::from(key)).await?;
        Ok(())
    }
}
