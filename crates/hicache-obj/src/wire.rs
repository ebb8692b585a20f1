//! Requests of one object, signed and sent here.
//!
//! Not through the SDK's operations: to put one together costs 0.1 ms of CPU, as much as a tenth of a page of 1 MiB;
//! nor over its connections, which copy what comes once more. Where the bucket is and who signs for it is still the
//! SDK's to say, once.

use crate::connection::Head;
use crate::connections::{self, Connections, Line};
use crate::dial::Dialer;
use crate::facts::{Facts, Flaw, HEADER};
use crate::keys::{Keys, Session};
use crate::options::ObjOptions;
use crate::progress::Progress;
use crate::trouble::{self, Kind, Trouble, parse_date};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::endpoint::{DefaultResolver, Endpoint, Params, ResolveEndpoint};
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4;
use aws_smithy_runtime_api::client::identity::Identity;
use bytes::Buf;
use futures_util::FutureExt as _;
use hicache_core::{Error, ErrorKind, Result};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of an answer's document that are read; S3's have less than a thousand.
const DOCUMENT_LEN_MAX: usize = 64 * 1024;

/// What stands in a URL as it is, by the rules of signature version 4.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// The header in which a session with a directory bucket has its token.
const SESSION_TOKEN: &str = "x-amz-s3session-token";

const USER_AGENT: &str = concat!("hicache/", env!("CARGO_PKG_VERSION"));

/// The way to the objects of a bucket.
#[derive(Debug)]
pub(crate) struct Wire {
    connections: Arc<Connections>,
    /// `None`: requests are not signed.
    keys: Option<Arc<Keys>>,
    /// The URL of the bucket, without a slash at its end.
    base: String,
    host: HeaderValue,
    /// A proxy is sent the requests, which name the server, then; and who uses it.
    forwarded: Option<Option<HeaderValue>>,
    scheme: Scheme,
    /// Seconds that the service's clock is ahead of this one, once it has complained.
    ahead: AtomicI64,
}

/// What a signature is for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scheme {
    region: String,
    service: String,
    /// With keys of a session.
    session: bool,
}

/// A request before it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    method: Method,
    name: &'a str,
    /// Encoded, with its question mark; or empty.
    query: String,
    headers: Vec<(&'static str, Cow<'a, str>)>,
}

/// What a request waits for before it is sent.
#[derive(Debug)]
pub(crate) struct Turn {
    connection: connections::Turn,
    /// Who signs it.
    identity: Option<Identity>,
}

