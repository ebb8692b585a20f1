//! `hicache page-keys`.

use crate::args::PageKeys;
use crate::failure::{Ending, Failure, Result};
use crate::output::{self, Output};
use hicache::{KeyUnits, PageKey, namespace_seed};
use serde_json::json;
use std::io::{Read, stdin};

/// The longest input that is read, in bytes.
const LEN_MAX: u64 = 1 << 30;

pub(crate) fn run(args: &PageKeys, output: &mut Output) -> Result {
    let mut bytes = Vec::new();
    stdin().take(LEN_MAX).read_to_end(&mut bytes).map_err(Failure::file("read token ids"))?;
    if bytes.len() as u64 == LEN_MAX {
        return Err(Failure::Usage("the input is longer than 1 GiB".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::Usage(format!(
            "byte {} (line {line}) of the input is no text: token ids are digits",
            good.len() + 1
        ))
    })?;
    let tokens = parse(&text).map_err(Failure::Usage)?;
    let parent = match args.prior {
        Some(prior) => prior.0,
        None => namespace_seed(args.extra_key.as_deref(), args.cache_salt.as_deref()),
    };
    let units = if args.bigram { KeyUnits::Bigram } else { KeyUnits::Token };
    let keys = PageKey::of_pages(parent, &tokens, args.page_size, units)?;
    let rest = tokens.len().saturating_sub(usize::from(args.bigram)) - keys.len() * args.page_size.get();
    if rest > 0 {
        let unit = if args.bigram { "pairs of tokens" } else { "tokens" };
        output::note(format_args!("note: the last {rest} {unit} do not fill a page and have no key"));
    }
    if output.is_json() {
        let keys: Vec<_> = keys.iter().map(PageKey::to_string).collect();
        output.document(&json!({ "keys": keys }))?;
    } else {
        keys.iter().try_for_each(|key| output.line(key))?;
    }
    Ok(Ending::Done)
}

/// Token ids between white space and commas, also in the brackets of a JSON list.
fn parse(text: &str) -> Result<Vec<u64>, String> {
    let trimmed = text.trim();
    let inner = match (trimmed.strip_prefix('['), trimmed.strip_suffix(']')) {
        (None, None) => trimmed,
        (Some(_), Some(_)) if trimmed.len() > 1 => &trimmed[1..trimmed.len() - 1],
        _ => return Err("a list of token ids has both its brackets, or none".to_owned()),
    };
    let mut tokens = Vec::new();
    let refused = |count: usize, part: &str, what: &str| {
        let before = part.as_ptr().addr() - text.as_ptr().addr();
        let line = text[..before].matches('\n').count() + 1;
        format!(
            "token {} (line {line}) is {what}: a token id is a whole number from 0 to 2^63 - 1",
            count + 1
        )
    };
    if inner.trim().is_empty() {
        return Ok(tokens);
    }
    // A comma ends what may be the last line of many.
    let inner = if inner.len() == trimmed.len() { inner.strip_suffix(',').unwrap_or(inner) } else { inner };
    for part in inner.split(',') {
        let before = tokens.len();
        for word in part.split_whitespace() {
            let token = word.parse::<u64>().ok().filter(|token| *token <= i64::MAX as u64);
            let short = || format!("{:?}", word.chars().take(40).collect::<String>());
            tokens.push(token.ok_or_else(|| refused(tokens.len(), word, &short()))?);
        }
        // Keys of the rest would be keys of other text.
        if tokens.len() == before {
            return Err(refused(before, part, "missing between commas"));
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_separate_tokens_gives_the_same() {
        for text in ["1 2 3", "1,2,3", "[1, 2, 3]\n", "1\n2\n3\n", " 1,\t2 ,3 "] {
            assert_eq!(parse(text), Ok(vec![1, 2, 3]), "{text:?}");
        }
        assert_eq!(parse(" \n"), Ok(Vec::new()));
        assert_eq!(parse("[]"), Ok(Vec::new()));
    }

    #[test]
    fn a_token_that_is_missing_between_commas_is_not_passed_over() {
        for (text, place) in [
            ("1,,2", "token 2 (line 1) is missing"),
            ("1,\n ,2", "token 2 (line 1) is missing"),
            (",1", "token 1 (line 1) is missing"),
            ("[1,]", "token 2 (line 1) is missing"),
            ("1,,", "token 2 (line 1) is missing"),
            (",", "token 1 (line 1) is missing"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(place), "{text:?}: {why}");
        }
        assert_eq!(parse("1,\n2,\n"), Ok(vec![1, 2]));
    }

    #[test]
    fn what_is_no_token_is_told_with_its_place() {
        for (text, place) in [
            ("1 2\n-3", "token 3 (line 2)"),
            ("9223372036854775808", "token 1 (line 1)"),
            ("1 1.5", "token 2"),
            ("[1, [2]]", "token 2"),
            ("[1, 2", "brackets"),
            ("]", "brackets"),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.contains(place), "{text:?}: {why}");
        }
    }
}
