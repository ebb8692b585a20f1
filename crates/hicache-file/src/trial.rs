//! Which of two ways is faster, found out in the traffic itself: windows of pages go the one and the other by turns.
//!
//! What counts is bytes a second while anything is under way, and not how long a page takes: where many pages queue for
//! one device, each waits for all, and pages of both ways would seem alike. So the turns are windows of pages, and time
//! is charged to the windows that have pages under way, by their share of them. Idle time counts for nobody. Turns
//! alternate as the Thue-Morse sequence does, so that neither way always goes first, or ends the batches. Of each turn
//! and its neighbour there is one ratio, and the median of a few decides: one that was disturbed does not.

use std::fmt;
use std::time::{Duration, Instant};

/// How a page gets between a device and memory that lies on base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The device reaches the page where it lies.
    Straight,
    /// Through a slot of the store's own on huge pages, and a copy.
    Bounce,
}

/// Pairs of turns that are compared.
const PAIRS: usize = 5;

/// Pairs without which nothing is decided, and the trial begins anew.
const PAIRS_MIN: usize = 3;

/// The first pair warms up, and is not compared.
const WINDOWS: usize = 2 * (1 + PAIRS);

/// Bytes of a window, at least: milliseconds, not less than what a scheduler takes away.
const WINDOW_LEN: usize = 16 << 20;

/// Pages of a window, at least.
const WINDOW_PAGES: usize = 32;

/// How many windows' worth of workers a window has: pages that overlap the next window are to be few.
const WINDOW_WORKERS: usize = 4;

/// How much faster the copy must be, since it costs CPU.
const MARGIN: f64 = 1.15;

/// A trial of both ways, fed with what happens and when.
#[derive(Debug)]
pub(crate) struct Trial {
    page_len: usize,
    window_pages: usize,
    windows: [Window; WINDOWS],
    /// Until when time is charged.
    charged: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    begun: usize,
    under_way: usize,
    busy: Duration,
    bytes: u64,
}

/// What a trial found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) way: Way,
    /// Rate of bouncing over rate of going straight: median, least and most of the pairs.
    pub(crate) ratio: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Trial {
    /// Of pages of `page_len` bytes, which so many workers move.
    pub(crate) fn new(page_len: usize, workers: usize) -> Self {
        let window_pages = (WINDOW_LEN / page_len).max(WINDOW_PAGES).max(WINDOW_WORKERS * workers);
        Self { page_len, window_pages, windows: Default::default(), charged: None }
    }

    /// So many pages begin, all in one window: its way, and its number for [`Trial::end`]. `None` when all windows have
    /// their pages, and are waited for.
    pub(crate) fn begin(&mut self, count: usize, now: Instant) -> Option<(Way, usize)> {
        let number = self.windows.iter().position(|window| window.begun < self.window_pages)?;
        self.charge(now);
        self.windows[number].begun += count;
        self.windows[number].under_way += count;
        Some((way_of(number), number))
    }

    /// A page of that window is over; `len` bytes moved. Gives the verdict when it was the last of all.
    pub(crate) fn end(&mut self, number: usize, len: usize, now: Instant) -> Option<Verdict> {
        self.charge(now);
        self.windows[number].under_way -= 1;
        self.windows[number].bytes += len as u64;
        let over = |window: &Window| window.under_way == 0 && window.begun >= self.window_pages;
        if !self.windows.iter().all(over) {
            return None;
        }
        let verdict = self.verdict();
        if verdict.is_none() {
            self.windows = Default::default();
        }
        verdict
    }

    fn charge(&mut self, now: Instant) {
        let passed = self.charged.map_or(Duration::ZERO, |charged| now.saturating_duration_since(charged));
        self.charged = self.charged.max(Some(now));
        let under_way: usize = self.windows.iter().map(|window| window.under_way).sum();
        for window in self.windows.iter_mut().filter(|window| window.under_way > 0) {
            window.busy += passed.mul_f64(window.under_way as f64 / under_way as f64);
        }
    }

    fn verdict(&self) -> Option<Verdict> {
        let pairs = self.windows.chunks_exact(2).enumerate().skip(1);
        let mut ratios: Vec<f64> = pairs.filter_map(|(pair, windows)| self.ratio(pair, windows)).collect();
        if ratios.len() < PAIRS_MIN {
            return None;
        }
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        // All turns but one must say so, too: where they differ, the noise is larger than the gain.
        let way = if ratio >= MARGIN && ratios[1] >= 1.0 { Way::Bounce } else { Way::Straight };
        Some(Verdict { way, ratio, least: ratios[0], most: ratios[ratios.len() - 1] })
    }

    /// `None` where one window moved too little: its pages were misses, or failed.
    fn ratio(&self, pair: usize, windows: &[Window]) -> Option<f64> {
        let enough = (self.window_pages * self.page_len) as u64 / 2;
        let rate = |window: &Window| window.bytes as f64 / window.busy.as_secs_f64();
        let sound = |window: &Window| window.bytes >= enough && !window.busy.is_zero();
        let ratio = rate(&windows[1]) / rate(&windows[0]);
        let ratio = if way_of(2 * pair) == Way::Straight { ratio } else { ratio.recip() };
        windows.iter().all(sound).then_some(ratio)
    }
}

