//! The requests that there are, each sent once, with trouble told apart.

use crate::bucket::Bucket;
use crate::facts::{Facts, Flaw, HEADER, NAME};
use crate::options::Encryption;
use crate::progress::Progress;
use crate::trouble::{Kind, Trouble, chain, stranger};
use crate::unfinished::Marker;
use crate::upload::PageBody;
use crate::wire::{Answer, Draft};
use aws_sdk_s3::operation::delete_objects::DeleteObjectsOutput;
use aws_sdk_s3::operation::list_multipart_uploads::ListMultipartUploadsOutput;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::{
    CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier, ServerSideEncryption, StorageClass,
};
use bytes::Buf;
use hicache_core::{Checksum, ErrorKind, Namespace, Page, PageKey, Put};
use http::Method;
use std::io;
use std::ops::Range;
use std::time::SystemTime;

/// The condition that nothing is there.
const ANY: &str = "*";

/// What a question of one object is answered with.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) len: Option<u64>,
    pub(crate) facts: Option<Result<Facts, Flaw>>,
    /// When it was stored, by the service's clock; of a `HEAD` alone.
    pub(crate) stored_at: Option<SystemTime>,
}

impl Seen {
    /// As an answer to a question for all of it, or for a part, tells of an object of `len` bytes.
    pub(crate) fn of(answer: &Answer, len: Option<u64>) -> Self {
        Self { len, facts: answer.facts(), stored_at: None }
    }

    /// Whether it is that page, as far as can be told without its bytes.
    pub(crate) fn judge(&self, namespace: &Namespace, key: &PageKey) -> Result<Option<Facts>, Flaw> {
        let facts = match &self.facts {
            Some(facts) => Some(facts.clone()?),
            None => None,
        };
        if let Some(facts) = &facts {
            facts.check(namespace, key)?;
        }
        let stored_len = facts.as_ref().map_or(namespace.layout().page_len() as u64, Facts::stored_len);
        match self.len {
            Some(len) if len != stored_len => {
                Err(Flaw::Torn(format!("it has {len} bytes; a page of its layout has {stored_len}")))
            }
            _ => Ok(facts),
        }
    }
}

/// An upload of a page.
#[derive(Clone, Debug)]
pub(crate) struct Upload<'a> {
    pub(crate) name: &'a str,
    pub(crate) page: &'a Page,
    pub(crate) facts: &'a Facts,
    /// CRC-64/NVME of the page, where it is known before the page is sent.
    known: Option<u64>,
    /// CRC-64/NVME of page and tail, for the service.
    for_service: Option<u64>,
    /// Only where nothing is.
    pub(crate) fresh: bool,
}

impl<'a> Upload<'a> {
    /// Reads the page beforehand only for who must know its checksum then: a service that is told one, and the last of
    /// several parts.
    pub(crate) fn of(bucket: &Bucket, name: &'a str, put: &'a Put, facts: &'a Facts, fresh: bool) -> Self {
        let mut upload = Self { name, page: &put.page, facts, known: None, for_service: None, fresh };
        let in_parts = upload.is_in_parts(bucket);
        let told = bucket.gives_checksum() && !in_parts;
        if told || in_parts && facts.checked {
            let mut checksum = Checksum::over(&put.page);
            upload.known = facts.checked.then(|| checksum.finish());
            checksum.add(&facts.tail(upload.known).encode());
            upload.for_service = told.then(|| checksum.finish());
        }
        upload
    }

    pub(crate) fn is_in_parts(&self, bucket: &Bucket) -> bool {
        self.page.len() as u64 > bucket.options().multipart_threshold
    }

    /// As it is to be sent now: an attempt before may have found out that the service knows no conditions.
    pub(crate) fn now(&self, bucket: &Bucket) -> Self {
        Self { fresh: self.fresh && bucket.gives_condition(), ..self.clone() }
    }

    /// A new one each time it is sent.
    fn body(&self, range: Range<usize>) -> PageBody<'a> {
        let (tail, makes) = (self.facts.tail(self.known), self.facts.checked && self.known.is_none());
        PageBody::new(self.page, tail, makes, range)
    }
}

impl Bucket {
    /// Uploads a page in one request. Whether the answer is one that only a stored object gives: with a tag, and not
    /// before all of it was sent.
    pub(crate) async fn put(&self, upload: &Upload<'_>) -> Result<bool, Trouble> {
        let len = upload.facts.stored_len();
        let draft = Draft::new(Method::PUT, upload.name)
            .header("content-length", len.to_string())
            .header("content-type", "application/octet-stream")
            .header(HEADER, upload.facts.encode())
            .maybe_header("if-none-match", upload.fresh.then_some(ANY))
            .maybe_header("x-amz-checksum-crc64nvme", self.checksum_header(upload.for_service))
            .maybe_header("x-amz-storage-class", self.options().storage_class.as_deref())
            .maybe_header(
                "x-amz-server-side-encryption",
                self.encryption().as_ref().map(|kind| kind.as_str().to_string()),
            )
            .maybe_header("x-amz-server-side-encryption-aws-kms-key-id", self.encryption_key());
        let mut body = upload.body(0..len as usize);
        let answer = self.give(draft, &mut body).await.map_err(|trouble| self.of_upload(trouble))?;
        Ok(answer.tag().is_some() && !answer.early)
    }

