//! The text of a URL: how it is decoded, where an option is out of place in it, and what of it may be shown.

use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The text without its percent signs, or why that cannot be.
pub(crate) fn decode(text: &str) -> Result<String, &'static str> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    if (0..bytes.len()).any(|at| bytes[at] == b'%' && !(digit(at + 1) && digit(at + 2))) {
        return Err("a % in the URL is not followed by two hexadecimal digits");
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| "the URL does not decode to UTF-8")?;
    if decoded.contains('\0') {
        return Err("the URL has a zero byte");
    }
    Ok(decoded.into_owned())
}

/// A URL, or what stands in one behind its scheme, to print: without the user and the password that it may name, and
/// without what looks like an option, also where none belong.
pub fn without_secrets(url: &str) -> Cow<'_, str> {
    let shown = without_options(without_user(url));
    // A secret that was encoded once too often is one all the same. Each round is shorter than the one before.
    if let Ok(decoded) = decode(url)
        && decoded != url
    {
        let inside = without_secrets(&decoded);
        if inside != decoded {
            return inside.into_owned().into();
        }
    }
    shown
}

/// A text of others with URLs in it, to print: without the user and the password that one may name, also one that is
/// malformed. What stands between two URLs may go with them, since a password may hold any mark.
pub fn without_users(text: &str) -> Cow<'_, str> {
    let (Some(first), Some(last)) = (text.find('@'), text.rfind('@')) else { return text.into() };
    let word = first - text[..first].rsplit(char::is_whitespace).next().map_or(0, str::len);
    let bare = text[word..first].contains(':').then_some(word);
    let url = text.find("//").map(|at| at + 2);
    let from = url.filter(|at| *at <= first).or(bare).or(url.filter(|at| *at <= last));
    from.map_or(text.into(), |from| format!("{}***{}", &text[..from], &text[last..]).into())
}

/// The first option in `text` for which `is_stray` holds, by its place and name, given what stands before it: one of
/// the marks that are taken for `?` and `&`, a slash, or at the beginning [`START`].
pub(crate) fn stray_option(text: &str, is_stray: impl Fn(char, &str) -> bool) -> Option<(usize, &str)> {
    let marks = text.char_indices().filter(|(_, c)| is_mark(*c) || *c == '/');
    let starts = std::iter::once((0, START)).chain(marks.map(|(at, mark)| (at + mark.len_utf8(), mark)));
    let mut options = starts.filter_map(|(at, mark)| Some((at, mark, option_at(&text[at..])?)));
    options.find(|(_, mark, name)| is_stray(*mark, name)).map(|(at, _, name)| (at, name))
}

/// What stands before the beginning.
pub(crate) const START: char = '\0';

/// What somebody may have written in place of `?` or `&`.
fn is_mark(c: char) -> bool {
    matches!(c, '?' | '&' | ';' | '#' | ',') || c.is_whitespace()
}

/// The name in front of an equals sign, with which `text` begins.
fn option_at(text: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let name = &text[..text.find(|c| !plain(c))?];
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic()) && text[name.len()..].starts_with('=');
    named.then_some(name)
}

fn without_options(shown: Cow<'_, str>) -> Cow<'_, str> {
    match stray_option(&shown, |mark, _| is_mark(mark)) {
        Some((at, _)) => format!("{}***", &shown[..at]).into(),
        None => shown,
    }
}

fn without_user(url: &str) -> Cow<'_, str> {
    let Some((scheme, rest)) = url.split_once("//") else {
        let is_path = url.split_once(':').map_or(url, |(_, rest)| rest).starts_with('/');
        let user = url.rfind('@').filter(|at| url[..*at].contains(':') && !is_path);
        return user.map_or(url.into(), |at| format!("***{}", &url[at..]).into());
    };
    let before = rest.split('?').next().unwrap_or_default();
    let authority = before.split('/').next().unwrap_or_default();
    // Every other key of AWS has a slash in it, which ends what only looks like the authority.
    let in_password = || before.rfind('@').filter(|_| authority.contains(':'));
    if let Some(at) = authority.rfind('@').or_else(in_password) {
        return format!("{scheme}//***{}", &rest[at..]).into();
    }
    if let Some(at) = authority.find(is_mark) {
        return format!("{scheme}//{}***", &authority[..at]).into();
    }
    // Half of a user's name and password: what no port looks like.
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    if authority.starts_with('[') || port.bytes().all(|byte| byte.is_ascii_digit()) {
        return url.into();
    }
    format!("{scheme}//***").into()
}
