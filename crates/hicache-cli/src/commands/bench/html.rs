//! `--html`: what a measurement found, as one page with plots that needs nothing from elsewhere.

use crate::failure::{Failure, Result};
use crate::meter::Step;
use std::fmt::{self, Write};
use std::path::Path;

/// Pixels of a plot.
const WIDTH: f64 = 640.0;
const BAR: f64 = 22.0;
const LABEL_WIDTH: f64 = 170.0;
const VALUE_WIDTH: f64 = 90.0;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;\
    color:#1b1f24;background:#fff}h1{font-size:1.5rem}h2{font-size:1.05rem;margin:1.6rem 0 .3rem}\
    table{border-collapse:collapse}td{padding:.15rem 1rem .15rem 0;vertical-align:top}td:first-child{color:#57606a}\
    svg{max-width:100%;height:auto}svg text{font:13px system-ui,sans-serif;fill:currentColor}rect{fill:#2f6fdb}\
    code{background:#f3f4f6;padding:.1rem .3rem;overflow-wrap:anywhere}\
    @media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}code{background:#21262d}\
    rect{fill:#6ea8fe}}";

/// A page about one measurement.
#[derive(Debug)]
pub(super) struct Report {
    title: String,
    facts: Vec<(String, String)>,
    plots: Vec<Plot>,
}

#[derive(Debug)]
struct Plot {
    title: String,
    bars: Vec<(String, f64)>,
}

impl Report {
    pub(super) fn new(title: &str) -> Self {
        let mut report = Self { title: title.to_owned(), facts: Vec::new(), plots: Vec::new() };
        let registry = hicache::registry();
        // A URL may carry secrets, and a report is made to be shown.
        let words = std::env::args_os().map(|word| {
            let word = word.to_string_lossy().into_owned();
            if word.contains("://") || word.contains('?') { registry.redact(&word) } else { word }
        });
        let mut words: Vec<String> = words.collect();
        if let Some(program) = words.first_mut() {
            *program = "hicache".to_owned();
        }
        report.fact("command", words.join(" "));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
        report.fact("machine", format!("{cores} cores, Linux {}", kernel.trim()));
        report
    }

    /// A row of the table above the plots.
    pub(super) fn fact(&mut self, name: &str, value: impl fmt::Display) {
        self.facts.push((name.to_owned(), value.to_string()));
    }

    /// A plot of bars that start at zero. Its title names the unit.
    pub(super) fn plot(&mut self, title: &str, bars: impl IntoIterator<Item = (String, f64)>) {
        self.plots.push(Plot { title: title.to_owned(), bars: bars.into_iter().collect() });
    }

    /// The plots of a store's steps: of those that move pages, and of the one that asks for them. Latencies are those
    /// of one `call`.
    pub(super) fn plot_steps(&mut self, call: &str, moves: &[(&str, &Step)], exists: &Step) {
        let all = moves.iter().copied().chain([("exists", exists)]);
        let of =
            |figure: fn(&Step) -> f64| move |(name, step): (&str, &Step)| (name.to_owned(), figure(step));
        let moves = moves.iter().copied();
        self.plot("rate, GB/s", moves.clone().map(of(|step| step.gb_per_s)));
        self.plot("CPU, seconds per GB", moves.map(of(|step| step.cpu_seconds_per_gb)));
        self.plot("pages per second", all.clone().map(of(|step| step.pages_per_s)));
        let latency = |of_what| format!("latency of a {call}, {of_what}, microseconds");
        self.plot(&latency("median"), all.clone().map(of(|step| f64::from(step.p50_us))));
        self.plot(&latency("99 in 100"), all.map(of(|step| f64::from(step.p99_us))));
    }

    /// Writes it to `path`, over what is there.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.to_string())
            .map_err(Failure::file(format!("write the report {}", path.display())))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = escaped(&self.title);
        write!(f, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">")?;
        write!(f, "<meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>")?;
        writeln!(f, "<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<table>")?;
        for (name, value) in &self.facts {
            let value = escaped(value);
            let value = if name == "command" { format!("<code>{value}</code>") } else { value };
            writeln!(f, "<tr><td>{}</td><td>{value}</td></tr>", escaped(name))?;
        }
        f.write_str("</table>\n")?;
        self.plots.iter().try_for_each(|plot| plot.fmt(f))?;
        f.write_str("</body></html>\n")
    }
}

impl fmt::Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = self.bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let height = BAR * self.bars.len() as f64;
        writeln!(f, "<h2>{}</h2>", escaped(&self.title))?;
        writeln!(
            f,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">"
        )?;
        for (row, (label, value)) in self.bars.iter().enumerate() {
            let (top, base) = (BAR * row as f64, BAR * row as f64 + BAR * 0.7);
            let share = if most > 0.0 { value / most } else { 0.0 };
            let len = share * (WIDTH - LABEL_WIDTH - VALUE_WIDTH);
            write!(f, "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">", LABEL_WIDTH - 8.0)?;
            write!(f, "{}</text>", escaped(label))?;
            let (y, bar) = (top + BAR * 0.15, BAR * 0.7);
            write!(f, "<rect x=\"{LABEL_WIDTH}\" y=\"{y:.1}\" width=\"{len:.1}\" height=\"{bar:.1}\"/>")?;
            writeln!(f, "<text x=\"{:.1}\" y=\"{base}\">{}</text>", LABEL_WIDTH + len + 6.0, digits(*value))?;
        }
        f.write_str("</svg>\n")
    }
}

/// Three digits, and no more than a number needs.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// As HTML text.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for each in text.chars() {
        match each {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            other => {
                let _ = out.write_char(other);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_needs_nothing_from_elsewhere_and_runs_nothing() {
        let mut report = Report::new("a <script>alert(1)</script> & \"more\"");
        report.fact("where", "/tmp/<b>");
        report.plot("rate, GB/s", [("write <i>".to_owned(), 2.0), ("read".to_owned(), 4.0)]);
        let text = report.to_string();
        for banned in ["<script", "http:", "https:", "src=", "href=", "url(", "@import", "<i>", "<b>"] {
            assert!(!text.contains(banned), "{banned}: {text}");
        }
        assert_eq!(text.matches("<rect").count(), 2);
        assert!(text.contains("width=\"190.0\"") && text.contains("width=\"380.0\""), "{text}");
    }

    #[test]
    fn a_plot_of_nothing_and_of_zeros_is_still_a_plot() {
        let mut report = Report::new("empty");
        report.plot("none", []);
        report.plot("zeros", [("one".to_owned(), 0.0)]);
        assert!(!report.to_string().contains("NaN"));
    }
}
