//! DeleteObjects.

use crate::objects::Objects;
use std::fmt::Write;

/// Removes the keys that the request's body names, and answers with the answer's body.
pub(crate) fn removal(objects: &Objects, bucket: &str, body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let mut answer =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><DeleteResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            .to_owned();
    for key in body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
        objects.remove(bucket, &plain(key));
        // Writing to a string does not fail.
        let _ = write!(answer, "<Deleted><Key>{key}</Key></Deleted>");
    }
    answer.push_str("</DeleteResult>");
    answer
}

fn plain(text: &str) -> String {
    // The ampersand last, or `&amp;lt;` would become `<`.
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Keep;

    #[test]
    fn the_keys_that_are_named_go_and_no_others() {
        let objects = Objects::new(Keep::All);
        for key in ["a", "x&y", "z"] {
            objects.put("b".to_owned(), key.to_owned(), objects.body(1), Vec::new(), false).unwrap();
        }
        let body = b"<Delete><Object><Key>a</Key></Object><Object><Key>x&amp;y</Key></Object></Delete>";
        assert_eq!(removal(&objects, "b", body).matches("<Deleted>").count(), 2);
        assert!(objects.get("b", "a").is_none() && objects.get("b", "x&y").is_none());
        assert!(objects.get("b", "z").is_some());
    }
}
