//! The little XML that S3 speaks: texts of elements out of a body, texts into one.

/// The texts of all elements `name`, in order, unescaped.
pub(crate) fn texts(document: &str, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = document;
    while let Some(start) = rest.find(&open) {
        rest = &rest[start + open.len()..];
        let Some(end) = rest.find(&close) else { break };
        found.push(unescape(&rest[..end]));
        rest = &rest[end + close.len()..];
    }
    found
}

/// As the text of an element.
pub(crate) fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\r' | '\n' | '\t' => format!("&#{};", u32::from(c)),
            c => c.to_string(),
        })
        .collect()
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some(end) = rest.find(';') else { break };
        let name = &rest[1..end];
        match name {
            "amp" => plain.push('&'),
            "lt" => plain.push('<'),
            "gt" => plain.push('>'),
            "quot" => plain.push('"'),
            "apos" => plain.push('\''),
            _ => plain.extend(numbered(name)),
        }
        rest = &rest[end + 1..];
    }
    plain.push_str(rest);
    plain
}

fn numbered(name: &str) -> Option<char> {
    let digits = name.strip_prefix('#')?;
    let code = match digits.strip_prefix('x') {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    char::from_u32(code)
}