    /// Some services say nothing but 400 to a header that they do not know.
    fn of_upload(&self, trouble: Trouble) -> Trouble {
        if trouble.is_bare(400) && self.gives_checksum() {
            Trouble { kind: Kind::Unknown("checksum"), ..trouble }
        } else {
            trouble
        }
    }

    /// Looks whether an upload is stored that was answered as a success by something that may not be the service.
    pub(crate) async fn confirm(&self, upload: &Upload<'_>) -> Result<(), Trouble> {
        let unlike =
            |what| Trouble::new(Kind::Outage, format!("a success was answered, and {what} is stored"));
        match self.head(upload.name).await {
            Ok(Seen { len: Some(len), facts: Some(Ok(facts)), .. })
                if len == facts.stored_len() && facts.key == upload.facts.key =>
            {
                Ok(())
            }
            Ok(Seen { len: Some(len), facts: Some(Ok(facts)), .. }) if facts.key == upload.facts.key => {
                let lost =
                    format!("a success was answered, and {len} bytes of {} are stored", facts.stored_len());
                Err(Trouble::flaw(Flaw::Torn(lost)))
            }
            Ok(_) => Err(unlike("another object")),
            Err(trouble) if trouble.kind == Kind::Absent => Err(unlike("nothing")),
            Err(trouble) => Err(trouble),
        }
    }

    /// Stores a small object whole.
    pub(crate) async fn put_text(&self, name: &str, text: &str, fresh: bool) -> Result<(), Trouble> {
        let draft = Draft::new(Method::PUT, name)
            .header("content-length", text.len().to_string())
            .header("content-type", "text/plain; charset=utf-8")
            .maybe_header("if-none-match", fresh.then_some(ANY))
            .maybe_header(
                "x-amz-checksum-crc64nvme",
                self.checksum_header(Some(Checksum::of_bytes(text.as_bytes()))),
            );
        self.give(draft, &mut text.as_bytes()).await.map(drop)
    }

    /// Begins to fetch an object, or a part of it if it still has that tag. The body is still to come.
    pub(crate) async fn get(
        &self,
        name: &str,
        part: Option<(Range<u64>, Option<&str>)>,
    ) -> Result<Answer, Trouble> {
        let mut draft = Draft::new(Method::GET, name);
        if let Some((range, tag)) = part {
            draft = draft.header("range", format!("bytes={}-{}", range.start, range.end - 1));
            draft = draft.maybe_header("if-match", tag);
        }
        self.ask(draft).await
    }

    /// Fetches a small object whole.
    pub(crate) async fn get_text(&self, name: &str, len_max: usize) -> Result<String, Trouble> {
        let mut answer = self.get(name, None).await?;
        let mut text = vec![0; len_max + 1];
        let mut len = 0;
        let progress = Progress::new();
        let reading = async {
            while len <= len_max {
                match answer.body.read(&mut text[len..]).await? {
                    0 => break,
                    read => len += read,
                }
                self.came(&progress);
            }
            Ok(())
        };
        self.receive(&progress, reading).await?;
        if len > len_max {
            return Err(Trouble::flaw(Flaw::Wrong("it is too long to be a record".to_string())));
        }
        text.truncate(len);
        String::from_utf8(text).map_err(|_| Trouble::flaw(Flaw::Wrong("it is no text".to_string())))
    }

    /// Asks what an object is.
    pub(crate) async fn head(&self, name: &str) -> Result<Seen, Trouble> {
        let answer = self.ask(Draft::new(Method::HEAD, name)).await?;
        Ok(Seen { stored_at: answer.stored_at(), ..Seen::of(&answer, answer.len()) })
    }

