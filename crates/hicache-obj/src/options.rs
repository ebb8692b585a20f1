//! Options of an S3 store, and how they are read.

use crate::place::Endpoint;
use hicache_core::{
    CommonOptions, Error, ErrorKind, OptionSpec, Result, StoreOptions, parse_bool, parse_count,
    parse_duration, parse_path, parse_size,
};
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// How a bucket is named in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// In the path where an endpoint is given or the bucket's name has a dot, else in the host's name.
    #[default]
    Auto,
    /// `https://host/bucket/key`.
    Path,
    /// `https://bucket.host/key`.
    VirtualHost,
}

/// Who asks.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// The environment, the profile files, the container's service; and, where no endpoint is given, the instance's.
    /// An endpoint of one's own is not AWS, and its machine may have no metadata service: asking it would cost seconds.
    #[default]
    Auto,
    /// These.
    Static {
        /// The access key's name.
        access_key: String,
        /// The secret.
        secret_key: String,
        /// The token of temporary credentials.
        session_token: Option<String>,
    },
    /// `AWS_ACCESS_KEY_ID` and its like.
    Environment,
    /// A profile of the files `~/.aws/config` and `~/.aws/credentials`; `None`: the one that `AWS_PROFILE` names.
    Profile(Option<String>),
    /// The service that a container's environment names.
    Container,
    /// The metadata service of the instance.
    Instance,
    /// Nobody: requests are not signed.
    Anonymous,
}

/// Which way to the endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// As `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say, but straight to this host itself.
    #[default]
    Auto,
    /// Straight.
    Off,
    /// Through this one.
    Url(String),
}

/// Whether the service is given a checksum of its own to check an upload by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumMode {
    /// CRC-64/NVME to AWS, none where an endpoint is given; none, too, once it was refused, which is told.
    #[default]
    Auto,
    /// None: the page's own checksum, in its tail, is what protects it.
    Off,
    /// The header `x-amz-checksum-crc64nvme`.
    Crc64Nvme,
}

/// Encryption by the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// With the service's key (`AES256`).
    Service,
    /// With a key of AWS KMS; `None`: the account's default.
    Kms(Option<String>),
}

/// Options of an S3 store.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjOptions {
    /// Where the service is; `None`: AWS, in `region`.
    pub endpoint: Option<Endpoint>,
    /// Where the bucket is; `None`: `us-east-1` where an endpoint is given, which most services of one's own take.
    pub region: Option<String>,
    /// How the bucket is named in a request.
    pub addressing: Addressing,
    /// Who asks.
    pub credentials: Credentials,
    /// Certificates (PEM) to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
    /// Which way to the endpoint.
    pub proxy: Proxy,
    /// Pages get a checksum, and pages without one are not trusted.
    pub checksum: bool,
    /// Whether the service is given one, too.
    pub checksum_mode: ChecksumMode,
    /// Encryption by the service.
    pub encryption: Option<Encryption>,
    /// The storage class of pages; `None`: the bucket's default.
    pub storage_class: Option<String>,
    /// Requests under way at once, and so connections.
    pub concurrency: NonZeroU32,
    /// Threads of the store's runtime; `None`: one a core, at most 4.
    pub threads: Option<NonZeroU32>,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a request may stand still: no byte sent, none received.
    pub read_timeout: Duration,
    /// How long a connection is kept unused. S3 closes them after some 20 s.
    pub idle_timeout: Duration,
    /// How often a request is sent again.
    pub retries: u32,
    /// Pages longer than this, in bytes, move in parts.
    pub multipart_threshold: u64,
    /// Bytes of such a part.
    pub part_len: u64,
    /// How long it is believed that a page is there.
    pub exists_ttl: Duration,
    /// A refusal (403) to read is a miss: without the right to list, S3 refuses what is not there.
    pub forbidden_is_miss: bool,
    /// What all stores have.
    pub common: CommonOptions,
}

impl Default for ObjOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            addressing: Addressing::default(),
            credentials: Credentials::default(),
            ca_bundle: None,
            proxy: Proxy::default(),
            checksum: true,
            checksum_mode: ChecksumMode::default(),
            encryption: None,
            storage_class: None,
            concurrency: NonZeroU32::new(32).expect("not 0"),
            threads: None,
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(15),
            retries: 8,
            multipart_threshold: 64 << 20,
            part_len: 16 << 20,
            exists_ttl: Duration::from_secs(60),
            forbidden_is_miss: false,
            common: CommonOptions::default(),
        }
    }
}

/// Without secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("Auto"),
            Self::Static { access_key, .. } => write!(f, "Static({access_key}, ***)"),
            Self::Environment => f.write_str("Environment"),
            Self::Profile(name) => write!(f, "Profile({name:?})"),
            Self::Container => f.write_str("Container"),
            Self::Instance => f.write_str("Instance"),
            Self::Anonymous => f.write_str("Anonymous"),
        }
    }
}

