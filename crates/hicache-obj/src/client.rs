//! The ways to the service: connections, TLS, credentials and addressing, as the options say.

use crate::dial::{Dialer, goes_straight};
use crate::keys::Keys;
use crate::options::{Credentials, ObjOptions, Proxy};
use crate::place::{Endpoint, Place, is_host_name, is_path_style};
use crate::wire::Wire;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::Credentials as Pair;
use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_s3::config::endpoint::Params;
use aws_sdk_s3::config::{
    BehaviorVersion, IdentityCache, Region, RequestChecksumCalculation, ResponseChecksumValidation,
    SharedCredentialsProvider, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_sdk_s3::{Client, Config};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_http_client::pool::{self, ConnectionPool};
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::shared::IntoShared;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use hicache_core::{Error, ErrorKind, Result};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// The region that services of one's own take where none is named.
const REGION: &str = "us-east-1";

/// Bytes of a file of certificates at most: all that there are in public come to less than 1 MiB.
const CERTIFICATES_LEN_MAX: u64 = 16 << 20;

/// The ways to a bucket: the SDK's for what is asked of all of it, and the short one for single objects.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub(crate) client: Client,
    pub(crate) wire: Arc<Wire>,
    /// Who signs; `None`: nobody.
    pub(crate) keys: Option<Arc<Keys>>,
    http: SharedHttpClient,
    dialer: Dialer,
}

impl Reach {
    /// What is retried, and until when, is decided in `tries.rs`; the SDK is to try once. Its checksums would frame the
    /// body in chunks; the store's own is in the page's tail, and where the service is given one it is computed
    /// beforehand.
    pub(crate) fn new(place: &Place, options: &ObjOptions) -> Result<Self> {
        let trust = match &options.ca_bundle {
            Some(path) => Some(read_certificates(path)?),
            None => None,
        };
        let http = http_client(options, trust.as_deref())?;
        let dialer = Dialer::new(options, roots(options, trust.as_deref()));
        let dialer = dialer.map_err(|error| invalid("TLS cannot be set up").because(error))?;
        let region = match (&options.region, &options.endpoint) {
            (Some(region), _) => region.as_str(),
            (None, Some(_)) => REGION,
            (None, None) => {
                return Err(invalid("the bucket's region is not known").fix("set region, or an endpoint"));
            }
        };
        let (path_style, _) = is_path_style(options, &place.bucket);
        if !path_style && !is_host_name(&place.bucket) {
            return Err(invalid(
                "the bucket's name is no host name, and virtual-host addressing is asked for",
            )
            .with("bucket", &place.bucket)
            .fix("set path_style=true"));
        }
        check_environment(options)?;
        let keys = credentials(options, http.clone(), region).map(|source| Arc::new(Keys::new(source)));
        Self::in_region(place, options, (http, dialer), keys, region)
    }

    /// The same with requests signed for another region.
    pub(crate) fn moved(&self, place: &Place, options: &ObjOptions, region: &str) -> Result<Self> {
        let ways = (self.http.clone(), self.dialer.clone());
        Self::in_region(place, options, ways, self.keys.clone(), region)
    }

    pub(crate) fn is_signed_for(&self, region: &str) -> bool {
        self.client.config().region().is_some_and(|held| held.as_ref() == region)
    }

    fn in_region(
        place: &Place,
        options: &ObjOptions,
        (http, dialer): (SharedHttpClient, Dialer),
        keys: Option<Arc<Keys>>,
        region: &str,
    ) -> Result<Self> {
        let (path_style, _) = is_path_style(options, &place.bucket);
        let mut config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(region.to_string()))
            .force_path_style(path_style)
            .http_client(http.clone())
            .sleep_impl(TokioSleep::new())
            .retry_config(RetryConfig::disabled())
            .timeout_config(TimeoutConfig::builder().connect_timeout(options.connect_timeout).build())
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
            .disable_s3_express_session_auth(options.is_custom());
        // The SDK sets the bucket's name right behind the path.
        let endpoint = options.endpoint.as_ref().map(|endpoint| format!("{}/", endpoint.url()));
        config.set_endpoint_url(endpoint.clone());
        config = match &keys {
            Some(keys) => {
                config.set_credentials_provider(Some(SharedCredentialsProvider::from(
                    Arc::clone(keys) as Arc<dyn ProvideCredentials>
                )));
                config.identity_cache(IdentityCache::no_cache())
            }
            None => config.allow_no_auth(),
        };
        let client = Client::from_conf(config.build());
        let address = Params::builder()
            .bucket(&place.bucket)
            .region(region)
            .set_endpoint(endpoint)
            .force_path_style(path_style)
            .disable_s3_express_session_auth(options.is_custom())
            .build()
            .map_err(|error| invalid("the bucket has no address").because(error))?;
        let wire = Wire::new(&client, dialer.clone(), keys.clone(), &place.bucket, address, options)?;
        Ok(Self { client, wire: Arc::new(wire), keys, http, dialer })
    }
}

