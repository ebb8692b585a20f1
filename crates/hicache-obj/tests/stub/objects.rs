//! Buckets in memory: what an S3 server keeps, and how it answers when nothing goes wrong.

use super::clock;
use super::sigv4::uri_encode;
use super::wire::{Reply, Request};
use super::xml;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the server does with a body in `aws-chunked` framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Takes the framing off.
    #[default]
    Decoded,
    /// Knows nothing of it and keeps the framing as if it were data.
    KeptAsData,
}

/// What lies under one key.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) body: Arc<Vec<u8>>,
    /// With its quotes, if it has any; an empty one is not sent.
    pub(crate) etag: String,
    /// Headers of the put that every get gives back.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) modified: i64,
}

impl Object {
    pub(crate) fn new(body: Vec<u8>) -> Self {
        let etag = format!("\"{:032x}\"", fingerprint(&body));
        Self { body: Arc::new(body), etag, headers: Vec::new(), modified: clock::now(0) }
    }
}

#[derive(Clone, Debug)]
struct Upload {
    bucket: String,
    key: String,
    headers: Vec<(String, String)>,
    parts: BTreeMap<u32, Object>,
    begun: i64,
}

/// All buckets of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buckets {
    buckets: BTreeMap<String, BTreeMap<String, Object>>,
    uploads: BTreeMap<String, Upload>,
    begun: usize,
    pub(crate) framing: Framing,
    /// Knows nothing of `If-Match` and `If-None-Match`.
    pub(crate) ignores_conditions: bool,
    /// Keys of one page of a listing where the client asks for more or for nothing.
    pub(crate) most_listed: usize,
}

const KEPT_HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "x-amz-meta-",
    "x-amz-checksum-",
    "x-amz-storage-class",
    "x-amz-server-side-encryption",
];

impl Buckets {
    pub(crate) fn named(names: &[&str]) -> Self {
        let buckets = names.iter().map(|&name| (name.to_owned(), BTreeMap::new())).collect();
        Self { buckets, most_listed: 1000, ..Self::default() }
    }

