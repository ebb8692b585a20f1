//! Signature version 4, checked without any code of the client's: the canonical request is built anew from what came
//! over the wire, by S3's rules.

use super::clock;
use super::wire::{Reply, Request, percent_decode};
use sha2::{Digest, Sha256};

const MOST_SKEW_SECONDS: i64 = 15 * 60;

/// One pair of keys, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) id: String,
    pub(crate) secret: String,
    /// Wanted in `x-amz-security-token`.
    pub(crate) token: Option<String>,
    /// Known, but past its time.
    pub(crate) expired: bool,
}

impl Access {
    pub(crate) fn new(id: &str, secret: &str) -> Self {
        Self { id: id.to_owned(), secret: secret.to_owned(), token: None, expired: false }
    }
}

/// Judges the signature of a request whose body was read. An empty list of keys lets everybody in.
pub(super) fn check(request: &Request, keys: &[Access], region: &str, now: i64) -> Result<(), Reply> {
    if keys.is_empty() {
        return Ok(());
    }
    let denied = |code: &str| Reply::error(403, code);
    let authorization = request.header("authorization").ok_or_else(|| denied("AccessDenied"))?;
    let signed =
        Signed::parse(authorization).ok_or_else(|| Reply::error(400, "AuthorizationHeaderMalformed"))?;
    let access =
        keys.iter().find(|access| access.id == signed.id).ok_or_else(|| denied("InvalidAccessKeyId"))?;
    if signed.region != region {
        let body = format!(
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>The region '{}' is wrong; expecting \
             '{region}'</Message><Region>{region}</Region></Error>",
            signed.region
        );
        return Err(Reply::new(400).with("content-type", "application/xml").holding(body));
    }
    if access.expired || access.token.as_deref() != request.header("x-amz-security-token") {
        return Err(Reply::error(400, if access.expired { "ExpiredToken" } else { "InvalidToken" }));
    }
    let date = request.header("x-amz-date").unwrap_or_default();
    let time = clock::parse_amz_date(date).ok_or_else(|| denied("AccessDenied"))?;
    if (time - now).abs() > MOST_SKEW_SECONDS {
        return Err(denied("RequestTimeTooSkewed"));
    }
    let hash =
        request.header("x-amz-content-sha256").ok_or_else(|| Reply::error(400, "MissingSecurityHeader"))?;
    if hash.len() == 64 && hash != hex(&Sha256::digest(&request.body)) {
        return Err(Reply::error(400, "XAmzContentSHA256Mismatch"));
    }
    let wanted = signature(request, &signed, &access.secret, date, hash);
    if signed.signature == wanted { Ok(()) } else { Err(denied("SignatureDoesNotMatch")) }
}

/// The parts of an `Authorization` header.
#[derive(Debug)]
struct Signed {
    id: String,
    day: String,
    region: String,
    service: String,
    headers: Vec<String>,
    signature: String,
}

impl Signed {
    fn parse(header: &str) -> Option<Self> {
        let parts = header.strip_prefix("AWS4-HMAC-SHA256 ")?;
        let part = |name: &str| {
            parts
                .split(',')
                .find_map(|part| Some(part.trim().strip_prefix(name)?.strip_prefix('=')?.to_owned()))
        };
        let credential = part("Credential")?;
        let mut scope = credential.rsplitn(5, '/').map(str::to_owned);
        let (last, service, region, day, id) =
            (scope.next()?, scope.next()?, scope.next()?, scope.next()?, scope.next()?);
        (last == "aws4_request").then_some(())?;
        let headers = part("SignedHeaders")?.split(';').map(str::to_owned).collect();
        Some(Self { id, day, region, service, headers, signature: part("Signature")? })
    }
}

fn signature(request: &Request, signed: &Signed, secret: &str, date: &str, hash: &str) -> String {
    let mut canonical =
        format!("{}\n{}\n{}\n", request.method, canonical_path(request), canonical_query(request));
    for name in &signed.headers {
        let values: Vec<String> = request
            .headers
            .iter()
            .filter(|(held, _)| held == name)
            .map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        canonical.push_str(&format!("{name}:{}\n", values.join(",")));
    }
    canonical.push_str(&format!("\n{}\n{hash}", signed.headers.join(";")));
    let scope = format!("{}/{}/{}/aws4_request", signed.day, signed.region, signed.service);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let mut key = hmac(format!("AWS4{secret}").as_bytes(), signed.day.as_bytes());
    for part in [&signed.region, &signed.service, "aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    hex(&hmac(&key, text.as_bytes()))
}

/// S3 encodes each part of the path once, whatever the client did on the wire.
fn canonical_path(request: &Request) -> String {
    request.path.split('/').map(|part| uri_encode(&percent_decode(part))).collect::<Vec<_>>().join("/")
}

fn canonical_query(request: &Request) -> String {
    let mut pairs: Vec<(String, String)> = request
        .query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (uri_encode(&percent_decode(name)), uri_encode(&percent_decode(value))))
        .collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// AWS's `UriEncode`, slashes included.
pub(crate) fn uri_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut pad = [0; 64];
    if key.len() > pad.len() {
        pad[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        pad[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(pad.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(pad.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
