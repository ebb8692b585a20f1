//! What came back instead of an answer, and what kind of trouble that is.

use crate::facts::Flaw;
use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_s3::error::SdkError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use hicache_core::{ErrorKind, without_users};
use http::HeaderMap;
use rustix::io::Errno;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io::ErrorKind::NotFound;
use std::time::{Duration, SystemTime};

/// How far a request's time may be from the service's, by S3's rule.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);

/// Longer than any deadline, and short enough to be added to a time.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// What the SDK says of a source that has no credentials.
const NOT_ENABLED: &str = "the credential provider was not enabled";

/// What makes a service answer.
const UNREACHED: &str = "check that the service runs, and endpoint: host, port, http or https";

/// What it is, to whoever must decide what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is no such object.
    Absent,
    /// The condition does not hold: it is there already, or has changed.
    Condition,
    /// It may not be done; reading, it may be a miss.
    Forbidden,
    /// Too many requests.
    Throttled,
    /// No answer, or one that says that the service failed.
    Outage,
    /// Nothing moved for too long.
    Stalled,
    /// Credentials have expired.
    Expired,
    /// Credentials cannot be had at the moment.
    Unsigned,
    /// The request's time is too far from the service's.
    Skewed,
    /// The bucket is in another region.
    Region(String),
    /// The service does not know a header that was optional: the service's checksum, or the condition.
    Unknown(&'static str),
    /// Asking again would change nothing.
    Refused(ErrorKind),
    /// The object is not the page.
    Flaw(Flaw),
    /// The deadline passed.
    Late,
    /// The service is not asked at the moment.
    NotAsked,
}

/// Trouble, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) why: String,
    pub(crate) told: Box<Told>,
}

/// What else is known of trouble.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) fix: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) code: Option<String>,
    pub(crate) request_id: Option<String>,
    /// The answer is one of S3: it has S3's error document, or its name of the request.
    pub(crate) is_of_s3: bool,
    /// When to ask again, as the service wishes.
    pub(crate) retry_after: Option<Duration>,
    /// The service's clock.
    pub(crate) server_time: Option<SystemTime>,
    /// A connection that was used before had been closed: another one is there at once.
    pub(crate) was_closed: bool,
    /// This process has no descriptor left.
    pub(crate) no_descriptors: bool,
    /// An attempt before this one may have done what was asked, and its answer was lost.
    pub(crate) after_lost_answer: bool,
}

