//! Pages read in parts while the object changes, and ETags of every form (B078).

use crate::stage::{MIB, Stage, TAIL};
use crate::stub::{Action, Object, Request, Settings, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PARTS: usize = 8;

/// A page of eight parts that were never that short: what is tried does not depend on it.
fn in_parts() -> Arc<Stage> {
    in_parts_of(64 << 10)
}

fn in_parts_of(part_len: usize) -> Arc<Stage> {
    let stage = Stage::settled(PARTS * part_len, Settings::default(), |options| {
        options.multipart_threshold = part_len as u64;
        options.part_len = part_len as u64;
        options.retries = 2;
    });
    stage.set(1).unwrap();
    Arc::new(stage)
}

/// Another generation of the same length and metadata, with other bytes: no page of ours.
fn other_generation(object: &Object) -> Object {
    let body: Vec<u8> = object.body.iter().map(|byte| !byte).collect();
    Object { headers: object.headers.clone(), ..Object::new(body) }
}

/// Before the ranged get with that number, `change` is done to the object.
fn before_range(
    stage: &Arc<Stage>,
    number: usize,
    change: impl Fn(&Object) -> Object + Send + Sync + 'static,
) {
    let name = stage.object(1);
    let weak = Arc::downgrade(stage);
    let seen = AtomicUsize::new(0);
    stage.on_pages(move |request, _| {
        let ranged = request.method == "GET" && request.range().is_some();
        if let (true, Some(stage)) = (ranged && seen.fetch_add(1, Ordering::SeqCst) == number, weak.upgrade())
        {
            let mut buckets = stage.stub.buckets();
            let object = buckets.get_mut("b", &name).unwrap();
            *object = change(object);
        }
        Action::normal()
    });
}

fn ranges(stage: &Stage) -> Vec<Request> {
    stage.page_requests().into_iter().filter(|request| request.range().is_some()).collect()
}

#[test]
fn b078_a_page_in_parts_is_read_in_ranges_pinned_to_one_generation() {
    bounded(|| {
        let stage = in_parts_of(MIB);
        stage.on_pages(|_, _| Action::normal());
        assert!(stage.get(1).unwrap());
        let requests = stage.page_requests();
        let bytes: usize =
            ranges(&stage).iter().filter_map(Request::range).map(|(from, to)| to - from + 1).sum();
        assert_eq!(bytes, PARTS * MIB + TAIL, "every byte once: {requests:?}");
        let unpinned = ranges(&stage).iter().filter(|request| request.header("if-match").is_none()).count();
        assert!(unpinned <= 1, "{unpinned} ranges without If-Match");
    });
}

#[test]
fn b078_a_swap_between_ranges_never_gives_a_mixture() {
    bounded(|| {
        for ignores in [false, true] {
            for number in [1, 3, PARTS - 1] {
                let stage = in_parts_of(MIB);
                stage.stub.buckets().ignores_conditions = ignores;
                before_range(&stage, number, other_generation);
                // The generation that is there now is damaged, by our checksum: a miss.
                assert!(!matches!(stage.get(1), Ok(true)), "ignores={ignores} {number}");
                let stats = stage.stats();
                assert_eq!((stats.hits, stats.damaged + stats.errors), (0, 1), "ignores={ignores} {number}");
                assert!(ranges(&stage).len() <= 3 * PARTS, "{}", ranges(&stage).len());
            }
        }
    });
}

#[test]
fn b078_a_swap_to_another_sound_generation_is_read_from_its_start() {
    bounded(|| {
        // Somebody else wrote the same page anew: other ETag, same bytes.
        for number in [1, 3, PARTS - 1] {
            let stage = in_parts();
            before_range(&stage, number, |object| Object {
                etag: "\"another\"".to_string(),
                ..object.clone()
            });
            assert!(stage.get(1).unwrap(), "{number}");
            assert!(ranges(&stage).len() <= 3 * PARTS);
            assert_eq!(stage.stats().damaged, 0, "{number}");
        }
    });
}

#[test]
fn b078_an_object_that_changes_at_every_range_ends_as_an_error_or_a_miss() {
    bounded(|| {
        let stage = in_parts();
        let name = stage.object(1);
        let weak = Arc::downgrade(&stage);
        stage.on_pages(move |_, n| {
            if let Some(stage) = weak.upgrade() {
                stage.stub.buckets().get_mut("b", &name).unwrap().etag = format!("\"generation-{n}\"");
            }
            Action::normal()
        });
        assert!(!matches!(stage.get(1), Ok(true)));
        assert!(stage.page_requests().len() <= 8 * PARTS, "{} requests", stage.page_requests().len());
        stage.goes_on();
    });
}

#[test]
fn b078_a_shorter_or_longer_generation_is_never_a_page() {
    bounded(|| {
        for change in [-1_isize, 1, -65_536, 65_536] {
            for ignores in [false, true] {
                let stage = in_parts();
                stage.stub.buckets().ignores_conditions = ignores;
                before_range(&stage, 3, move |object| {
                    let mut body = object.body.to_vec();
                    body.resize(body.len().checked_add_signed(change).unwrap(), 0);
                    Object { headers: object.headers.clone(), ..Object::new(body) }
                });
                assert!(
                    !matches!(stage.get(1), Ok(true)) || ignores && change > 0,
                    "{change} ignores={ignores}"
                );
                stage.goes_on();
            }
        }
    });
}

#[test]
fn b078_a_server_that_answers_a_range_with_something_else_is_never_believed() {
    bounded(|| {
        // The whole object, another range, a range without saying which, and the wrong length of the right range.
        let faults: [fn(&Request) -> Action; 4] = [
            |_| {
                Action::normal().edit(|reply| {
                    reply.status = 200;
                    reply.unset("content-range");
                })
            },
            |_| Action::normal().edit(|reply| reply.set("content-range", "bytes 5-9/524288")),
            |_| Action::normal().edit(|reply| reply.unset("content-range")),
            |_| Action::normal().edit(|reply| reply.body.truncate(1000)),
        ];
        for (index, fault) in faults.into_iter().enumerate() {
            let stage = in_parts();
            stage.on_pages(move |request, _| match request.range() {
                Some((from, _)) if from > 0 => fault(request),
                _ => Action::normal(),
            });
            // Also right bytes under a wrong label: where no checksum is asked for, nothing else tells.
            assert!(!matches!(stage.get(1), Ok(true)), "{index}");
            stage.goes_on();
        }
    });
}

#[test]
fn b078_an_etag_of_any_form_is_taken_as_it_is() {
    bounded(|| {
        for etag in [
            "\"0123456789abcdef0123456789abcdef\"",
            "\"0123456789abcdef0123456789abcdef-24\"",
            "W/\"x\"",
            "",
            "0123456789abcdef",
            "\"\"",
            "\"a, b\"",
            "\"é\"",
        ] {
            let stage = in_parts();
            let small = Stage::settled(65_536, Settings::default(), |_| ());
            small.set(1).unwrap();
            for stage in [&*stage, &small] {
                let name = stage.object(1);
                stage.stub.buckets().get_mut("b", &name).unwrap().etag = etag.to_string();
                assert!(stage.get(1).unwrap(), "{etag:?}");
                assert!(stage.exists(1).unwrap(), "{etag:?}");
                assert_eq!(stage.stats().retries, 0, "{etag:?}");
            }
        }
    });
}

#[test]
fn b078_a_weak_etag_is_no_pin_since_a_strict_server_never_finds_it_equal() {
    bounded(|| {
        let stage = in_parts();
        let name = stage.object(1);
        stage.stub.buckets().get_mut("b", &name).unwrap().etag = "W/\"x\"".to_string();
        stage.on_pages(|request, _| match request.header("if-match") {
            Some(etag) if etag.starts_with("W/") => Action::error(412, "PreconditionFailed"),
            _ => Action::normal(),
        });
        assert!(stage.get(1).unwrap());
    });
}

#[test]
fn b078_a_put_answered_without_an_etag_or_with_any_is_stored() {
    bounded(|| {
        for etag in ["\"x-3\"", "W/\"x\"", "unquoted"] {
            let stage = in_parts();
            stage.on_pages(move |_, _| Action::normal().edit(move |reply| reply.set("etag", etag)));
            stage.set(2).unwrap_or_else(|error| panic!("{etag}: {error:?}"));
            stage.stub.script(|_, _| Action::normal());
            assert!(stage.get(2).unwrap(), "{etag}");
        }
    });
}