    /// The keys of a bucket, in order.
    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        self.buckets.get(bucket).map(|objects| objects.keys().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn get(&self, bucket: &str, key: &str) -> Option<&Object> {
        self.buckets.get(bucket)?.get(key)
    }

    pub(crate) fn get_mut(&mut self, bucket: &str, key: &str) -> Option<&mut Object> {
        self.buckets.get_mut(bucket)?.get_mut(key)
    }

    /// As another client would, or a lifecycle rule.
    pub(crate) fn insert(&mut self, bucket: &str, key: &str, object: Object) {
        self.buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), object);
    }

    pub(crate) fn remove(&mut self, bucket: &str, key: &str) -> Option<Object> {
        self.buckets.get_mut(bucket)?.remove(key)
    }

    /// Multipart uploads that were neither completed nor aborted.
    pub(crate) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }

    /// An upload in parts that its writer left behind so many seconds ago.
    pub(crate) fn leave_upload(&mut self, bucket: &str, key: &str, seconds: i64) {
        self.begun += 1;
        let (bucket, key, begun) = (bucket.to_owned(), key.to_owned(), clock::now(0) - seconds);
        let upload = Upload { bucket, key, headers: Vec::new(), parts: BTreeMap::new(), begun };
        self.uploads.insert(format!("upload-{}", self.begun), upload);
    }

    /// Forgets the last part of every open upload, as a server that "completes" without it would.
    pub(crate) fn lose_last_parts(&mut self) {
        self.uploads.values_mut().for_each(|upload| drop(upload.parts.pop_last()));
    }

    pub(super) fn answer(&mut self, request: &Request) -> Reply {
        if !self.buckets.contains_key(&request.bucket) {
            return Reply::error(404, "NoSuchBucket");
        }
        let upload = request.query_value("uploadId");
        match (request.method.as_str(), request.key.is_empty(), upload) {
            ("GET", true, _) if request.query_value("location").is_some() => Reply::new(200)
                .with("content-type", "application/xml")
                .holding("<LocationConstraint></LocationConstraint>"),
            ("GET", true, _) if request.query_value("uploads").is_some() => self.list_uploads(request),
            ("GET", true, _) => self.list(request),
            ("HEAD", true, _) => Reply::new(200),
            ("POST", true, _) if request.query_value("delete").is_some() => self.delete_many(request),
            ("POST", false, None) if request.query_value("uploads").is_some() => self.begin(request),
            ("POST", false, Some(id)) => self.complete(request, &id),
            ("PUT", false, Some(id)) => self.part(request, &id),
            ("DELETE", false, Some(id)) => match self.uploads.remove(&id) {
                Some(_) => Reply::new(204),
                None => Reply::error(404, "NoSuchUpload"),
            },
            ("PUT", false, None) => self.put(request),
            ("GET" | "HEAD", false, None) => self.read(request),
            ("DELETE", false, None) => self.delete(request),
            _ => Reply::error(405, "MethodNotAllowed"),
        }
    }

    fn objects(&mut self, bucket: &str) -> &mut BTreeMap<String, Object> {
        self.buckets.get_mut(bucket).expect("looked up before")
    }

    /// `If-Match` and `If-None-Match` of a write.
    fn refuses(&self, request: &Request) -> bool {
        if self.ignores_conditions {
            return false;
        }
        let held = self.get(&request.bucket, &request.key);
        let matching = |wanted: &str| held.is_some_and(|object| wanted == "*" || wanted == object.etag);
        request.header("if-none-match").is_some_and(matching)
            || request.header("if-match").is_some_and(|wanted| !matching(wanted))
    }

    fn put(&mut self, request: &Request) -> Reply {
        if self.refuses(request) {
            return Reply::error(412, "PreconditionFailed");
        }
        let Some(object) = received(request, self.framing) else {
            return Reply::error(400, "IncompleteBody");
        };
        let reply = Reply::new(200).with("etag", object.etag.clone());
        self.objects(&request.bucket).insert(request.key.clone(), object);
        reply
    }

    fn read(&self, request: &Request) -> Reply {
        let Some(object) = self.get(&request.bucket, &request.key) else {
            return Reply::error(404, "NoSuchKey");
        };
        let heeded = |name| request.header(name).filter(|_| !self.ignores_conditions);
        if heeded("if-match").is_some_and(|wanted| wanted != "*" && wanted != object.etag) {
            return Reply::error(412, "PreconditionFailed");
        }
        if heeded("if-none-match").is_some_and(|wanted| wanted == "*" || wanted == object.etag) {
            return Reply::new(304).with("etag", object.etag.clone());
        }
        let mut reply = match request.header("range") {
            None => Reply::new(200).holding(object.body.to_vec()),
            Some(range) => match part_of(&object.body, range) {
                Some(reply) => reply,
                None => return Reply::error(416, "InvalidRange"),
            },
        };
        reply.set("last-modified", clock::http_date(object.modified));
        reply.set("accept-ranges", "bytes");
        if !object.etag.is_empty() {
            reply.set("etag", object.etag.clone());
        }
        let checked = request.header("x-amz-checksum-mode").is_some();
        for (name, value) in &object.headers {
            if checked || !name.starts_with("x-amz-checksum-") {
                reply.set(name, value.clone());
            }
        }
        reply
    }

    fn delete(&mut self, request: &Request) -> Reply {
        if request.header("if-match").is_some() && self.refuses(request) {
            return Reply::error(412, "PreconditionFailed");
        }
        self.objects(&request.bucket).remove(&request.key);
        Reply::new(204)
    }

    fn delete_many(&mut self, request: &Request) -> Reply {
        let quiet = xml::texts(&text(request), "Quiet").first().is_some_and(|quiet| quiet == "true");
        let mut deleted = String::new();
        for key in xml::texts(&text(request), "Key") {
            self.objects(&request.bucket).remove(&key);
            if !quiet {
                deleted.push_str(&format!("<Deleted><Key>{}</Key></Deleted>", xml::escape(&key)));
            }
        }
        document("DeleteResult", &deleted)
    }

    fn list(&self, request: &Request) -> Reply {
        let value = |name| request.query_value(name).unwrap_or_default();
        let (prefix, delimiter) = (value("prefix"), value("delimiter"));
        let after = if value("continuation-token").is_empty() {
            value("start-after")
        } else {
            value("continuation-token")
        };
        let most = value("max-keys").parse().unwrap_or(self.most_listed).min(self.most_listed);
        let encoded = value("encoding-type") == "url";
        // S3 leaves slashes as they are in a listing that is encoded.
        let shown = |key: &str| if encoded { uri_encode(key).replace("%2F", "/") } else { xml::escape(key) };
        let (mut contents, mut folders, mut last) = (String::new(), Vec::new(), String::new());
        let (mut count, mut truncated) = (0, false);
        for (key, object) in &self.buckets[&request.bucket] {
            if !key.starts_with(&prefix) || *key <= after {
                continue;
            }
            let folder = folder_of(key, &prefix, &delimiter);
            let is_new =
                folder.as_ref().is_none_or(|folder| folders.last() != Some(folder) && *folder > after);
            if is_new && count == most {
                truncated = true;
                break;
            }
            last.clone_from(key);
            match folder {
                Some(folder) if is_new => folders.push(folder),
                Some(_) => continue,
                None => contents.push_str(&format!(
                    "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size>\
                     <StorageClass>STANDARD</StorageClass></Contents>",
                    shown(key),
                    clock::iso_date(object.modified),
                    xml::escape(&object.etag),
                    object.body.len()
                )),
            }
            count += 1;
        }
        for folder in &folders {
            contents
                .push_str(&format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", shown(folder)));
        }
        if encoded {
            contents.push_str("<EncodingType>url</EncodingType>");
        }
        if truncated {
            let token = xml::escape(&last);
            contents.push_str(&format!("<NextContinuationToken>{token}</NextContinuationToken>"));
        }
        let facts = format!(
            "<Name>{}</Name><Prefix>{}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys>\
             <IsTruncated>{truncated}</IsTruncated>",
            xml::escape(&request.bucket),
            shown(&prefix)
        );
        document("ListBucketResult", &(facts + &contents))
    }

    fn list_uploads(&self, request: &Request) -> Reply {
        let value = |name| request.query_value(name).unwrap_or_default();
        let (prefix, after) = (value("prefix"), (value("key-marker"), value("upload-id-marker")));
        let mut all: Vec<_> = (self.uploads.iter())
            .filter(|(_, upload)| upload.bucket == request.bucket && upload.key.starts_with(&prefix))
            .map(|(id, upload)| (upload.key.clone(), id.clone(), upload.begun))
            .filter(|(key, id, _)| (key, id) > (&after.0, &after.1))
            .collect();
        all.sort();
        let truncated = all.len() > self.most_listed;
        all.truncate(self.most_listed);
        let mut rows = format!("<IsTruncated>{truncated}</IsTruncated>");
        if let (true, Some((key, id, _))) = (truncated, all.last()) {
            let key = xml::escape(key);
            rows.push_str(&format!(
                "<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>"
            ));
        }
        for (key, id, begun) in all {
            let (key, begun) = (xml::escape(&key), clock::iso_date(begun));
            let facts = format!("<Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{begun}</Initiated>");
            rows.push_str(&format!("<Upload>{facts}</Upload>"));
        }
        document("ListMultipartUploadsResult", &rows)
    }

    fn begin(&mut self, request: &Request) -> Reply {
        self.begun += 1;
        let id = format!("upload-{}", self.begun);
        let (bucket, key) = (request.bucket.clone(), request.key.clone());
        let upload =
            Upload { bucket, key, headers: kept(request), parts: BTreeMap::new(), begun: clock::now(0) };
        self.uploads.insert(id.clone(), upload);
        let facts = format!(
            "<Bucket>{}</Bucket><Key>{}</Key><UploadId>{id}</UploadId>",
            xml::escape(&request.bucket),
            xml::escape(&request.key)
        );
        document("InitiateMultipartUploadResult", &facts)
    }

    fn part(&mut self, request: &Request, id: &str) -> Reply {
        let number = request.query_value("partNumber").and_then(|number| number.parse().ok());
        let (Some(number), Some(object)) = (number, received(request, self.framing)) else {
            return Reply::error(400, "InvalidArgument");
        };
        let Some(upload) = self.uploads.get_mut(id) else { return Reply::error(404, "NoSuchUpload") };
        let reply = Reply::new(200).with("etag", object.etag.clone());
        upload.parts.insert(number, object);
        reply
    }

    fn complete(&mut self, request: &Request, id: &str) -> Reply {
        let Some(upload) = self.uploads.get(id) else { return Reply::error(404, "NoSuchUpload") };
        if self.refuses(request) {
            return Reply::error(412, "PreconditionFailed");
        }
        let wanted = xml::texts(&text(request), "PartNumber");
        let mut body = Vec::new();
        for number in &wanted {
            // A part that was lost behind the client's back is what `lose_last_parts` is for, and no error.
            let part = number.parse().ok().and_then(|number: u32| upload.parts.get(&number));
            part.into_iter().for_each(|part| body.extend_from_slice(&part.body));
        }
        let upload = self.uploads.remove(id).expect("looked up above");
        let mut object = Object::new(body);
        object.etag = format!("{}-{}\"", object.etag.trim_end_matches('"'), wanted.len());
        object.headers = upload.headers;
        let facts = format!(
            "<Location>here</Location><Bucket>{}</Bucket><Key>{}</Key><ETag>{}</ETag>",
            xml::escape(&upload.bucket),
            xml::escape(&upload.key),
            xml::escape(&object.etag)
        );
        self.objects(&upload.bucket).insert(upload.key, object);
        document("CompleteMultipartUploadResult", &facts)
    }
}