/// Without secrets.
impl fmt::Debug for ObjOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjOptions")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("addressing", &self.addressing)
            .field("credentials", &self.credentials)
            .field("checksum_mode", &self.checksum_mode)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

const ENDPOINT: OptionSpec = OptionSpec {
    aliases: &["endpoint_override"],
    ..OptionSpec::new(
        "endpoint",
        "URL",
        "AWS, in the region",
        "where the service is: http://host:port or https://host",
    )
};
const REGION: OptionSpec = OptionSpec::new(
    "region",
    "name",
    "none; us-east-1 with an endpoint",
    "the region that requests are signed for",
);
const PATH_STYLE: OptionSpec = OptionSpec::new(
    "path_style",
    "auto, or bool",
    "auto",
    "name the bucket in the path, not in the host; auto: with an endpoint, or a dot in the name",
);
const VIRTUAL: OptionSpec = OptionSpec::new(
    "use_virtual_addressing",
    "bool",
    "not set",
    "the opposite of path_style, as SGLang's connector calls it",
);
const CREDENTIALS: OptionSpec = OptionSpec {
    guarded: true,
    ..OptionSpec::new(
        "credentials",
        "auto, static, env, profile, profile:NAME, container, instance, anonymous",
        "auto",
        "who asks; auto: the static ones if set, else environment, profile, container, and on AWS the instance",
    )
};
const ACCESS_KEY: OptionSpec = OptionSpec {
    guarded: true,
    ..OptionSpec::new("access_key", "text", "none", "static credentials: the key's name")
};
const SECRET_KEY: OptionSpec = OptionSpec {
    aliases: &["secrete_key"],
    secret: true,
    ..OptionSpec::new("secret_key", "text", "none", "static credentials: the secret")
};
const SESSION_TOKEN: OptionSpec = OptionSpec {
    secret: true,
    ..OptionSpec::new("session_token", "text", "none", "static credentials: the token of temporary ones")
};
const CA_BUNDLE: OptionSpec =
    OptionSpec::new("ca_bundle", "path", "none", "certificates (PEM) to trust besides the system's");
const PROXY: OptionSpec = OptionSpec {
    secret: true,
    ..OptionSpec::new(
        "proxy",
        "auto, off, or URL",
        "auto",
        "which way to go; auto: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, but straight to this host",
    )
};
const CHECKSUM: OptionSpec =
    OptionSpec::new("checksum", "bool", "true", "write checksums, and trust no page without one");
const CHECKSUM_MODE: OptionSpec = OptionSpec {
    aliases: &["req_checksum"],
    ..OptionSpec::new(
        "checksum_mode",
        "auto, off, crc64nvme (required, supported)",
        "auto",
        "a checksum for the service to check; auto: on AWS only, and off where it is refused",
    )
};
const SSE: OptionSpec = OptionSpec {
    guarded: true,
    ..OptionSpec::new("sse", "AES256, aws:kms, aws:kms:KEY", "the bucket's", "encryption by the service")
};
const STORAGE_CLASS: OptionSpec =
    OptionSpec::new("storage_class", "name", "the bucket's", "storage class of pages");
const CONCURRENCY: OptionSpec =
    OptionSpec::new("concurrency", "number", "32", "requests under way at once, and connections kept");
const THREADS: OptionSpec = OptionSpec {
    aliases: &["num_threads"],
    ..OptionSpec::new("threads", "number", "1 a core, at most 4", "threads of the store's own runtime")
};
const CONNECT_TIMEOUT: OptionSpec =
    OptionSpec::new("connect_timeout", "duration", "3s", "how long a connection may take to be made");
const READ_TIMEOUT: OptionSpec = OptionSpec::new(
    "read_timeout",
    "duration",
    "10s",
    "how long a request may stand still: no byte sent or received",
);
const IDLE_TIMEOUT: OptionSpec =
    OptionSpec::new("idle_timeout", "duration", "15s", "how long a connection is kept unused");
const RETRIES: OptionSpec = OptionSpec::new(
    "retries",
    "number, 0 for none",
    "8",
    "how often a request is sent again, within the deadline",
);
const MULTIPART_THRESHOLD: OptionSpec =
    OptionSpec::new("multipart_threshold", "size", "64MiB", "pages longer than this move in parts");
const PART_SIZE: OptionSpec =
    OptionSpec::new("part_size", "size, 5MiB to 5GiB", "16MiB", "bytes of such a part");
const EXISTS_TTL: OptionSpec = OptionSpec::new(
    "exists_ttl",
    "duration, 0s for never",
    "60s",
    "how long it is believed that a page is there",
);
const FORBIDDEN_IS_MISS: OptionSpec = OptionSpec::new(
    "forbidden_is_miss",
    "bool",
    "false",
    "a refusal to read is a miss: without the right to list, S3 refuses what is not there",
);