    /// Asks for one byte of an object that nobody stores, to hear who answers. Not for its head alone: an answer then
    /// has a body that says why, and that only S3 has.
    pub(crate) async fn greet(&self, name: &str) -> Result<(), Trouble> {
        match self.get(name, Some((0..1, None))).await {
            Ok(answer) if answer.header("x-amz-request-id").is_none() => {
                let status = if answer.range().is_some() { 206 } else { 200 };
                Err(stranger(status, "it has an object that nobody stores"))
            }
            Ok(_) => Ok(()),
            Err(Trouble { kind: Kind::Absent | Kind::Forbidden, why, told }) if !told.is_of_s3 => {
                Err(stranger(told.status.unwrap_or_default(), &why))
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Removes an object, there or not.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Trouble> {
        match self.give(Draft::new(Method::DELETE, name), &mut &[][..]).await {
            Ok(answer) if answer.document.trim().is_empty() => Ok(()),
            // What S3 says has no document: something else has answered for it.
            Ok(answer) => Err(stranger(answer.status, "it answers a removal with a page")),
            Err(trouble) if trouble.kind == Kind::Absent => Ok(()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Removes objects, there or not, up to 1,000 of them. What the answer says of each is still to be read.
    pub(crate) async fn delete_many(&self, names: &[String]) -> Result<DeleteObjectsOutput, Trouble> {
        let object = |name: &String| ObjectIdentifier::builder().key(name).build();
        let objects: Result<Vec<_>, _> = names.iter().map(object).collect();
        let wanted = objects.and_then(|objects| Delete::builder().set_objects(Some(objects)).build());
        let wanted = wanted.map_err(|error| Trouble::new(Kind::Refused(ErrorKind::Io), error.to_string()))?;
        let request = self.client().delete_objects().bucket(self.name()).delete(wanted);
        self.moving(&Progress::new(), request.send()).await?.map_err(Trouble::of)
    }

    /// Lists up to `most` objects from a place on: names under `prefix`, or with a delimiter, the folders there.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        folders: bool,
        from: Option<&str>,
        most: i32,
    ) -> Result<ListObjectsV2Output, Trouble> {
        let request = self
            .client()
            .list_objects_v2()
            .bucket(self.name())
            .prefix(prefix)
            .max_keys(most)
            .set_delimiter(folders.then(|| "/".to_string()))
            .set_continuation_token(from.map(str::to_string));
        let output = self.moving(&Progress::new(), request.send()).await?.map_err(Trouble::of)?;
        whole(output)
    }

    /// Begins an upload in parts. Its id.
    pub(crate) async fn begin_parts(&self, upload: &Upload<'_>) -> Result<String, Trouble> {
        let request = self
            .client()
            .create_multipart_upload()
            .bucket(self.name())
            .key(upload.name)
            .content_type("application/octet-stream")
            .metadata(NAME, upload.facts.encode())
            .set_storage_class(self.storage_class())
            .set_server_side_encryption(self.encryption())
            .set_ssekms_key_id(self.encryption_key())
            .customize()
            // The SDK leaves it out where there is no body, and some servers want to be told.
            .mutate_request(|request| drop(request.headers_mut().insert("content-length", "0")));
        let begun = self.moving(&Progress::new(), request.send()).await?.map_err(Trouble::of);
        let output = begun.map_err(|trouble| match trouble.kind {
            Kind::Unknown("") => Trouble { kind: Kind::Refused(ErrorKind::Unsupported), ..trouble }.fix(
                "the service knows no uploads in parts: raise multipart_threshold to the length of a page",
            ),
            _ => trouble,
        })?;
        output
            .upload_id
            .ok_or_else(|| Trouble::new(Kind::Outage, "an upload in parts was begun without an id"))
    }

    /// Uploads one part.
    pub(crate) async fn put_part(
        &self,
        upload: &Upload<'_>,
        id: &str,
        number: i32,
        range: Range<usize>,
    ) -> Result<CompletedPart, Trouble> {
        let draft = Draft::new(Method::PUT, upload.name)
            .query("partNumber", &number.to_string())
            .query("uploadId", id)
            .header("content-length", range.len().to_string());
        let mut body = upload.body(range);
        let answer = self.give(draft, &mut body).await?;
        let Some(tag) = answer.tag() else {
            return Err(Trouble::new(Kind::Outage, "a part was answered without an ETag"));
        };
        Ok(CompletedPart::builder().part_number(number).e_tag(tag).build())
    }

    /// Makes the parts an object.
    pub(crate) async fn end_parts(
        &self,
        upload: &Upload<'_>,
        id: &str,
        parts: Vec<CompletedPart>,
    ) -> Result<(), Trouble> {
        let request = self
            .client()
            .complete_multipart_upload()
            .bucket(self.name())
            .key(upload.name)
            .upload_id(id)
            .set_if_none_match(upload.fresh.then(|| ANY.to_string()))
            .multipart_upload(CompletedMultipartUpload::builder().set_parts(Some(parts)).build());
        self.moving(&Progress::new(), request.send()).await?.map(drop).map_err(Trouble::of)
    }

    /// Lists uploads in parts that are not ended.
    pub(crate) async fn list_uploads(
        &self,
        prefix: &str,
        from: Option<&Marker>,
    ) -> Result<ListMultipartUploadsOutput, Trouble> {
        let request = self
            .client()
            .list_multipart_uploads()
            .bucket(self.name())
            .prefix(prefix)
            .set_key_marker(from.and_then(|from| from.name.clone()))
            .set_upload_id_marker(from.and_then(|from| from.id.clone()));
        let listed = self.moving(&Progress::new(), request.send()).await?.map_err(Trouble::of);
        listed.map_err(|trouble| match trouble.kind {
            // What is not known here says nothing of what an upload may have.
            Kind::Unknown(_) => Trouble { kind: Kind::Refused(ErrorKind::Unsupported), ..trouble },
            // Who does not know the question lists the objects.
            _ if trouble.why.contains("invalid XML root") => {
                Trouble { kind: Kind::Refused(ErrorKind::Unsupported), ..trouble }
            }
            _ => trouble,
        })
    }

    /// Gives an upload in parts up, so that nobody pays for them.
    pub(crate) async fn abort_upload(&self, name: &str, id: &str) -> Result<(), Trouble> {
        let request = self.client().abort_multipart_upload().bucket(self.name()).key(name).upload_id(id);
        self.moving(&Progress::new(), request.send()).await?.map(drop).map_err(Trouble::of)
    }

    /// Sends a request with nothing in it, when it is its turn: waiting for that is nobody's standing still.
    async fn ask(&self, draft: Draft<'_>) -> Result<Answer, Trouble> {
        let wire = self.wire();
        let turn = wire.turn().await?;
        let progress = Progress::new();
        self.moving(&progress, wire.ask(turn, draft, &progress)).await?
    }

    /// Sends a request with a body, when it is its turn.
    async fn give(&self, draft: Draft<'_>, body: &mut impl Buf) -> Result<Answer, Trouble> {
        let wire = self.wire();
        let turn = wire.turn().await?;
        let progress = Progress::new();
        self.moving(&progress, wire.give(turn, draft, body, &progress)).await?
    }

    /// Reads of an answer as long as something comes; `reading` tells when something [`came`](Self::came).
    pub(crate) async fn receive<T>(
        &self,
        progress: &Progress,
        reading: impl Future<Output = io::Result<T>>,
    ) -> Result<T, Trouble> {
        let broken = |error| Trouble::new(Kind::Outage, format!("the body broke off: {}", chain(&error)));
        self.moving(progress, reading).await?.map_err(broken)
    }

    /// A part of an answer came.
    pub(crate) fn came(&self, progress: &Progress) {
        progress.moved();
        self.breaker().heard();
    }

    /// Waits as long as bytes move.
    async fn moving<T>(&self, progress: &Progress, work: impl Future<Output = T>) -> Result<T, Trouble> {
        let limit = self.options().read_timeout;
        let listening = self.breaker().listen(|| progress.last().into_std());
        let stalled = || Trouble::new(Kind::Stalled, "the service stood still: no byte was sent or received");
        let followed = progress.follow(limit, work).await.ok_or_else(stalled);
        listening.ended();
        followed
    }

    fn checksum_header(&self, checksum: Option<u64>) -> Option<String> {
        let checksum = checksum.filter(|_| self.gives_checksum())?;
        Some(aws_smithy_types::base64::encode(checksum.to_be_bytes()))
    }

    fn storage_class(&self) -> Option<StorageClass> {
        self.options().storage_class.as_deref().map(StorageClass::from)
    }

    fn encryption(&self) -> Option<ServerSideEncryption> {
        self.options().encryption.as_ref().map(|encryption| match encryption {
            Encryption::Service => ServerSideEncryption::Aes256,
            Encryption::Kms(_) => ServerSideEncryption::AwsKms,
        })
    }

    fn encryption_key(&self) -> Option<String> {
        match &self.options().encryption {
            Some(Encryption::Kms(key)) => key.clone(),
            _ => None,
        }
    }
}

/// The SDK reads a document that breaks off, or none at all, as one with less in it: pages would be taken for absent.
fn whole(output: ListObjectsV2Output) -> Result<ListObjectsV2Output, Trouble> {
    let listed = output.contents().len() + output.common_prefixes().len();
    let broken = match (output.is_truncated(), output.key_count()) {
        (None, _) => Some("does not say whether it is all".to_string()),
        (Some(true), _) if output.next_continuation_token().is_none() => {
            Some("is not all, and does not say where it goes on".to_string())
        }
        (Some(_), Some(told)) if usize::try_from(told) != Ok(listed) => {
            Some(format!("has {listed} names where it says {told}"))
        }
        // A page without a length would be taken for a torn one, and a repair removes those.
        _ if output.contents().iter().any(|object| object.key().is_none() || object.size().is_none()) => {
            Some("has an object without a name or a length".to_string())
        }
        (Some(_), _) => None,
    };
    match broken {
        Some(how) => Err(Trouble::new(Kind::Outage, format!("the listing {how}"))),
        None => Ok(output),
    }
}
