//! What a replay found, for scripts and for people.

use crate::failure::{Ending, Result};
use crate::output::Output;
use crate::replayer::Replayer;
use crate::session::Session;
use hicache::{Fallback, Health, Stats};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The JSON of `replay` and `demo`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    requests: u64,
    blocks: u64,
    hit_blocks: u64,
    hit_ratio: f64,
    stored_blocks: u64,
    bytes_read: u64,
    bytes_written: u64,
    read_gb_per_s: f64,
    write_gb_per_s: f64,
    load_p50_us: u32,
    load_p99_us: u32,
    wrong_pages: u64,
    damaged_pages: u64,
    unverified_pages: u64,
    /// Read by a ring into memory registered with it.
    registered_pages: u64,
    second_hits: u64,
    promoted: u64,
    degraded: u64,
    errors: u64,
    seconds: f64,
    rss_peak_bytes: u64,
    backend: String,
    mode: &'static str,
    engine: &'static str,
    fallbacks: Vec<Missed>,
}

/// The kind of row about memory that is reserved beforehand.
const HUGE_PAGES: &str = "huge_pages";

/// Characters of a line for people, after what it begins with.
const LINE_LEN: usize = 100;

/// Something that was asked for and not got.
#[derive(Debug, Serialize)]
pub(crate) struct Missed {
    pub(crate) what: &'static str,
    pub(crate) why: String,
}

impl Missed {
    /// As they are told. Each row about huge pages advises what would be enough for it alone: where there are several,
    /// they say that it goes for them together.
    pub(crate) fn all(fallbacks: impl IntoIterator<Item = Fallback>) -> Vec<Self> {
        let told = |fallback: Fallback| Self { what: fallback.what, why: fallback.why };
        let mut all: Vec<Self> = fallbacks.into_iter().map(told).collect();
        let is_reserved = |missed: &Self| missed.what == HUGE_PAGES && missed.why.contains("nr_hugepages");
        if all.iter().filter(|missed| is_reserved(missed)).count() > 1 {
            for missed in all.iter_mut().filter(|missed| is_reserved(missed)) {
                missed.why.push_str("; these are in addition to those of the other rows: reserve the sum");
            }
        }
        all
    }

    /// For people, one after the other, in lines that a terminal holds.
    pub(crate) fn print(all: &[Self], output: &mut Output) -> Result<()> {
        for Self { what, why } in all {
            for (index, line) in wrapped(&format!("{what}: {why}"), LINE_LEN).iter().enumerate() {
                output.line(format_args!("{:<11}{line}", if index == 0 { "without" } else { "" }))?;
            }
        }
        Ok(())
    }
}

/// The text in lines of at most `len` characters, where words and commands are no longer: these are in backticks, and
/// are to be copied.
fn wrapped(text: &str, len: usize) -> Vec<String> {
    let (mut lines, mut in_command): (Vec<String>, bool) = (Vec::new(), false);
    let (mut line, mut word) = (String::new(), String::new());
    for part in text.split_inclusive(' ') {
        word.push_str(part);
        in_command ^= part.matches('`').count() % 2 == 1;
        if in_command {
            continue;
        }
        if !line.is_empty() && line.len() + word.trim_end().len() > len {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        line.push_str(&std::mem::take(&mut word));
    }
    line.push_str(&word);
    lines.push(line);
    lines
}

impl Report {
    /// Of a replay that took `elapsed`.
    pub(crate) fn of(replayer: &Replayer<'_>, elapsed: Duration) -> Self {
        let (counts, stats, page_len) = (replayer.counts(), replayer.stats(), replayer.page_len());
        let health = replayer.session().store().health();
        let mut loads = counts.loads.clone();
        loads.sort_unstable();
        let (bytes_read, bytes_written) = (counts.hits * page_len, counts.stored * page_len);
        Self {
            requests: counts.requests,
            blocks: counts.blocks,
            hit_blocks: counts.hits,
            hit_ratio: counts.hits as f64 / counts.blocks.max(1) as f64,
            stored_blocks: counts.stored,
            bytes_read,
            bytes_written,
            read_gb_per_s: gb_per_s(bytes_read, counts.reading),
            write_gb_per_s: gb_per_s(bytes_written, counts.writing),
            load_p50_us: percentile(&loads, 50),
            load_p99_us: percentile(&loads, 99),
            wrong_pages: counts.wrong,
            damaged_pages: stats.damaged,
            unverified_pages: stats.unverified,
            registered_pages: stats.registered,
            second_hits: stats.second_hits,
            promoted: stats.promoted,
            degraded: stats.degraded,
            errors: counts.errors,
            seconds: elapsed.as_secs_f64(),
            rss_peak_bytes: rss_peak().unwrap_or(0),
            backend: replayer.session().url(),
            mode: mode(replayer.session(), &stats),
            engine: engine(&health, &stats),
            fallbacks: Missed::all(replayer.fallbacks()),
        }
    }

    /// Whether no request was replayed.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    /// How the command ends.
    pub(crate) fn ending(&self) -> Ending {
        match (self.wrong_pages, self.errors) {
            (0, 0) => Ending::Done,
            (0, _) => Ending::Failed,
            _ => Ending::DataWrong,
        }
    }

    /// The lines for people.
    pub(crate) fn print(&self, output: &mut Output) -> Result<()> {
        let percent = self.hit_ratio * 100.0;
        output.line(format_args!("requests   {} with {}", self.requests, Count(self.blocks, "block")))?;
        output.line(format_args!("hits       {}, {percent:.1} %", Count(self.hit_blocks, "block")))?;
        let read = Size(self.bytes_read);
        output.line(format_args!("read       {read} at {:.2} GB/s", self.read_gb_per_s))?;
        let written = Size(self.bytes_written);
        output.line(format_args!(
            "written    {written} at {:.2} GB/s, {}",
            self.write_gb_per_s,
            Count(self.stored_blocks, "block")
        ))?;
        let (p50, p99) = (Micros(self.load_p50_us), Micros(self.load_p99_us));
        output.line(format_args!("load       p50 {p50}, p99 {p99} a request"))?;
        output.line(format_args!(
            "checked    {} wrong, {} damaged, {} unverified, {}",
            self.wrong_pages,
            self.damaged_pages,
            self.unverified_pages,
            Count(self.errors, "error")
        ))?;
        if self.backend.starts_with("tier:") {
            output.line(format_args!(
                "tiers      {} of the second, {} promoted, {} degraded",
                Count(self.second_hits, "hit"),
                self.promoted,
                self.degraded
            ))?;
        }
        output.line(format_args!(
            "took       {:.1} s, {} of memory at most",
            self.seconds,
            Size(self.rss_peak_bytes)
        ))?;
        output.line(format_args!("store      {} ({}, engine {})", self.backend, self.mode, self.engine))?;
        Missed::print(&self.fallbacks, output)
    }
}

/// What moved the pages: the store's engine, unless it is a ring that was given none of them.
pub(crate) fn engine(health: &Health, stats: &Stats) -> &'static str {
    if health.engine == "io_uring" && stats.ring == 0 { "threads" } else { health.engine }
}

