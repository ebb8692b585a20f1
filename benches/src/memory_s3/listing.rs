//! ListObjectsV2.

use crate::head::Head;
use crate::objects::Objects;
use std::fmt::Write;

/// As many as S3 gives at once.
const MOST: usize = 1000;

/// The answer's body.
pub(crate) fn listing(objects: &Objects, head: &Head) -> String {
    let prefix = head.parameter("prefix").unwrap_or("");
    let delimiter = head.parameter("delimiter").filter(|delimiter| !delimiter.is_empty());
    let most = head.parameter("max-keys").and_then(|most| most.parse().ok()).unwrap_or(MOST).min(MOST);
    // The continuation token is the last key or common prefix that was given.
    let token = head.parameter("continuation-token").or_else(|| head.parameter("start-after"));
    let token = token.unwrap_or("");
    let after = token.max(before(prefix));

    let (mut entries, mut folded) = (String::new(), String::new());
    let (mut count, mut last, mut more) = (0, token.to_owned(), false);
    objects.visit(&head.bucket, after, |key, object| {
        let Some(rest) = key.strip_prefix(prefix) else { return key < prefix };
        let fold = delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
        let name = fold.map_or(key, |end| &key[..prefix.len() + end]);
        if fold.is_some() && name == last {
            return true;
        }
        if count == most {
            more = true;
            return false;
        }
        count += 1;
        name.clone_into(&mut last);
        // Writing to a string does not fail.
        let _ = match fold {
            Some(_) => write!(folded, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escaped(name)),
            None => write!(
                entries,
                "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>{}</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                escaped(key),
                escaped(&object.etag),
                object.body.bytes().len()
            ),
        };
        true
    });
    let next = if more {
        format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(&last))
    } else {
        String::new()
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>{}</Name><Prefix>{}</Prefix>\
         <KeyCount>{count}</KeyCount><MaxKeys>{most}</MaxKeys><IsTruncated>{more}</IsTruncated>{next}{entries}{folded}\
         </ListBucketResult>",
        escaped(&head.bucket),
        escaped(prefix)
    )
}

/// A text right before all that begin with `prefix`, or nearly.
fn before(prefix: &str) -> &str {
    let end = prefix.char_indices().next_back().map_or(0, |(place, _)| place);
    &prefix[..end]
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Keep;

    fn objects() -> Objects {
        let objects = Objects::new(Keep::All);
        for key in ["a", "p/one/1", "p/one/2", "p/two/1", "p/x&y", "q"] {
            objects.put("b".to_owned(), key.to_owned(), objects.body(3), Vec::new(), false).unwrap();
        }
        objects
    }

    /// What stands between the tags.
    fn all<'t>(text: &'t str, tag: &str) -> Vec<&'t str> {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        text.split(open.as_str()).skip(1).map(|rest| rest.split(close.as_str()).next().unwrap()).collect()
    }

    fn list(objects: &Objects, query: &str) -> String {
        listing(objects, &Head::parse(format!("GET /b?list-type=2{query} HTTP/1.1").as_bytes()).unwrap())
    }

    #[test]
    fn a_prefix_is_listed_and_nothing_beside_it() {
        let text = list(&objects(), "&prefix=p%2F");
        assert_eq!(all(&text, "Key"), ["p/one/1", "p/one/2", "p/two/1", "p/x&amp;y"]);
        assert_eq!(all(&list(&objects(), ""), "Key").len(), 6);
        assert_eq!(all(&list(&objects(), "&prefix=r"), "Key").len(), 0);
    }

    #[test]
    fn a_delimiter_folds_and_pages_of_one_give_everything_once() {
        let objects = objects();
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let text = list(&objects, &format!("&prefix=p/&delimiter=/&max-keys=1{token}"));
            let folded = all(&text, "CommonPrefixes").into_iter().flat_map(|inner| all(inner, "Prefix"));
            found.extend(all(&text, "Key").into_iter().chain(folded).map(str::to_owned));
            match all(&text, "NextContinuationToken").first() {
                Some(next) => token = format!("&continuation-token={next}"),
                None => break,
            }
        }
        assert_eq!(found, ["p/one/", "p/two/", "p/x&amp;y"]);
    }
}