/// What the SDK sends its requests over.
fn http_client(options: &ObjOptions, trusted: Option<&[u8]>) -> Result<SharedHttpClient> {
    let builder = ConnectionPool::builder()
        .idle_timeout(options.idle_timeout)
        // Unbounded, it makes a new connection wherever one that is about to be free is not free yet.
        .max_connections_per_host(options.concurrency.get() as usize)
        .tcp_nodelay(true)
        .sleep_impl(TokioSleep::new())
        .proxy_config(proxy(options)?);
    let built = if needs_tls(options) {
        let trust = trusted.into_iter().fold(TrustStore::default(), TrustStore::with_pem_certificate);
        let context = TlsContext::builder().with_trust_store(trust).build();
        let context = context.map_err(|error| invalid("TLS cannot be set up").because(error))?;
        builder.tls_provider(Provider::Rustls(CryptoMode::Ring)).tls_context(context).build_https()
    } else {
        builder.build_http()
    };
    let pool = built.map_err(|error| invalid("the HTTP client cannot be set up").because(error))?;
    let client = pool::Client::new(&pool);
    let client = client.map_err(|error| invalid("the HTTP client cannot be set up").because(error))?;
    Ok(client.into_shared())
}

/// Whether anything on the way may have to be believed by its certificate.
fn needs_tls(options: &ObjOptions) -> bool {
    let secure_proxy = matches!(&options.proxy, Proxy::Url(url) if url.starts_with("https:"));
    options.endpoint.as_ref().is_none_or(Endpoint::is_secure) || options.ca_bundle.is_some() || secure_proxy
}

/// The authorities that are believed: the machine's, and who is named beside them.
fn roots(options: &ObjOptions, trusted: Option<&[u8]>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if needs_tls(options) {
        let found = rustls_native_certs::load_native_certs();
        if !found.errors.is_empty() {
            tracing::warn!(errors = ?found.errors, "some of the machine's certificates cannot be read");
        }
        roots.add_parsable_certificates(found.certs);
        let named = trusted.into_iter().flat_map(CertificateDer::pem_slice_iter);
        roots.add_parsable_certificates(named.filter_map(std::result::Result::ok));
    }
    roots
}

fn read_certificates(path: &Path) -> Result<Vec<u8>> {
    let unusable = |why: String| invalid(why).with("ca_bundle", path.display());
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(CERTIFICATES_LEN_MAX).read_to_end(&mut bytes))
        .map_err(|error| unusable("the file of certificates cannot be read".to_string()).because(error))?;
    if bytes.len() as u64 == CERTIFICATES_LEN_MAX {
        return Err(unusable("the file is too long to be one of certificates".to_string()));
    }
    // The SDK panics at what it cannot use.
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()));
        added.map_err(|why| unusable(format!("a certificate in it cannot be used: {why}")))?;
    }
    if roots.is_empty() {
        return Err(unusable("the file holds no certificate in PEM".to_string()));
    }
    Ok(bytes)
}

fn proxy(options: &ObjOptions) -> Result<ProxyConfig> {
    match &options.proxy {
        _ if goes_straight(options) => Ok(ProxyConfig::disabled()),
        Proxy::Url(url) => ProxyConfig::all(url.as_str())
            .map_err(|_| invalid("the proxy's URL cannot be used").fix("write proxy=http://host:port")),
        _ => Ok(ProxyConfig::from_env()),
    }
}

/// Half a pair in the environment is a mistake, and not a reason to look elsewhere.
fn check_environment(options: &ObjOptions) -> Result<()> {
    if !matches!(options.credentials, Credentials::Auto | Credentials::Environment) {
        return Ok(());
    }
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let secret = is_set("AWS_SECRET_ACCESS_KEY") || is_set("SECRET_ACCESS_KEY");
    let (there, missing) = match (is_set("AWS_ACCESS_KEY_ID"), secret) {
        (true, false) => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        (false, true) => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        _ => return Ok(()),
    };
    Err(invalid(format!("{there} is set and {missing} is not")).fix("set both or neither"))
}

/// Who signs; `None`: nobody.
fn credentials(
    options: &ObjOptions,
    http: SharedHttpClient,
    region: &str,
) -> Option<SharedCredentialsProvider> {
    // The services that hand out credentials are asked over the same HTTP client.
    let config = ProviderConfig::empty()
        .with_http_client(http)
        .with_sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .with_time_source(aws_smithy_async::time::SystemTimeSource::new())
        .with_behavior_version(Some(BehaviorVersion::latest()))
        .with_region(Some(Region::new(region.to_string())));
    let container = || EcsCredentialsProvider::builder().configure(&config).build();
    let instance = || ImdsCredentialsProvider::builder().configure(&config).build();
    let profile = |name: Option<&String>| {
        let builder = ProfileFileCredentialsProvider::builder().configure(&config);
        match name {
            Some(name) => builder.profile_name(name).build(),
            None => builder.build(),
        }
    };
    let environment = EnvironmentVariableCredentialsProvider::new;
    Some(match &options.credentials {
        Credentials::Anonymous => return None,
        Credentials::Static { access_key, secret_key, session_token } => SharedCredentialsProvider::new(
            Pair::new(access_key, secret_key, session_token.clone(), None, "hicache"),
        ),
        Credentials::Environment => SharedCredentialsProvider::new(environment()),
        Credentials::Profile(name) => SharedCredentialsProvider::new(profile(name.as_ref())),
        Credentials::Container => SharedCredentialsProvider::new(container()),
        Credentials::Instance => SharedCredentialsProvider::new(instance()),
        Credentials::Auto => {
            let web = WebIdentityTokenCredentialsProvider::builder().configure(&config).build();
            let chain = CredentialsProviderChain::first_try("environment", environment())
                .or_else("profile", profile(None))
                .or_else("web identity", web)
                .or_else("container", container());
            SharedCredentialsProvider::new(if options.is_custom() {
                chain
            } else {
                chain.or_else("instance", instance())
            })
        }
    })
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidConfig, "open store").why(why)
}