/// The Thue-Morse sequence.
fn way_of(number: usize) -> Way {
    if number.count_ones().is_multiple_of(2) { Way::Straight } else { Way::Bounce }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} times as fast ({:.2} to {:.2} in {PAIRS} turns)", self.ratio, self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const PAGE_LEN: usize = 1 << 20;

    /// A device that moves one page after the other, for callers that have `depth` pages under way; `cost` says how
    /// long it has a page of that window, and whether it moves any bytes.
    fn run(trial: &mut Trial, depth: usize, mut cost: impl FnMut(Way, usize) -> (Duration, bool)) -> Verdict {
        let (mut now, mut queue) = (Instant::now(), VecDeque::new());
        for _ in 0..100_000 {
            while queue.len() < depth
                && let Some(begun) = trial.begin(1, now)
            {
                queue.push_back(begun);
            }
            let (way, window) = queue.pop_front().expect("a trial without pages under way takes some");
            let (time, moves) = cost(way, window);
            now += time;
            if let Some(verdict) = trial.end(window, if moves { PAGE_LEN } else { 0 }, now) {
                return verdict;
            }
        }
        panic!("no verdict")
    }

    fn micros(straight: u64, bounce: u64) -> impl FnMut(Way, usize) -> (Duration, bool) {
        move |way, _| (Duration::from_micros(if way == Way::Straight { straight } else { bounce }), true)
    }

    #[test]
    fn the_faster_way_wins_however_many_pages_queue_for_the_device() {
        for depth in [1, 4, 8] {
            let verdict = run(&mut Trial::new(PAGE_LEN, depth), depth, micros(1000, 500));
            assert_eq!(verdict.way, Way::Bounce);
            // What overlaps the next window takes a little from it.
            assert!((1.5..=2.01).contains(&verdict.ratio), "depth {depth}: {verdict}");
            let verdict = run(&mut Trial::new(PAGE_LEN, depth), depth, micros(500, 1000));
            assert_eq!(verdict.way, Way::Straight, "depth {depth}: {verdict}");
        }
    }

    #[test]
    fn a_gain_that_does_not_pay_for_the_copy_is_none() {
        let way = |bounce| run(&mut Trial::new(PAGE_LEN, 1), 1, micros(1000, bounce)).way;
        assert_eq!((way(1000), way(900), way(800)), (Way::Straight, Way::Straight, Way::Bounce));
    }

    #[test]
    fn one_turn_that_stalls_decides_nothing() {
        for stalled in 0..WINDOWS {
            let mut stalls = 1;
            let verdict = run(&mut Trial::new(PAGE_LEN, 1), 1, |way, window| {
                let stall = if window == stalled { std::mem::take(&mut stalls) } else { 0 };
                let time = if way == Way::Straight { 1000 } else { 500 };
                (Duration::from_micros(time) + Duration::from_secs(stall), true)
            });
            assert_eq!(verdict.way, Way::Bounce, "window {stalled}: {verdict}");
        }
    }

    #[test]
    fn turns_that_contradict_one_another_are_no_gain() {
        let slow = |pairs: &'static [usize]| {
            let verdict = run(&mut Trial::new(PAGE_LEN, 1), 1, |way, window| {
                let bounce = if pairs.contains(&(window / 2)) { 2000 } else { 500 };
                (Duration::from_micros(if way == Way::Straight { 1000 } else { bounce }), true)
            });
            assert!(verdict.ratio > 1.9, "{verdict}");
            verdict.way
        };
        assert_eq!((slow(&[0, 3]), slow(&[2, 5])), (Way::Bounce, Way::Straight));
    }

    #[test]
    fn time_in_which_nothing_is_under_way_counts_for_nobody() {
        let (mut trial, mut now) = (Trial::new(PAGE_LEN, 1), Instant::now());
        let verdict = loop {
            // Whoever asks takes longer over it when it goes through a slot.
            let (way, window) = trial.begin(1, now).unwrap();
            now += Duration::from_millis(1);
            if let Some(verdict) = trial.end(window, PAGE_LEN, now) {
                break verdict;
            }
            now += if way == Way::Bounce { Duration::from_secs(1) } else { Duration::ZERO };
        };
        assert!((verdict.ratio - 1.0).abs() < 0.01, "{verdict}");
    }

    #[test]
    fn misses_are_no_measurement_and_the_trial_begins_anew() {
        let mut trial = Trial::new(PAGE_LEN, 1);
        let misses = 2 * WINDOWS * trial.window_pages;
        let mut asked = 0;
        let verdict = run(&mut trial, 1, |way, _| {
            asked += 1;
            if asked <= misses {
                return (Duration::from_nanos(1), false);
            }
            (Duration::from_micros(if way == Way::Straight { 1000 } else { 500 }), true)
        });
        assert_eq!(verdict.way, Way::Bounce);
        assert_eq!(asked, misses + WINDOWS * trial.window_pages);
    }

    #[test]
    fn a_batch_goes_one_way_and_both_ways_move_as_much() {
        let (mut trial, now) = (Trial::new(PAGE_LEN, 1), Instant::now());
        let mut pages = [0, 0];
        let mut begun = Vec::new();
        while let Some((way, window)) = trial.begin(48, now) {
            pages[usize::from(way == Way::Bounce)] += 48;
            begun.extend([window; 48]);
        }
        assert_eq!(pages, [48 * WINDOWS / 2; 2]);
        assert_eq!(trial.begin(1, now), None, "the last are waited for");
        // No time passed: nothing can be said, and it begins anew.
        assert!(begun.into_iter().all(|window| trial.end(window, PAGE_LEN, now).is_none()));
        assert_eq!(trial.begin(1, now), Some((Way::Straight, 0)));
    }
}