/// A success.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: HeaderMap,
    /// It came before all of the request was sent: whoever gave it had not seen it all.
    pub(crate) early: bool,
    /// What is still to come.
    pub(crate) body: Line,
    /// What has come, where a body was sent.
    pub(crate) document: String,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(method: Method, name: &'a str) -> Self {
        Self { method, name, query: String::new(), headers: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn maybe_header(self, name: &'static str, value: Option<impl Into<Cow<'a, str>>>) -> Self {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        self.query.push_str(name);
        self.query.push('=');
        self.query.extend(utf8_percent_encode(value, QUERY));
        self
    }
}

impl Wire {
    /// The way to `bucket` as `client` would take it.
    pub(crate) fn new(
        client: &Client,
        dialer: Dialer,
        keys: Option<Arc<Keys>>,
        bucket: &str,
        place: Params,
        options: &ObjOptions,
    ) -> Result<Self> {
        let unresolved = |why: &dyn std::fmt::Display| {
            Error::new(ErrorKind::InvalidConfig, "open store")
                .why(format!("the bucket has no address: {why}"))
                .with("bucket", bucket)
                .fix("check endpoint, region and addressing")
        };
        let resolved = DefaultResolver::new().resolve_endpoint(&place).now_or_never();
        let endpoint = match resolved {
            Some(Ok(endpoint)) => endpoint,
            Some(Err(error)) => return Err(unresolved(&error)),
            None => return Err(unresolved(&"it is still asked for")),
        };
        let region = client.config().region().map_or_else(String::new, ToString::to_string);
        let scheme = Scheme::of(&endpoint, region);
        let keys = match keys {
            Some(_) if scheme.session => {
                let (client, bucket) = (client.clone(), bucket.to_string());
                Some(Arc::new(Keys::new(Session { client, bucket })))
            }
            keys => keys,
        };
        let base = endpoint.url().trim_end_matches('/').to_string();
        let url: Uri = base.parse().map_err(|error| unresolved(&error))?;
        let host = HeaderValue::from_str(&host(&url)).map_err(|error| unresolved(&error))?;
        let forwarded = dialer.forwards(&url);
        let (most, idle_timeout) = (options.concurrency.get() as usize, options.idle_timeout);
        let connections = Arc::new(Connections::new(dialer, url, most, idle_timeout));
        Ok(Self { connections, keys, base, host, forwarded, scheme, ahead: AtomicI64::new(0) })
    }

    /// Waits for credentials, and then for a turn: there are no more requests at once than the store's `concurrency`.
    /// Neither says anything of the service.
    pub(crate) async fn turn(&self) -> std::result::Result<Turn, Trouble> {
        let identity = match &self.keys {
            Some(keys) => Some(keys.in_time().await?),
            None => None,
        };
        Ok(Turn { connection: Arc::clone(&self.connections).turn().await, identity })
    }

    /// The proxy on the way to the service, without who uses it.
    pub(crate) fn proxy(&self) -> Option<String> {
        self.connections.proxy()
    }

    /// Closes the connections that nobody uses.
    pub(crate) fn hang_up(&self) {
        self.connections.hang_up();
    }

    /// Asks for other keys than those that were refused.
    pub(crate) fn forget_keys(&self) {
        if let Some(keys) = &self.keys {
            keys.forget();
        }
    }

    /// Sends a request with nothing in it.
    pub(crate) async fn ask(
        &self,
        turn: Turn,
        draft: Draft<'_>,
        progress: &Progress,
    ) -> std::result::Result<Answer, Trouble> {
        self.send(turn, draft, SignableBody::Bytes(&[]), &mut &[][..], progress).await
    }

    /// Sends a request with a body, which is not read for the signature. The answer is read to its end; what remains of
    /// the body it did not wait for.
    pub(crate) async fn give(
        &self,
        turn: Turn,
        draft: Draft<'_>,
        body: &mut impl Buf,
        progress: &Progress,
    ) -> std::result::Result<Answer, Trouble> {
        let signed_at = self.now();
        let mut answer = self.send(turn, draft, SignableBody::UnsignedPayload, body, progress).await?;
        let document =
            document(&mut answer.body, progress).await.map_err(|why| Trouble::new(Kind::Outage, why))?;
        if trouble::is_error(&document) {
            return Err(Trouble::of_response(answer.status, &answer.fields, document, signed_at));
        }
        Ok(Answer { document, ..answer })
    }

    async fn send(
        &self,
        turn: Turn,
        draft: Draft<'_>,
        signed: SignableBody<'_>,
        body: &mut impl Buf,
        progress: &Progress,
    ) -> std::result::Result<Answer, Trouble> {
        let now = self.now();
        let request = self.sign(&draft, turn.identity.as_ref(), signed, now)?;
        let mut line = turn.connection.line().await.map_err(|error| Trouble::of_connection(&*error))?;
        progress.moved();
        let bodiless = draft.method == Method::HEAD;
        let exchange = line.connection().exchange(&self.head(&request), body, bodiless, progress).await;
        let Head { status, fields, early } = exchange.map_err(|error| {
            let mut trouble = Trouble::of_connection(&error);
            trouble.told.was_closed = line.was_used() && is_end(error.kind());
            trouble
        })?;
        if (200..300).contains(&status) {
            return Ok(Answer { status, fields, early, body: line, document: String::new() });
        }
        let trouble = match document(&mut line, progress).await {
            Ok(document) => Trouble::of_response(status, &fields, document, now),
            Err(why) => Trouble::new(Kind::Outage, why).with_status(status),
        };
        self.learn_time(&trouble);
        Err(trouble)
    }

    /// The request's head, as it is sent.
    fn head(&self, request: &http::Request<()>) -> Vec<u8> {
        let uri = request.uri();
        let mut head = Vec::with_capacity(1024);
        let mut add = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
        let target = match &self.forwarded {
            Some(_) => uri.to_string(),
            None => uri.path_and_query().map_or("/", |target| target.as_str()).to_string(),
        };
        add(&[request.method().as_str().as_bytes(), b" ", target.as_bytes(), b" HTTP/1.1\r\n"]);
        add(&[b"host: ", self.host.as_bytes(), b"\r\n"]);
        for (name, value) in request.headers().iter().filter(|(name, _)| *name != HOST) {
            add(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
        if let Some(Some(user)) = &self.forwarded {
            add(&[b"proxy-authorization: ", user.as_bytes(), b"\r\n"]);
        }
        add(&[b"\r\n"]);
        head
    }

    fn sign(
        &self,
        draft: &Draft<'_>,
        identity: Option<&Identity>,
        body: SignableBody<'_>,
        now: SystemTime,
    ) -> std::result::Result<http::Request<()>, Trouble> {
        let name = utf8_percent_encode(draft.name, PATH);
        let url = format!("{}/{name}{}", self.base, draft.query);
        let mut request = http::Request::builder().method(draft.method.clone()).uri(&url);
        request = request.header(http::header::USER_AGENT, USER_AGENT);
        for (name, value) in &draft.headers {
            request = request.header(*name, value.as_ref());
        }
        let mut request = request.body(()).map_err(|error| unfit(&error))?;
        let Some(identity) = identity else { return Ok(request) };
        let headers = draft.headers.iter().map(|(name, value)| (*name, value.as_ref()));
        let signable = SignableRequest::new(draft.method.as_str(), &url, headers, body);
        let mut settings = SigningSettings::default();
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.session_token_name_override = self.scheme.session.then_some(SESSION_TOKEN);
        let parameters = v4::SigningParams::builder()
            .identity(identity)
            .region(&self.scheme.region)
            .name(&self.scheme.service)
            .time(now)
            .settings(settings)
            .build()
            .map_err(|error| unfit(&error))?
            .into();
        let signed =
            signable.and_then(|signable| sign(signable, &parameters)).map_err(|error| unfit(&error))?;
        signed.into_parts().0.apply_to_request_http1x(&mut request);
        Ok(request)
    }

    /// The time by the service's clock, as far as it is known.
    fn now(&self) -> SystemTime {
        let (now, ahead) = (SystemTime::now(), self.ahead.load(Ordering::Relaxed));
        let by = std::time::Duration::from_secs(ahead.unsigned_abs());
        let moved = if ahead < 0 { now.checked_sub(by) } else { now.checked_add(by) };
        moved.unwrap_or(now)
    }

    /// A service that finds a request too old or too new says what time it is.
    fn learn_time(&self, trouble: &Trouble) {
        if let (Kind::Skewed, Some(theirs)) = (&trouble.kind, trouble.told.server_time) {
            let seconds = |time: SystemTime| {
                let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
            };
            self.ahead.store(seconds(theirs) - seconds(SystemTime::now()), Ordering::Relaxed);
        }
    }
}

impl Scheme {
    /// As the SDK's rules have it: <https://docs.aws.amazon.com/sdkref/latest/guide/feature-endpoints.html>.
    fn of(endpoint: &Endpoint, region: String) -> Self {
        let plain = Self { region, service: "s3".to_string(), session: false };
        let Some(scheme) = endpoint.auth_schemes().first() else { return plain };
        let text = |name| scheme.get(name).and_then(|value| value.as_string()).map(str::to_string);
        Self {
            region: text("signingRegion").unwrap_or(plain.region),
            service: text("signingName").unwrap_or(plain.service),
            session: scheme.name() == "sigv4-s3express",
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }

    /// Bytes that are to come; of a part, of the part.
    pub(crate) fn len(&self) -> Option<u64> {
        self.header("content-length")?.parse().ok()
    }

    /// The object's generation.
    pub(crate) fn tag(&self) -> Option<&str> {
        self.header("etag").filter(|tag| !tag.is_empty())
    }

    /// Which part it is, and of how much; `None` where it is all.
    pub(crate) fn range(&self) -> Option<&str> {
        self.header("content-range")
    }

    /// What the object says of itself.
    pub(crate) fn facts(&self) -> Option<std::result::Result<Facts, Flaw>> {
        Facts::of_header(self.header(HEADER))
    }

    /// When it was stored, by the service's clock.
    pub(crate) fn stored_at(&self) -> Option<SystemTime> {
        parse_date(self.header("last-modified")?)
    }
}

/// What came, as text; or why it did not. To its end, so that the connection is free again.
async fn document(body: &mut Line, progress: &Progress) -> std::result::Result<String, String> {
    let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
    loop {
        let read = body.read(&mut bytes).await;
        match read.map_err(|error| format!("the answer broke off: {}", trouble::chain(&error)))? {
            len if len > 0 && text.len() < DOCUMENT_LEN_MAX => {
                text.extend_from_slice(&bytes[..len]);
                progress.moved();
            }
            _ => return Ok(String::from_utf8_lossy(&text).into_owned()),
        }
    }
}

/// Whether that is how a connection ends that the other side has closed.
fn is_end(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error, BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// As a request names it: without the port that is meant anyway.
fn host(url: &Uri) -> String {
    let host = url.host().unwrap_or_default();
    match (url.scheme_str(), url.port_u16()) {
        (_, None) | (Some("http"), Some(80)) | (Some("https"), Some(443)) => host.to_string(),
        (_, Some(port)) => format!("{host}:{port}"),
    }
}

/// A request that cannot be one: options hold something that no header takes.
fn unfit(error: &(dyn std::error::Error + 'static)) -> Trouble {
    let why = format!("the request cannot be made: {}", trouble::chain(error));
    Trouble::new(Kind::Refused(ErrorKind::InvalidConfig), why)
}
