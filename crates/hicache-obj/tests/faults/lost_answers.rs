//! Answers to uploads that are lost: whose the page is that is there when it is sent again.

use crate::stage::{MIB, Stage};
use crate::stub::{Action, Close, Reply, Request, Settings, bounded};
use hicache_core::Stored;
use std::time::Duration;

fn stage(len: usize) -> Stage {
    Stage::settled(len, Settings::default(), |options| {
        options.read_timeout = Duration::from_secs(1);
        options.retries = 3;
        // Each set asks the service.
        options.exists_ttl = Duration::ZERO;
        options.multipart_threshold = MIB as u64;
    })
}

/// Done, and the answer says that it failed.
fn failed_after_all(status: u16, code: &'static str) -> Action {
    Action::normal().edit(move |reply| *reply = Reply::error(status, code))
}

fn ends_parts(request: &Request) -> bool {
    request.method == "POST" && request.query_value("uploadId").is_some()
}

/// Whether the page is counted as it is answered.
fn assert_counted(stage: &Stage, stored: Stored) {
    let (written, present) = if stored == Stored::Written { (2, 0) } else { (1, 1) };
    let stats = stage.stats();
    assert_eq!((stats.written, stats.present), (written, present), "{stats:?}");
}

#[test]
fn a_page_whose_answer_was_lost_is_written_by_the_call_that_finds_it_there() {
    bounded(|| {
        let faults: [fn() -> Action; 4] = [
            || Action::normal().wait(Duration::from_secs(4)),
            || failed_after_all(500, "InternalError"),
            || failed_after_all(502, "BadGateway"),
            || failed_after_all(504, "GatewayTimeout"),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            let stage = stage(65_536);
            stage.on_pages(move |_, n| if n == 0 { fault() } else { Action::normal() });
            assert_eq!(stage.set(1).unwrap(), Stored::Written, "{index}");
            let puts = stage.page_requests().iter().filter(|request| request.method == "PUT").count();
            assert_eq!(puts, 2, "{index}: the second found it there");
            assert_counted(&stage, Stored::Written);
            stage.stub.disconnect();
            stage.goes_on();
        }
    });
}

#[test]
fn a_page_in_parts_whose_end_was_not_heard_is_written_by_the_call_that_finds_it_there() {
    bounded(|| {
        let stage = stage(2 * MIB);
        let ended = std::sync::atomic::AtomicBool::new(false);
        stage.on_pages(move |request, _| {
            match (
                ends_parts(request),
                ended.fetch_or(ends_parts(request), std::sync::atomic::Ordering::SeqCst),
            ) {
                (true, false) => failed_after_all(500, "InternalError"),
                // Of a service that looks at the condition before it looks for the upload.
                (true, true) => Action::error(412, "PreconditionFailed"),
                (false, _) => Action::normal(),
            }
        });
        assert_eq!(stage.set(1).unwrap(), Stored::Written);
        assert_counted(&stage, Stored::Written);
        stage.goes_on();
    });
}

#[test]
fn a_page_that_was_there_before_the_call_is_present_also_where_a_connection_broke() {
    bounded(|| {
        let stage = stage(65_536);
        stage.set(1).unwrap();
        let object = stage.object(1);
        stage.stub.buckets().get_mut("b", &object).unwrap().modified -= 60;
        stage.on_pages(|_, n| if n == 0 { Action::hang_up(Close::Rst) } else { Action::normal() });
        assert_eq!(stage.set(1).unwrap(), Stored::Present);
        assert!(stage.stats().retries > 0, "{:?}", stage.stats());
        assert_eq!(stage.stats().present, 1);
        stage.goes_on();
    });
}

#[test]
fn a_page_that_another_wrote_a_moment_ago_is_present_where_no_answer_was_lost() {
    bounded(|| {
        let refusals: [fn() -> Action; 3] = [
            Action::normal,
            // It has not begun to store it.
            || Action::error(409, "ConditionalRequestConflict"),
            || Action::error(503, "SlowDown"),
        ];
        for (index, refusal) in refusals.into_iter().enumerate() {
            let stage = stage(65_536);
            stage.set(1).unwrap();
            stage.on_pages(move |_, n| if n == 0 { refusal() } else { Action::normal() });
            assert_eq!(stage.set(1).unwrap(), Stored::Present, "{index}");
        }
    });
}

#[test]
fn where_the_service_tells_no_time_a_page_that_is_there_is_present() {
    bounded(|| {
        let stage = stage(65_536);
        stage.on_pages(|_, n| match n {
            0 => failed_after_all(500, "InternalError"),
            _ => Action::normal().with("date", "soon"),
        });
        assert_eq!(stage.set(1).unwrap(), Stored::Present);
        assert_counted(&stage, Stored::Present);
    });
}