/// The options that a URL, a file or the environment can set, besides the common ones.
pub const OPTIONS: &[OptionSpec] = &[
    ENDPOINT,
    REGION,
    PATH_STYLE,
    VIRTUAL,
    CREDENTIALS,
    ACCESS_KEY,
    SECRET_KEY,
    SESSION_TOKEN,
    CA_BUNDLE,
    PROXY,
    CHECKSUM,
    CHECKSUM_MODE,
    SSE,
    STORAGE_CLASS,
    CONCURRENCY,
    THREADS,
    CONNECT_TIMEOUT,
    READ_TIMEOUT,
    IDLE_TIMEOUT,
    RETRIES,
    MULTIPART_THRESHOLD,
    PART_SIZE,
    EXISTS_TTL,
    FORBIDDEN_IS_MISS,
];

/// Most requests at once, and most threads.
const CONCURRENCY_MAX: u32 = 1024;

/// Least and most bytes of a part that S3 takes.
const PART_LEN: std::ops::RangeInclusive<u64> = 5 << 20..=5 << 30;

impl ObjOptions {
    /// Reads them out of what the sources say.
    ///
    /// # Errors
    ///
    /// [`InvalidConfig`](ErrorKind::InvalidConfig) naming the option, its value and its source; also for an option
    /// that this store does not have, and for half a pair of credentials.
    pub fn from_options(mut options: StoreOptions) -> Result<Self> {
        let default = Self::default();
        let parsed = Self {
            endpoint: options.take(&ENDPOINT, Endpoint::parse)?,
            region: options.take(&REGION, parse_region)?,
            addressing: take_addressing(&mut options)?,
            credentials: take_credentials(&mut options)?,
            ca_bundle: options.take(&CA_BUNDLE, parse_path)?,
            proxy: options.take(&PROXY, parse_proxy)?.unwrap_or_default(),
            checksum: options.take(&CHECKSUM, parse_bool)?.unwrap_or(default.checksum),
            checksum_mode: options.take(&CHECKSUM_MODE, parse_checksum_mode)?.unwrap_or_default(),
            encryption: options.take(&SSE, parse_encryption)?,
            storage_class: options.take(&STORAGE_CLASS, parse_word)?,
            concurrency: options.take(&CONCURRENCY, parse_few)?.unwrap_or(default.concurrency),
            threads: options.take(&THREADS, parse_few)?,
            connect_timeout: options.take(&CONNECT_TIMEOUT, parse_wait)?.unwrap_or(default.connect_timeout),
            read_timeout: options.take(&READ_TIMEOUT, parse_wait)?.unwrap_or(default.read_timeout),
            idle_timeout: options.take(&IDLE_TIMEOUT, parse_wait)?.unwrap_or(default.idle_timeout),
            retries: options.take(&RETRIES, parse_retries)?.unwrap_or(default.retries),
            multipart_threshold: options
                .take(&MULTIPART_THRESHOLD, parse_size)?
                .unwrap_or(default.multipart_threshold),
            part_len: options.take(&PART_SIZE, parse_part)?.unwrap_or(default.part_len),
            exists_ttl: options.take(&EXISTS_TTL, parse_duration)?.unwrap_or(default.exists_ttl),
            forbidden_is_miss: options
                .take(&FORBIDDEN_IS_MISS, parse_bool)?
                .unwrap_or(default.forbidden_is_miss),
            common: CommonOptions::take(&mut options)?,
        };
        options.finish(&[OPTIONS])?;
        Ok(parsed)
    }

    /// Whether requests go to a service that is named, rather than to AWS by its region.
    pub(crate) fn is_custom(&self) -> bool {
        self.endpoint.is_some()
    }
}

fn take_addressing(options: &mut StoreOptions) -> Result<Addressing> {
    let style = |path: bool| if path { Addressing::Path } else { Addressing::VirtualHost };
    let path = options.take(&PATH_STYLE, |text| match text {
        "auto" => Ok(Addressing::Auto),
        _ => parse_bool(text).map(style).map_err(|why| format!("{why}, or auto")),
    })?;
    let virtual_host = options.take(&VIRTUAL, |text| parse_bool(text).map(|on| style(!on)))?;
    match (path, virtual_host) {
        (Some(one), Some(other)) if one != other => Err(Error::new(ErrorKind::InvalidConfig, "read options")
            .why("path_style and use_virtual_addressing say different things")
            .fix("leave one of them")),
        (one, other) => Ok(one.or(other).unwrap_or_default()),
    }
}

