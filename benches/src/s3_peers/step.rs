//! A step of a measurement: its bytes, its time, its CPU, and how long each request took.

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A step under way.
#[derive(Debug)]
pub(crate) struct Started {
    cpu: Duration,
    at: Instant,
}

/// What a step took.
#[derive(Debug)]
pub(crate) struct Step {
    bytes: usize,
    wall: Duration,
    cpu: Duration,
    /// Sorted.
    requests: Vec<Duration>,
}

impl Started {
    pub(crate) fn now() -> Self {
        Self { cpu: cpu_time(), at: Instant::now() }
    }

    /// The end, of requests for so many bytes in all.
    pub(crate) fn done(self, bytes: usize, mut requests: Vec<Duration>) -> Step {
        requests.sort_unstable();
        Step { bytes, wall: self.at.elapsed(), cpu: cpu_time().saturating_sub(self.cpu), requests }
    }
}

impl Step {
    /// With the keys that `hicache bench` has; percentiles are those of requests.
    pub(crate) fn json(&self) -> Value {
        let (seconds, gb) = (self.wall.as_secs_f64(), self.bytes as f64 / 1e9);
        let at = |percent: usize| {
            let rank = (self.requests.len() * percent).div_ceil(100).max(1);
            self.requests[rank - 1].as_micros() as u64
        };
        json!({
            "bytes": self.bytes, "seconds": seconds, "gb_per_s": gb / seconds,
            "pages_per_s": self.requests.len() as f64 / seconds, "p50_us": at(50), "p99_us": at(99),
            "cpu_seconds_per_gb": if self.bytes > 0 { self.cpu.as_secs_f64() / gb } else { 0.0 },
        })
    }
}

/// CPU time of all threads of this process, in the kernel too.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