/// Tells bodies apart, in no time also where nothing is optimised. What an ETag is made from is nobody's business.
fn fingerprint(body: &[u8]) -> u64 {
    let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let (words, rest) = body.as_chunks::<8>();
    let mixed = words.iter().fold(body.len() as u64, |hash, bytes| {
        (hash ^ u64::from_le_bytes(*bytes)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29)
    });
    mixed ^ word(rest).rotate_left(7)
}

fn document(root: &str, inside: &str) -> Reply {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root}>{inside}</{root}>");
    Reply::new(200).with("content-type", "application/xml").holding(body)
}

fn text(request: &Request) -> String {
    String::from_utf8_lossy(&request.body).into_owned()
}

fn kept(request: &Request) -> Vec<(String, String)> {
    let is_kept = |name: &str| KEPT_HEADERS.iter().any(|kept| name.starts_with(kept));
    request.headers.iter().filter(|(name, _)| is_kept(name)).cloned().collect()
}

/// The object that a put brings.
fn received(request: &Request, framing: Framing) -> Option<Object> {
    let mut headers = kept(request);
    let coded = request.header("content-encoding").is_some_and(|coding| coding.contains("aws-chunked"));
    if !coded || framing == Framing::KeptAsData {
        return Some(Object { headers, ..Object::new(request.body.clone()) });
    }
    headers.retain(|(name, value)| name != "content-encoding" || value != "aws-chunked");
    let body = unframed(&request.body)?;
    let told = request.header("x-amz-decoded-content-length")?.parse::<usize>().ok()?;
    (told == body.len()).then(|| Object { headers, ..Object::new(body) })
}