fn take_credentials(options: &mut StoreOptions) -> Result<Credentials> {
    let asked = options.take(&CREDENTIALS, |text| match text.split_once(':').unwrap_or((text, "")) {
        ("auto", "") => Ok(None),
        ("static", "") => Ok(Some(None)),
        ("static", _) => Err("the keys are options of their own: access_key and secret_key".to_string()),
        ("env", "") => Ok(Some(Some(Credentials::Environment))),
        ("profile", "") => Ok(Some(Some(Credentials::Profile(None)))),
        ("profile", name) => Ok(Some(Some(Credentials::Profile(Some(name.to_string()))))),
        ("container", "") => Ok(Some(Some(Credentials::Container))),
        ("instance", "") => Ok(Some(Some(Credentials::Instance))),
        ("anonymous", "") => Ok(Some(Some(Credentials::Anonymous))),
        _ => {
            Err("want auto, static, env, profile, profile:NAME, container, instance or anonymous".to_string())
        }
    })?;
    let access_key = options.take(&ACCESS_KEY, parse_word)?;
    let secret_key = options.take(&SECRET_KEY, parse_word)?;
    let session_token = options.take(&SESSION_TOKEN, parse_word)?;
    let invalid = |why: &str| {
        Err(Error::new(ErrorKind::InvalidConfig, "read options")
            .why(why)
            .fix("set access_key and secret_key, both or neither"))
    };
    let asked = asked.flatten();
    match (access_key, secret_key) {
        (Some(access_key), Some(secret_key)) => match asked {
            None | Some(None) => Ok(Credentials::Static { access_key, secret_key, session_token }),
            Some(Some(_)) => invalid("there are static credentials, and credentials names others"),
        },
        (Some(_), None) => invalid("there is an access_key without its secret_key"),
        (None, Some(_)) => invalid("there is a secret_key without its access_key"),
        (None, None) if session_token.is_some() => invalid("there is a session_token without its keys"),
        (None, None) => match asked {
            None => Ok(Credentials::Auto),
            Some(None) => invalid("credentials=static, and there are none"),
            Some(Some(credentials)) => Ok(credentials),
        },
    }
}

/// A name of a region goes into a host's name.
pub(crate) fn parse_region(text: &str) -> std::result::Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() > 63 || !text.chars().all(plain) {
        return Err("a region is letters, digits and dashes, as in eu-central-1".to_string());
    }
    Ok(text.to_string())
}

fn parse_word(text: &str) -> std::result::Result<String, String> {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("it is empty, or has spaces".to_string());
    }
    Ok(text.to_string())
}

fn parse_proxy(text: &str) -> std::result::Result<Proxy, String> {
    match text {
        "auto" => Ok(Proxy::Auto),
        "off" => Ok(Proxy::Off),
        _ if text.starts_with("http://") || text.starts_with("https://") => Ok(Proxy::Url(text.to_string())),
        _ => Err("want auto, off, or http://host:port".to_string()),
    }
}

fn parse_checksum_mode(text: &str) -> std::result::Result<ChecksumMode, String> {
    match text {
        "auto" => Ok(ChecksumMode::Auto),
        // The names of the SDKs: only where an operation requires one, or wherever one is supported.
        "off" | "required" => Ok(ChecksumMode::Off),
        "crc64nvme" | "supported" => Ok(ChecksumMode::Crc64Nvme),
        _ => Err("want auto, off or crc64nvme".to_string()),
    }
}

fn parse_encryption(text: &str) -> std::result::Result<Encryption, String> {
    match text {
        "AES256" => Ok(Encryption::Service),
        "aws:kms" => Ok(Encryption::Kms(None)),
        _ => match text.strip_prefix("aws:kms:") {
            Some(key) => parse_word(key).map(|key| Encryption::Kms(Some(key))),
            None => Err("want AES256, aws:kms or aws:kms:KEY".to_string()),
        },
    }
}

fn parse_few(text: &str) -> std::result::Result<NonZeroU32, String> {
    match parse_count(text) {
        Ok(count) if count.get() > CONCURRENCY_MAX => Err(format!("at most {CONCURRENCY_MAX}")),
        parsed => parsed,
    }
}

fn parse_wait(text: &str) -> std::result::Result<Duration, String> {
    parse_duration(text).and_then(|wait| if wait.is_zero() { Err("it is 0".to_string()) } else { Ok(wait) })
}

fn parse_retries(text: &str) -> std::result::Result<u32, String> {
    match text.parse() {
        Ok(retries) if retries > CONCURRENCY_MAX => Err(format!("at most {CONCURRENCY_MAX}")),
        Ok(retries) => Ok(retries),
        Err(_) => Err("want a whole number, 0 for none".to_string()),
    }
}

fn parse_part(text: &str) -> std::result::Result<u64, String> {
    parse_size(text).and_then(|len| {
        if PART_LEN.contains(&len) { Ok(len) } else { Err("S3 takes parts of 5 MiB to 5 GiB".to_string()) }
    })
}