/// How most pages moved.
pub(crate) fn mode(session: &Session, stats: &Stats) -> &'static str {
    // Where nothing has moved, it is told how it would.
    let still = match session.store().health().engine {
        _ if session.url().starts_with("s3:") => "network",
        "none" => "memory",
        _ => "buffered",
    };
    let moved = [
        ("buffered", stats.buffered),
        ("bounce", stats.bounced),
        ("direct", stats.direct),
        ("network", stats.network),
    ];
    let moved = moved.into_iter().filter(|(_, pages)| *pages > 0);
    moved.into_iter().max_by_key(|(_, pages)| *pages).map_or(still, |(mode, _)| mode)
}

/// 10^9 bytes a second; 0 where no time passed.
pub(crate) fn gb_per_s(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 / 1e9 / time.as_secs_f64() }
}

/// The smallest of the sorted values that `percent` of them do not exceed; 0 of none.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The most memory that this process had, in bytes, by the kernel's account.
fn rss_peak() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// How many of something, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count(pub(crate) u64, pub(crate) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        write!(f, "{count} {what}{}", if *count == 1 { "" } else { "s" })
    }
}

/// Bytes, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.into_iter().find(|(scale, _)| self.0 >= *scale) {
            Some((scale, unit)) => write!(f, "{:.1} {unit}", self.0 as f64 / scale as f64),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// Microseconds, for people.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Micros(pub(crate) u32);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros if micros < 1_000 => write!(f, "{micros} us"),
            micros if micros < 1_000_000 => write!(f, "{:.1} ms", f64::from(micros) / 1e3),
            micros => write!(f, "{:.1} s", f64::from(micros) / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: &'static str, why: &str) -> Fallback {
        Fallback { what, why: why.to_owned() }
    }

    #[test]
    fn several_rows_that_each_reserve_huge_pages_say_that_the_sum_is_needed() {
        let [one, other] =
            ["echo 33 > nr_hugepages", "echo 5 > nr_hugepages"].map(|why| row("huge_pages", why));
        let told = Missed::all([one.clone(), row("numa", "refused"), other]);
        let says: Vec<bool> = told.iter().map(|missed| missed.why.contains("reserve the sum")).collect();
        assert_eq!(says, [true, false, true]);
        assert_eq!(Missed::all([one])[0].why, "echo 33 > nr_hugepages");
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<u32> = (1..=200).collect();
        assert_eq!((percentile(&sorted, 50), percentile(&sorted, 99)), (100, 198));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 99), percentile(&[], 99)), (7, 7, 0));
    }

    #[test]
    fn a_long_row_is_wrapped_and_a_command_in_it_stays_in_one_piece() {
        let text =
            "not enough: 33 pages wanted; reserve more with `echo 33 > /sys/kernel/nr_hugepages`, or less";
        let lines = wrapped(text, 40);
        assert!(lines.iter().all(|line| line.len() <= 40 || line.starts_with('`')), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("`echo 33 > /sys/kernel/nr_hugepages`")), "{lines:?}");
        assert_eq!((lines.join(" ").as_str(), lines.len()), (text, 4));
        let open = "an `open command, and no end of it at all";
        assert_eq!(wrapped(open, 10).join(" "), open);
        assert_eq!(wrapped("short", 10), ["short"]);
    }

    #[test]
    fn one_is_told_in_the_singular() {
        let texts = [0, 1, 2].map(|count| Count(count, "page").to_string());
        assert_eq!(texts, ["0 pages", "1 page", "2 pages"]);
    }

    #[test]
    fn sizes_have_the_unit_that_suits_them() {
        let texts = [0, 1023, 1024, 64 << 10, 3 << 29].map(|bytes| Size(bytes).to_string());
        assert_eq!(texts, ["0 B", "1023 B", "1.0 KiB", "64.0 KiB", "1.5 GiB"]);
    }
}
