//! A step of a measurement: its bytes, its time, its CPU, and how long each batch took.

use crate::failure::Result;
use crate::report::{gb_per_s, percentile};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::{Duration, Instant};

/// Measures one step, over any number of stretches. What is done between them does not count.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pages: u64,
    bytes: u64,
    wall: Duration,
    cpu: Duration,
    /// Microseconds that each batch took.
    batches: Vec<u32>,
}

/// What a step came to. Bytes are those of pages; a step that moves none has no rate in GB/s.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Step {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) pages_per_s: f64,
    pub(crate) p50_us: u32,
    pub(crate) p99_us: u32,
    pub(crate) cpu_seconds_per_gb: f64,
}

impl Meter {
    /// Counts the time that `act` takes, and the CPU time of this process meanwhile.
    pub(crate) fn stretch(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let (cpu, started) = (cpu_time(), Instant::now());
        let done = act(self);
        self.wall += started.elapsed();
        self.cpu += cpu_time().saturating_sub(cpu);
        done
    }

    /// Counts a batch of `pages` and how long `act` takes for it. Within a stretch.
    pub(crate) fn batch(
        &mut self,
        pages: usize,
        page_len: u64,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let started = Instant::now();
        act()?;
        self.count(pages, page_len, started.elapsed());
        Ok(())
    }

    /// Counts a batch of `pages` that took so long beside others.
    #[cfg(feature = "obj")]
    pub(crate) fn beside(&mut self, pages: usize, page_len: u64, took: Duration) {
        self.count(pages, page_len, took);
    }

    fn count(&mut self, pages: usize, page_len: u64, took: Duration) {
        self.batches.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        self.pages += pages as u64;
        self.bytes += pages as u64 * page_len;
    }

    /// Whether the stretches took that long together.
    pub(crate) fn took(&self, at_least: Option<Duration>) -> bool {
        at_least.is_none_or(|least| self.wall >= least)
    }

    /// The end.
    pub(crate) fn step(mut self) -> Step {
        self.batches.sort_unstable();
        let seconds = self.wall.as_secs_f64();
        let per = |count: f64, unit: f64| if unit > 0.0 { count / unit } else { 0.0 };
        Step {
            bytes: self.bytes,
            seconds,
            gb_per_s: gb_per_s(self.bytes, self.wall),
            pages_per_s: per(self.pages as f64, seconds),
            p50_us: percentile(&self.batches, 50),
            p99_us: percentile(&self.batches, 99),
            cpu_seconds_per_gb: per(self.cpu.as_secs_f64(), self.bytes as f64 / 1e9),
        }
    }
}

/// CPU time of all threads of this process, in the kernel too.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stretches_count_and_cpu_is_time_of_this_process() {
        let mut meter = Meter::default();
        let busy = Duration::from_millis(30);
        let spin = || {
            // Where other tests burn CPU too, this process has had so much sooner than the clock says.
            let (started, clock) = (cpu_time(), Instant::now());
            while cpu_time() - started < busy || clock.elapsed() < busy {}
        };
        spin();
        meter
            .stretch(|meter| {
                meter.batch(2, 500_000_000, || {
                    spin();
                    Ok(())
                })
            })
            .unwrap();
        assert!(meter.took(None) && meter.took(Some(busy)));
        let step = meter.step();
        assert_eq!(step.bytes, 1_000_000_000);
        // Other tests of this process burn CPU at the same time: a lower bound only.
        assert!(step.cpu_seconds_per_gb >= busy.as_secs_f64(), "{step:?}");
        assert!(step.seconds < 20.0 && step.p50_us >= 10_000, "{step:?}");
    }

    #[test]
    fn a_step_without_bytes_has_no_rate_in_bytes() {
        let mut meter = Meter::default();
        meter.stretch(|meter| meter.batch(128, 0, || Ok(()))).unwrap();
        let step = meter.step();
        assert_eq!((step.bytes, step.gb_per_s, step.cpu_seconds_per_gb), (0, 0.0, 0.0));
        assert!(step.pages_per_s > 0.0);
    }
}
