//! `hicache bench keys`: how many page keys one core makes a second.

use super::html::Report;
use crate::args::BenchKeys;
use crate::failure::{Ending, Result};
use crate::output::Output;
use hicache::{KeyUnits, PageKey};
use serde::Serialize;
use serde_json::json;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Tokens in a page.
const PAGE_SIZES: [usize; 4] = [1, 16, 64, 512];
/// Tokens of the prompt that is cut into pages.
const TOKENS: u64 = 16_384;
/// Token ids are below this, as in a large vocabulary.
const VOCABULARY: u64 = 151_936;

#[derive(Debug, Serialize)]
struct Measured {
    page_size: usize,
    keys_per_s: f64,
    tokens_per_s: f64,
}

pub(crate) fn run(args: &BenchKeys, output: &mut Output) -> Result {
    let tokens: Vec<u64> = (0..TOKENS).map(|at| at * 7_919 % VOCABULARY).collect();
    let measure = |size: &usize| measure(&tokens, *size, args.seconds);
    let results = PAGE_SIZES.iter().map(measure).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &args.html {
        html(&results).write(path)?;
    }
    if output.is_json() {
        output.document(&json!({ "results": results }))?;
        return Ok(Ending::Done);
    }
    for Measured { page_size, keys_per_s, tokens_per_s } in results {
        let (thousands, millions) = (keys_per_s / 1e3, tokens_per_s / 1e6);
        output.line(format_args!(
            "pages of {page_size:>3} tokens: {thousands:>6.0} thousand keys/s, {millions:>6.1} million tokens/s"
        ))?;
    }
    Ok(Ending::Done)
}

fn html(results: &[Measured]) -> Report {
    let mut report = Report::new("hicache bench keys");
    report.fact("prompt", format_args!("{TOKENS} tokens, on one core"));
    let of = |figure: fn(&Measured) -> f64| {
        results.iter().map(move |row| (format!("pages of {} tokens", row.page_size), figure(row)))
    };
    report.plot("million tokens per second", of(|row| row.tokens_per_s / 1e6));
    report.plot("thousand keys per second", of(|row| row.keys_per_s / 1e3));
    report
}

fn measure(tokens: &[u64], page_size: usize, seconds: Duration) -> Result<Measured> {
    let page_len = NonZeroUsize::new(page_size).expect("the table has no 0");
    let (mut keys, started) = (0, Instant::now());
    while started.elapsed() < seconds {
        keys += black_box(PageKey::of_pages(None, black_box(tokens), page_len, KeyUnits::Token)?).len();
    }
    let keys_per_s = keys as f64 / started.elapsed().as_secs_f64();
    Ok(Measured { page_size, keys_per_s, tokens_per_s: keys_per_s * page_size as f64 })
}