impl Trouble {
    pub(crate) fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), told: Box::default() }
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.told.fix = Some(fix.into());
        self
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.told.status = Some(status);
        self
    }

    /// The object is not the page.
    pub(crate) fn flaw(flaw: Flaw) -> Self {
        let why = flaw.to_string();
        Self::new(Kind::Flaw(flaw), why)
    }

    /// What an operation of the SDK ended in.
    pub(crate) fn of<E>(error: SdkError<E, HttpResponse>) -> Self
    where
        E: StdError + Send + Sync + 'static,
    {
        match &error {
            // A success that is not what an answer to that is.
            SdkError::ServiceError(service)
                if service.raw().status().is_success() && !says_error(service.raw()) =>
            {
                let status = service.raw().status().as_u16();
                Self::new(Kind::Outage, format!("the answer cannot be read: {}", chain(&error)))
                    .with_status(status)
            }
            SdkError::ServiceError(service) => {
                let response = service.raw();
                let body = response.body().bytes().map(String::from_utf8_lossy).unwrap_or_default();
                let signed_at = SystemTime::now();
                let fields = response.headers().iter();
                let fields =
                    fields.filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?)));
                let status = response.status().as_u16();
                Self::of_response(status, &fields.collect(), body.into_owned(), signed_at)
            }
            SdkError::ResponseError(response) => {
                let status = response.raw().status().as_u16();
                let why = format!("the answer cannot be read: {}", chain(&error));
                Self::new(Kind::Outage, why).with_status(status)
            }
            SdkError::ConstructionFailure(_) => Self::unanswered(&error, true),
            SdkError::DispatchFailure(failure) => Self::unanswered(&error, failure.is_user()),
            _ => Self::unanswered(&error, false),
        }
    }

    /// An answer that is no success, with its document; the request said that it was made at `signed_at`.
    pub(crate) fn of_response(
        status: u16,
        fields: &HeaderMap,
        document: String,
        signed_at: SystemTime,
    ) -> Self {
        let header = |name: &str| Some(fields.get(name)?.to_str().ok()?.to_string());
        let answer = Answer {
            status,
            code: element(&document, "Code"),
            message: element(&document, "Message"),
            date: header("date").as_deref().and_then(parse_date),
            region: header("x-amz-bucket-region"),
            retry_after: header("retry-after"),
            request_id: header("x-amz-request-id").or_else(|| element(&document, "RequestId")),
            body: Some(document),
            signed_at,
        };
        answer.trouble()
    }

    /// What became of a request that no answer came to.
    pub(crate) fn of_connection(error: &(dyn StdError + 'static)) -> Self {
        Self::unanswered(error, false)
    }

    /// What one item of a request for many ended in, by its code.
    pub(crate) fn of_item(code: Option<&str>, message: Option<&str>) -> Self {
        let status = match code {
            Some("NoSuchKey" | "NoSuchVersion") => 404,
            Some("AccessDenied") => 403,
            Some("MethodNotAllowed") => 405,
            Some("InternalError") | None => 500,
            Some(_) => 400,
        };
        let answer = Answer {
            status,
            code: code.map(str::to_string),
            message: message.map(str::to_string),
            body: None,
            region: None,
            date: None,
            retry_after: None,
            request_id: None,
            signed_at: SystemTime::now(),
        };
        answer.trouble()
    }

    /// No request was answered; `is_ours`: none could be made.
    fn unanswered(error: &(dyn StdError + 'static), is_ours: bool) -> Self {
        let why = chain(error);
        if let Some(of_credentials) = find::<CredentialsError>(error) {
            return no_credentials(of_credentials);
        }
        if why.contains("invalid peer certificate") {
            return Self::new(Kind::Refused(ErrorKind::InvalidConfig), why).fix(
                "set ca_bundle to the certificate of the authority (PEM), and name the host as its certificate does",
            );
        }
        if is_ours {
            return Self::new(Kind::Refused(ErrorKind::InvalidConfig), why);
        }
        let code = find::<std::io::Error>(error).and_then(std::io::Error::raw_os_error);
        if matches!(code.map(Errno::from_raw_os_error), Some(Errno::MFILE | Errno::NFILE)) {
            let mut trouble = Self::new(Kind::Outage, why).fix("raise ulimit -n, or lower concurrency");
            trouble.told.no_descriptors = true;
            return trouble;
        }
        Self::new(Kind::Outage, why).fix(UNREACHED)
    }

    /// Whether what was asked may be done all the same: there was no answer, or one that tells only that it failed.
    pub(crate) fn may_be_done(&self) -> bool {
        // It says of these that it has not begun.
        let refused = matches!(self.told.status, Some(400 | 408 | 409 | 503));
        matches!(self.kind, Kind::Outage | Kind::Stalled) && !refused
    }

    /// Whether that is all that was said: `HEAD` is told no more of a region, a token or a name that is not right.
    pub(crate) fn is_bare(&self, status: u16) -> bool {
        self.told.status == Some(status) && self.told.code.is_none()
    }

    /// Whether the service gave an answer, whatever it says.
    pub(crate) fn is_answer(&self) -> bool {
        !matches!(self.kind, Kind::Outage | Kind::Stalled | Kind::Unsigned | Kind::Late | Kind::NotAsked)
    }
}

/// Something else answers than S3: a miss of its own would say nothing of pages.
pub(crate) fn stranger(status: u16, why: &str) -> Trouble {
    let why = format!("this does not answer as S3 does: {why} (status {status})");
    let fix = "check endpoint: host and port, and that no other server or proxy answers there";
    let told = Told { fix: Some(fix.to_string()), status: Some(status), ..Told::default() };
    Trouble { told: Box::new(told), ..Trouble::new(Kind::Refused(ErrorKind::InvalidConfig), why) }
}

/// Credentials that cannot be had.
pub(crate) fn no_credentials(error: &CredentialsError) -> Trouble {
    let fix = "set access_key and secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, or \
               credentials=profile or anonymous";
    match error {
        CredentialsError::CredentialsNotLoaded(_) => {
            // It is said of each source, and once of all.
            let why = chain(error).replace(&format!("{NOT_ENABLED}: "), "").replace(NOT_ENABLED, "none");
            let why = format!("there are no credentials: {why}");
            Trouble::new(Kind::Refused(ErrorKind::InvalidConfig), why).fix(fix)
        }
        CredentialsError::InvalidConfiguration(_) => {
            let why = format!("the credentials are misconfigured: {}", chain(error));
            Trouble::new(Kind::Refused(ErrorKind::InvalidConfig), why).fix(fix)
        }
        _ if find::<std::io::Error>(error).is_some_and(|of_file| of_file.kind() == NotFound) => {
            let why = format!("a file that credentials are read from is not there: {}", chain(error));
            Trouble::new(Kind::Refused(ErrorKind::InvalidConfig), why)
                .fix("check AWS_WEB_IDENTITY_TOKEN_FILE, and the files that the profile names")
        }
        _ => Trouble::new(Kind::Unsigned, format!("the credentials could not be had: {}", chain(error))),
    }
}

/// An answer that is no success.
struct Answer {
    status: u16,
    code: Option<String>,
    message: Option<String>,
    body: Option<String>,
    region: Option<String>,
    date: Option<SystemTime>,
    retry_after: Option<String>,
    request_id: Option<String>,
    /// The time that the request was signed for.
    signed_at: SystemTime,
}

impl Answer {
    fn trouble(self) -> Trouble {
        let kind = self.kind();
        let mut why = match (&self.code, &self.message) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => format!("the service answered {}", self.status),
        };
        why.truncate(why.floor_char_boundary(300));
        let told = Told {
            is_of_s3: self.is_of_s3(),
            fix: fix(&kind, self.status, self.code.as_deref()).map(str::to_string),
            status: Some(self.status),
            retry_after: self.retry_after.as_deref().and_then(parse_retry_after),
            server_time: self.date,
            code: self.code,
            request_id: self.request_id,
            ..Told::default()
        };
        Trouble { told: Box::new(told), ..Trouble::new(kind, why) }
    }

    /// The code is read from the document: to an answer without one the SDK gives a code of its own.
    fn is_of_s3(&self) -> bool {
        let has_code = |document: &String| element(document, "Code").is_some();
        self.request_id.is_some() || self.body.as_ref().is_some_and(has_code)
    }

    fn kind(&self) -> Kind {
        let code = self.code.as_deref().unwrap_or("");
        if let Some(region) = self.other_region(code) {
            return region;
        }
        match (self.status, code) {
            (_, "NoSuchBucket" | "InvalidBucketName" | "AllAccessDisabled") => {
                Kind::Refused(ErrorKind::InvalidConfig)
            }
            (_, "NoSuchUpload") => Kind::Absent,
            (_, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired") => Kind::Expired,
            (_, "RequestTimeTooSkewed") => Kind::Skewed,
            (
                _,
                "SlowDown"
                | "Throttling"
                | "ThrottlingException"
                | "ThrottledException"
                | "RequestLimitExceeded"
                | "TooManyRequests"
                | "TooManyRequestsException"
                | "BandwidthLimitExceeded"
                | "RequestThrottled",
            )
            | (429, _) => Kind::Throttled,
            (_, "InternalError" | "ServiceUnavailable" | "RequestTimeout" | "RequestTimeoutException") => {
                Kind::Outage
            }
            (_, "EntityTooLarge") | (413, _) => Kind::Refused(ErrorKind::TooLarge),
            (_, "QuotaExceeded" | "XMinioStorageFull" | "InsufficientStorage") | (507, _) => {
                Kind::Refused(ErrorKind::NoSpace)
            }
            (412, _) => Kind::Condition,
            // Two conditional writes of one object at once: one of them is asked to come again.
            (409, _) => Kind::Outage,
            (404, _) => Kind::Absent,
            (401 | 407, _) => Kind::Refused(ErrorKind::PermissionDenied),
            (
                400 | 403,
                "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "AccountProblem",
            ) => Kind::Refused(ErrorKind::PermissionDenied),
            // A HEAD is not told why.
            (403, "") if self.clocks_differ() => Kind::Skewed,
            (403, _) => Kind::Forbidden,
            (400 | 501, _) if self.speaks_of(&["checksum", "aws-chunked", "x-amz-trailer", "x-amz-sdk"]) => {
                Kind::Unknown("checksum")
            }
            (400 | 501, _) if self.speaks_of(&["if-none-match", "conditional"]) => Kind::Unknown("condition"),
            (501, _) => Kind::Unknown(""),
            (408 | 500 | 502..=504 | 509 | 520..=530, _) => Kind::Outage,
            (405, _) => Kind::Refused(ErrorKind::Unsupported),
            // An error inside a success: keep-alive spaces, then the truth.
            (200..=299, _) => Kind::Outage,
            _ => Kind::Refused(ErrorKind::Io),
        }
    }

    /// The region where the bucket is, if that is what the answer says.
    fn other_region(&self, code: &str) -> Option<Kind> {
        let moved = matches!(self.status, 301 | 302 | 307 | 308)
            || matches!(
                code,
                "PermanentRedirect"
                    | "TemporaryRedirect"
                    | "AuthorizationHeaderMalformed"
                    | "IllegalLocationConstraintException"
                    | "IncorrectEndpoint"
            )
            || (self.status == 400 && self.code.is_none() && self.region.is_some());
        if !moved {
            return None;
        }
        let of_body = || element(self.body.as_deref()?, "Region");
        let region = self.region.clone().or_else(of_body).unwrap_or_default();
        Some(Kind::Region(region))
    }

    /// By more than any service lets pass.
    fn clocks_differ(&self) -> bool {
        let Some(theirs) = self.date else { return false };
        let ours = self.signed_at;
        let apart = theirs.duration_since(ours).or_else(|_| ours.duration_since(theirs));
        apart.is_ok_and(|apart| apart > SKEW_MAX)
    }

    fn speaks_of(&self, words: &[&str]) -> bool {
        let parts = [&self.code, &self.message, &self.body];
        let said = parts.iter().filter_map(|part| part.as_deref()).map(str::to_ascii_lowercase);
        said.into_iter().any(|text| words.iter().any(|word| text.contains(word)))
    }
}

fn fix(kind: &Kind, status: u16, code: Option<&str>) -> Option<&'static str> {
    Some(match (kind, code) {
        _ if status == 407 => "name user and password in the proxy's URL: http://user:password@host:port",
        (_, Some("NoSuchBucket")) => "make the bucket, or name another; see endpoint, region and path_style",
        (_, Some("SignatureDoesNotMatch")) => "check secret_key; a proxy that changes headers does this, too",
        (_, Some("InvalidAccessKeyId")) => "check access_key, and that the endpoint is the one it belongs to",
        (Kind::Forbidden, _) => {
            "allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket there; without s3:ListBucket what is \
             not there is refused, too: then set forbidden_is_miss=true"
        }
        (Kind::Expired, Some(_)) => "renew the credentials",
        (Kind::Skewed, _) => "set this machine's clock",
        (Kind::Refused(ErrorKind::NoSpace), _) => "free space there, or raise the quota",
        (Kind::Unknown("checksum"), _) => "set checksum_mode=off",
        _ => return None,
    })
}