/// `SIZE[;chunk-signature=..]\r\nDATA\r\n ... 0\r\n` and trailers, which are not looked at.
fn unframed(mut framed: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = framed.windows(2).position(|two| two == b"\r\n")?;
        let line = std::str::from_utf8(&framed[..end]).ok()?;
        let size = usize::from_str_radix(line.split(';').next()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(framed.get(end + 2..end + 2 + size)?);
        framed = framed.get(end + 2 + size + 2..)?;
    }
}

fn part_of(body: &[u8], range: &str) -> Option<Reply> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last) = match (first.parse::<usize>().ok(), last.parse::<usize>().ok()) {
        (Some(first), Some(last)) => (first, last.min(body.len().checked_sub(1)?)),
        (Some(first), None) => (first, body.len().checked_sub(1)?),
        (None, Some(tail)) => (body.len().saturating_sub(tail), body.len().checked_sub(1)?),
        (None, None) => return None,
    };
    let part = (first <= last).then(|| &body[first..=last])?;
    let told = format!("bytes {first}-{last}/{}", body.len());
    Some(Reply::new(206).with("content-range", told).holding(part.to_vec()))
}

fn folder_of(key: &str, prefix: &str, delimiter: &str) -> Option<String> {
    let rest = &key[prefix.len()..];
    let end = (!delimiter.is_empty()).then(|| rest.find(delimiter)).flatten()?;
    Some(format!("{prefix}{}", &rest[..end + delimiter.len()]))
}
