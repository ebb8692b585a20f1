//! Sixty-four tasks that lose interest at any moment: nothing leaks, and every outcome is counted.

use hicache::{Get, PageKey};
use hicache_s3_tests::{Kind, S3Server};
use hicache_testkit::{View, pages, until};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

const TASKS: u64 = 64;
const ROUNDS: u64 = 10;
/// Pages of a batch: 64 x 10 x 8 are 5,120 pages of a turn, and there are two turns at least.
const BATCH: u64 = 8;
const PAGE_LEN: usize = 16 << 10;
/// Requests under way at once.
const CONCURRENCY: usize = 32;
/// Connections that are being closed at the moment in which they are counted.
const CLOSING: usize = 4;
/// What the process may grow by beyond its pool at most, in KiB; a good part of it is the program's own code.
const GROWTH: u64 = 160 << 10;
/// What it may keep of a turn, in KiB: a leak of one page in twenty would be more.
const KEPT: u64 = 4 << 10;
/// The turns by which one has to keep no more than that. A leak grows in each; the allocator's arenas in some.
const TURNS: u64 = 10;
/// The longest that a task waits before it loses interest.
const INTEREST_MICROS: u64 = 20_000;

/// A number that nobody chose, the same in each run.
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn keys(task: u64, round: u64) -> Vec<PageKey> {
    let first = (task * ROUNDS * TURNS + round) * BATCH;
    pages::keys(first..first + BATCH)
}

/// Connections of this process.
fn sockets() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    links.filter_map(|entry| fs::read_link(entry.path()).ok()).filter(|link| is_socket(link)).count()
}

fn is_socket(link: &Path) -> bool {
    link.to_string_lossy().starts_with("socket:")
}

/// A line of the process's own account, in KiB.
fn account(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// Sets a batch and gets the one before it, and waits for each as long as it likes.
async fn task(view: View, task: u64, rounds: Range<u64>) {
    for round in rounds {
        let chance = mixed(task * ROUNDS * TURNS + round);
        let interest = |chance: u64| Duration::from_micros(chance % INTEREST_MICROS);
        let set = view.backend.batch_set(view.puts(&keys(task, round)), view.call);
        match chance % 4 {
            // Dropped before it was ever polled.
            0 => drop(set),
            1 => assert!(set.await.first_error().is_none()),
            _ => drop(timeout(interest(chance >> 8), set).await),
        }
        let before = keys(task, round.saturating_sub(1));
        let gets: Vec<Get> = view.gets(&before);
        let get = view.backend.batch_get(gets, view.call);
        let Ok(outcomes) = timeout(interest(chance >> 24) * 4, get).await else { continue };
        for (key, outcome) in before.iter().zip(outcomes) {
            if let Some(page) = outcome.unwrap() {
                view.check(key, &page);
            }
        }
    }
}

#[test]
fn ten_thousand_pages_under_random_drops_leak_no_page_connection_or_memory() {
    let test = "ten_thousand_pages_under_random_drops_leak_no_page_connection_or_memory";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    // It has sockets of its own.
    let runtime = Runtime::new().unwrap();
    let idle = sockets();
    let prefix = format!("drops/{}", std::process::id());
    let url = format!("{}&concurrency={CONCURRENCY}&deadline=60s", server.access().url(&prefix));
    let store = hicache::open(&url).unwrap();
    let slots = u32::try_from(TASKS * BATCH * 2).unwrap();
    let view = View::of(&store, "drops", pages::opaque(PAGE_LEN), slots);
    // Every slot is touched, so that the pool is not what grows.
    drop(view.take(slots as usize).into_iter().map(|mut page| pages::fill(&mut page, 1)).collect::<Vec<_>>());
    let before = account("VmRSS");

    let run = |rounds: Range<u64>| {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for number in 0..TASKS {
                tasks.spawn(task(view.clone(), number, rounds.clone()));
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
        // What nobody waits for goes on until it is done.
        view.rest();
        account("RssAnon")
    };
    let mut grown = vec![run(0..ROUNDS)];
    for turn in 1..TURNS {
        grown.push(run(turn * ROUNDS..(turn + 1) * ROUNDS));
        if grown[turn as usize] < grown[turn as usize - 1] + KEPT {
            break;
        }
    }
    println!("the process after each turn, in KiB: {grown:?}");
    let rounds = grown.len() as u64 * ROUNDS;
    assert!(grown.len() < TURNS as usize, "the process grew in every turn, in KiB: {grown:?}");

    let stats = view.backend.stats();
    let items = TASKS * rounds * BATCH;
    assert_eq!(stats.written + stats.present, items, "every page set has its outcome: {stats:?}");
    assert_eq!(stats.hits + stats.misses, items, "every page asked for has its outcome: {stats:?}");
    assert_eq!((stats.errors, stats.timeouts, stats.damaged), (0, 0, 0), "{stats:?}");
    assert!(stats.hits > items / 10 && stats.misses < items, "both happened: {stats:?}");

    let open = sockets() - idle;
    assert!(open <= CONCURRENCY + CLOSING, "{open} connections for {CONCURRENCY} requests at once");
    let most = account("VmHWM").saturating_sub(before);
    assert!(most < GROWTH, "the process grew by {most} KiB at most");

    let all: Vec<PageKey> =
        (0..TASKS).flat_map(|task| (0..rounds).flat_map(move |round| keys(task, round))).collect();
    for batch in all.chunks(128) {
        assert!(view.exists(batch).into_iter().all(|there| there), "a page that was set is not there");
    }
    runtime.block_on(store.close()).unwrap();
    drop((view, store));
    until("the connections are closed with the store", || sockets() <= idle);
}
