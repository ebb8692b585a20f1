//! Credentials, kept as long as they are good.

use crate::trouble::{Kind, Trouble, no_credentials};
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, Result, SharedCredentialsProvider, future};
use aws_sdk_s3::Client;
use aws_smithy_runtime_api::client::identity::Identity;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// How long before they expire others are asked for.
const MARGIN: Duration = Duration::from_secs(10);

/// How long they are kept that do not say when they expire: who can change a file or a variable has changed it then.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// How long it may take to have them. Who hands them out is not the service: waiting for it says nothing of that.
const WAIT: Duration = Duration::from_secs(10);

/// The credentials of one source.
#[derive(Debug)]
pub(crate) struct Keys {
    source: SharedCredentialsProvider,
    held: RwLock<Option<Held>>,
    /// Held by the one that asks; the others wait for what it hears.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Held {
    identity: Identity,
    until: SystemTime,
}

impl Keys {
    pub(crate) fn new(source: impl ProvideCredentials + 'static) -> Self {
        let source = SharedCredentialsProvider::new(source);
        Self { source, held: RwLock::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Those that are good now.
    pub(crate) async fn get(&self) -> std::result::Result<Identity, CredentialsError> {
        if let Some(identity) = self.held() {
            return Ok(identity);
        }
        let _asking = self.asking.lock().await;
        if let Some(identity) = self.held() {
            return Ok(identity);
        }
        let keys = self.source.provide_credentials().await?;
        let until = match keys.expiry() {
            Some(expiry) => expiry.checked_sub(MARGIN).unwrap_or(expiry),
            None => SystemTime::now() + KEPT,
        };
        let identity = Identity::from(keys);
        *self.held.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Held { identity: identity.clone(), until });
        Ok(identity)
    }

    /// The same for a request, which does not wait for them for ever.
    pub(crate) async fn in_time(&self) -> std::result::Result<Identity, Trouble> {
        match tokio::time::timeout(WAIT, self.get()).await {
            Ok(had) => had.map_err(|error| no_credentials(&error)),
            Err(_) => {
                let why = format!("the credentials could not be had in {WAIT:?}");
                Err(Trouble::new(Kind::Unsigned, why)
                    .fix("say which with credentials, or set access_key and secret_key"))
            }
        }
    }

    /// The next who asks is given others.
    pub(crate) fn forget(&self) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn held(&self) -> Option<Identity> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let held = held.as_ref().filter(|held| SystemTime::now() < held.until)?;
        Some(held.identity.clone())
    }
}

impl ProvideCredentials for Keys {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let identity = self.get().await?;
            let keys = identity.data::<Credentials>().cloned();
            keys.ok_or_else(|| CredentialsError::unhandled("the identity has no keys"))
        })
    }
}

/// The keys of a session with a directory bucket (S3 Express One Zone), which takes no others:
/// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-express-create-session.html>.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) bucket: String,
}

impl Session {
    async fn begin(&self) -> Result {
        let begun = self.client.create_session().bucket(&self.bucket).send().await;
        let begun = begun.map_err(CredentialsError::provider_error)?;
        let keys = begun.credentials.ok_or_else(|| CredentialsError::unhandled("a session without keys"))?;
        let expiry = SystemTime::try_from(keys.expiration).ok();
        let token = Some(keys.session_token);
        Ok(Credentials::new(keys.access_key_id, keys.secret_access_key, token, expiry, "session"))
    }
}

impl ProvideCredentials for Session {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.begin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Gives numbered keys that are good for so long.
    #[derive(Clone, Debug)]
    struct Numbered {
        asked: Arc<AtomicU32>,
        good_for: Option<Duration>,
    }

    impl ProvideCredentials for Numbered {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                tokio::task::yield_now().await;
                let number = self.asked.fetch_add(1, Ordering::Relaxed).to_string();
                let expiry = self.good_for.map(|good_for| SystemTime::now() + good_for);
                Ok(Credentials::new(number, "secret", None, expiry, "test"))
            })
        }
    }

    fn keys(good_for: Option<Duration>) -> (Keys, Arc<AtomicU32>) {
        let asked = Arc::<AtomicU32>::default();
        (Keys::new(Numbered { asked: Arc::clone(&asked), good_for }), asked)
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
    }

    #[test]
    fn keys_are_asked_for_once_by_all_who_want_them_and_again_when_forgotten() {
        run(async {
            for good_for in [None, Some(2 * MARGIN)] {
                let (keys, asked) = keys(good_for);
                let all = futures_util::future::join_all((0..8).map(|_| keys.provide_credentials())).await;
                assert!(all.iter().all(|given| given.as_ref().unwrap().access_key_id() == "0"));
                keys.forget();
                assert_eq!(keys.provide_credentials().await.unwrap().access_key_id(), "1");
                assert_eq!(asked.load(Ordering::Relaxed), 2);
            }
        });
    }

    #[test]
    fn keys_that_are_about_to_expire_are_not_kept() {
        run(async {
            let (keys, _) = keys(Some(MARGIN / 2));
            for number in ["0", "1", "2"] {
                assert_eq!(keys.provide_credentials().await.unwrap().access_key_id(), number);
            }
        });
    }
}