/// Whether the document of a success says that there was none: services that answer before they are done do so.
pub(crate) fn is_error(document: &str) -> bool {
    document.contains("<Error>") && element(document, "Code").is_some()
}

/// Whether an answer to the SDK has the document of an error.
fn says_error(response: &HttpResponse) -> bool {
    response.body().bytes().is_some_and(|body| is_error(&String::from_utf8_lossy(body)))
}

/// The text of the first element of that name.
fn element(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let plain =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#34;", "\""), ("&apos;", "'"), ("&#39;", "'")];
    let text = plain.iter().fold(text.to_string(), |text, (coded, plain)| text.replace(coded, plain));
    Some(text.replace("&amp;", "&"))
}

/// Seconds, or a date.
fn parse_retry_after(text: &str) -> Option<Duration> {
    let wait = match text.trim().parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => parse_date(text.trim())?.duration_since(SystemTime::now()).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

pub(crate) fn parse_date(text: &str) -> Option<SystemTime> {
    let format = aws_smithy_types::date_time::Format::HttpDate;
    let date = aws_smithy_types::DateTime::from_str(text, format).ok()?;
    SystemTime::try_from(date).ok()
}

/// The error and what it came from, each said once.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = one_line(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = one_line(error);
        if !text.ends_with(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    // The SDK quotes variables of the environment as they are.
    let mut text = without_users(&text).into_owned();
    text.truncate(text.floor_char_boundary(400));
    text
}

/// The SDK's list of sources of credentials has several.
fn one_line(error: &(dyn StdError + 'static)) -> String {
    let text = error.to_string();
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ").replace(":; ", ": ")
}

fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
