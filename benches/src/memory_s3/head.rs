//! The head of a request: its line, and those of its headers that matter.

use percent_encoding::percent_decode_str;
use std::ops::Range;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Put,
    Delete,
    Post,
    Other,
}

/// A request's head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) method: Method,
    pub(crate) bucket: String,
    /// Empty for the bucket itself.
    pub(crate) key: String,
    /// Decoded, in the order given.
    pub(crate) query: Vec<(String, String)>,
    /// Bytes of the body.
    pub(crate) len: usize,
    /// The first and the last byte wanted, as far as they are named.
    pub(crate) range: Option<(Option<usize>, Option<usize>)>,
    /// Headers that are kept with an object and given back.
    pub(crate) kept: Vec<(String, String)>,
    /// The client waits for a go-ahead before it sends the body.
    pub(crate) expects: bool,
    /// An object that is there stays.
    pub(crate) only_new: bool,
    /// The body comes in frames that are not understood.
    pub(crate) framed: bool,
    /// The connection ends after the answer.
    pub(crate) last: bool,
}

impl Head {
    /// From its bytes, without the empty line at the end.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.split("\r\n");
        let mut request = lines.next()?.split(' ');
        let method = match request.next()? {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PUT" => Method::Put,
            "DELETE" => Method::Delete,
            "POST" => Method::Post,
            _ => Method::Other,
        };
        let target = request.next()?;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix('/')?;
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let mut head = Self {
            method,
            bucket: decoded(bucket),
            key: decoded(key),
            query: query.split('&').filter(|pair| !pair.is_empty()).map(pair).collect(),
            len: 0,
            range: None,
            kept: Vec::new(),
            expects: false,
            only_new: false,
            framed: false,
            last: false,
        };
        lines.try_for_each(|line| {
            let (name, value) = line.split_once(':')?;
            head.header(name, value.trim())
        })?;
        Some(head)
    }

    fn header(&mut self, name: &str, value: &str) -> Option<()> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("content-length") {
            self.len = value.parse().ok()?;
        } else if is("range") {
            let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
            self.range = Some((first.parse().ok(), last.parse().ok()));
        } else if is("expect") {
            self.expects = true;
        } else if is("if-none-match") {
            self.only_new = value == "*";
        } else if is("transfer-encoding") || is("content-encoding") && value.contains("aws-chunked") {
            self.framed = true;
        } else if is("connection") {
            self.last = value.eq_ignore_ascii_case("close");
        } else if is("content-type") || has_prefix(name, "x-amz-meta-") {
            self.kept.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Some(())
    }

    /// The first parameter of this name.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Which of `len` bytes are wanted; `None` where there are none such.
    pub(crate) fn wanted(&self, len: usize) -> Option<Range<usize>> {
        let range = match self.range {
            None => 0..len,
            Some((Some(first), last)) => first..last.map_or(len, |last| len.min(last.saturating_add(1))),
            Some((None, Some(count))) => len.saturating_sub(count)..len,
            Some((None, None)) => return None,
        };
        (self.range.is_none() || range.start < range.end).then_some(range)
    }
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (decoded(name), decoded(value))
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_whatever_the_case_of_its_names() {
        let text = "PUT /bucket/a%20b/c+d?x-id=PutObject HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 12\r\n\
            X-Amz-Meta-Hicache: v=1 key=2\r\nIf-None-Match: *\r\nExpect: 100-continue";
        let head = Head::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (head.method, head.bucket.as_str(), head.key.as_str()),
            (Method::Put, "bucket", "a b/c+d")
        );
        assert_eq!(head.kept, [("x-amz-meta-hicache".to_owned(), "v=1 key=2".to_owned())]);
        assert_eq!((head.len, head.expects, head.only_new, head.framed), (12, true, true, false));
        assert_eq!(head.parameter("x-id"), Some("PutObject"));
    }

    #[test]
    fn a_range_is_cut_to_the_object_or_refused() {
        let wanted = |range: &str, len| {
            let text = format!("GET /b/k HTTP/1.1\r\nRange: bytes={range}");
            Head::parse(text.as_bytes()).unwrap().wanted(len)
        };
        assert_eq!(wanted("0-3", 10), Some(0..4));
        assert_eq!(wanted("8-99", 10), Some(8..10));
        assert_eq!(wanted("4-", 10), Some(4..10));
        assert_eq!(wanted("-3", 10), Some(7..10));
        assert_eq!(wanted("10-11", 10), None);
        assert_eq!(Head::parse(b"GET /b/k HTTP/1.1").unwrap().wanted(0), Some(0..0));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in
            ["", "GET", "GET x HTTP/1.1", "PUT /b/k HTTP/1.1\r\nContent-Length: x", "GET /b HTTP/1.1\r\nx"]
        {
            assert_eq!(Head::parse(text.as_bytes()), None, "{text}");
        }
    }
}
