//! A progress bar on standard error, where somebody can see it.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr, stdout};

/// A bar over `len` of something; hidden with `--json` and `--quiet`, and unless both outputs are terminals.
pub(crate) fn bar(output: &Output, len: Option<u64>, unit: &str) -> ProgressBar {
    if output.is_json() || output.is_quiet() || !stdout().is_terminal() || !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = match len {
        Some(len) => ProgressBar::new(len),
        None => ProgressBar::no_length(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    let counts = if len.is_some() { "{bar:32} {pos}/{len}" } else { "{spinner} {pos}" };
    let template = format!("{counts} {unit}, {{elapsed}} {{msg}}");
    bar.with_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
