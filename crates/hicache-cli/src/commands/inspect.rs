//! `hicache list`, `stat`, `verify`, `namespaces`, `drop`: a store as a whole.

use crate::args::{Drop, Inspect, Place, Verify};
use crate::failure::{Ending, Failure, Result};
use crate::output::{self, Output};
use crate::progress;
use crate::report::{Count, Size};
use crate::session::{Absent, Session};
use hicache::{Depth, Digest, Found, Namespace, PageLayout, Scan, State, StoreExt};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::SystemTime;

/// Finds that wait for the output.
const FINDS_MAX: usize = 1024;

pub(crate) fn list(args: &Inspect, output: &mut Output) -> Result {
    let mut session = Session::open(&args.place, Absent::Refuse)?;
    let mut first = true;
    let listed = session.run(|session| list_pages(session, args, output, &mut first));
    if output.is_json() {
        match &listed {
            // Part of the document is out already: its end says why there is no more.
            Err(failure) if !first => {
                output.bytes(b"],\"error\":")?;
                output.json(&failure.document())?;
                output.bytes(b"}\n")?;
            }
            Err(_) => (),
            Ok(unreadable) => {
                output.bytes(if first { b"{\"keys\":[]" } else { b"]" })?;
                if *unreadable > 0 {
                    output.bytes(format!(",\"unreadable\":{unreadable}").as_bytes())?;
                }
                output.bytes(b"}\n")?;
            }
        }
    }
    listed.map(ending)
}

/// Returns how many places could not be read.
fn list_pages(session: &Session, args: &Inspect, output: &mut Output, first: &mut bool) -> Result<u64> {
    let now = SystemTime::now();
    let scan = Scan { namespace: only(session, args)?, ..Scan::default() };
    if !output.is_json() && !output.is_quiet() {
        output.line(format_args!("store {} (key, bytes, namespace, age)", session.url()))?;
    }
    let mut unreadable = 0;
    walk(session, &scan, |found| {
        unreadable += u64::from(tell_unreadable(&found));
        let Some(key) = found.key.filter(|_| found.state == State::Listed) else { return Ok(()) };
        let written = found.written.and_then(|written| now.duration_since(written).ok());
        let age = written.map_or(0.0, |age| age.as_secs_f64());
        if !output.is_json() {
            return output.line(format_args!("{key} {} {} {age:.0}s", found.len, found.namespace));
        }
        output.bytes(if *first { b"{\"keys\":[" } else { b"," })?;
        *first = false;
        output.json(&json!({
            "key": key.to_string(), "namespace": &*found.namespace, "bytes": found.len, "age_seconds": age,
        }))
    })?;
    Ok(unreadable)
}

/// Whether pages may be there that nobody can say anything of, which is told.
fn tell_unreadable(found: &Found) -> bool {
    let State::Unreadable(why) = &found.state else { return false };
    output::note(format_args!("unreadable: {}: {why}", found.place));
    true
}

fn ending(unreadable: u64) -> Ending {
    if unreadable == 0 { Ending::Done } else { Ending::Failed }
}

pub(crate) fn stat(args: &Inspect, output: &mut Output) -> Result {
    let mut session = Session::open(&args.place, Absent::Refuse)?;
    let url = session.url();
    let (stat, unreadable) = session.run(|session| {
        let only = only(session, args)?;
        let (mut pages, mut bytes, mut files, mut unreadable) = (0_u64, 0_u64, 0_u64, 0_u64);
        let scan = Scan { namespace: only, ..Scan::default() };
        walk(session, &scan, |found| {
            files += 1;
            unreadable += u64::from(tell_unreadable(&found));
            if found.state == State::Listed {
                pages += 1;
                bytes += found.len;
            }
            Ok(())
        })?;
        let namespaces = if only.is_some() { 1 } else { session.namespaces()?.len() };
        let health = session.store().health();
        let mut stat = json!({
            "pages": pages, "bytes": bytes, "namespaces": namespaces, "files": files, "format": health.format,
        });
        if let Some(available) = health.available_len {
            stat["capacity_bytes"] = Value::from(bytes + available);
        }
        if unreadable > 0 {
            stat["unreadable"] = Value::from(unreadable);
        }
        Ok((stat, unreadable))
    })?;
    if output.is_json() {
        output.document(&stat)?;
        return Ok(ending(unreadable));
    }
    let size = |name: &str| stat[name].as_u64().map_or("unknown".to_owned(), |bytes| Size(bytes).to_string());
    output.line(format_args!("store       {url}"))?;
    output.line(format_args!("pages       {}", stat["pages"]))?;
    output.line(format_args!("bytes       {}", size("bytes")))?;
    output.line(format_args!("room        {} (bytes + free space)", size("capacity_bytes")))?;
    output.line(format_args!("namespaces  {}", stat["namespaces"]))?;
    output.line(format_args!("files       {}", stat["files"]))?;
    output.line(format_args!("format      {}", stat["format"].as_str().unwrap_or_default()))?;
    Ok(ending(unreadable))
}

pub(crate) fn verify(args: &Verify, output: &mut Output) -> Result {
    let (mut ok, mut wrong, mut torn, mut orphans, mut unverified) = (0, 0, 0, 0, 0);
    let (mut unreadable, mut repaired) = (0, 0_u64);
    // Pages that cannot be read are there all the same; what else cannot be may hold any number.
    let mut unread_pages = 0_u64;
    let mut session = Session::open(&args.inspect.place, Absent::Refuse)?;
    let url = session.url();
    let walked = session.run(|session| {
        let namespace = only(session, &args.inspect)?;
        let bar = progress::bar(output, None, "pages");
        walk(session, &Scan { namespace, depth: Depth::Contents, repair: args.repair }, |found| {
            bar.inc(1);
            let (count, flaw) = match &found.state {
                State::Sound => (&mut ok, None),
                // What nobody has read is not sound.
                State::Listed | State::Unverified => (&mut unverified, None),
                State::Wrong(why) => (&mut wrong, Some(("wrong", why))),
                State::Torn(why) => (&mut torn, Some(("torn", why))),
                State::Orphan(why) => (&mut orphans, Some(("orphan", why))),
                State::Unreadable(why) => (&mut unreadable, Some(("unreadable", why))),
            };
            *count += 1_u64;
            unread_pages += u64::from(found.key.is_some() && matches!(found.state, State::Unreadable(_)));
            repaired += u64::from(found.repaired);
            if let Some((what, why)) = flaw {
                let done = if found.repaired { " (removed)" } else { "" };
                bar.suspend(|| output::note(format_args!("{what}: {}: {why}{done}", found.place)));
            }
            Ok(())
        })?;
        bar.finish_and_clear();
        Ok(())
    });
    let pages = ok + wrong + torn + unverified + unread_pages;
    // What a walk has found that broke off is found all the same.
    let begun = pages + orphans + unreadable > 0;
    if output.is_json() && (begun || walked.is_ok()) {
        let mut document = json!({
            "pages": pages, "ok": ok, "wrong": wrong, "torn": torn, "orphans": orphans, "unverified": unverified,
            "unreadable": unreadable, "repaired": repaired,
        });
        if let Err(failure) = &walked {
            document["error"] = failure.document();
        }
        output.document(&document)?;
    } else if begun || walked.is_ok() {
        let so_far = if walked.is_ok() { "" } else { "so far " };
        output.line(format_args!("store {url}"))?;
        output.line(format_args!(
            "{so_far}{}: {ok} ok, {wrong} wrong, {torn} torn, {unverified} unverified, {unreadable} unreadable; {}; \
             {repaired} repaired",
            Count(pages, "page"),
            Count(orphans, "orphan")
        ))?;
    }
    walked?;
    Ok(match (wrong + torn, unreadable) {
        (0, 0) => Ending::Done,
        (0, _) => Ending::Failed,
        _ => Ending::DataWrong,
    })
}

pub(crate) fn namespaces(place: &Place, output: &mut Output) -> Result {
    let mut session = Session::open(place, Absent::Refuse)?;
    let url = session.url();
    let mut unreadable = 0;
    let rows = session.run(|session| {
        let mut rows = Vec::new();
        for namespace in session.namespaces()? {
            let (mut pages, mut bytes) = (0_u64, 0_u64);
            let scan = Scan { namespace: Some(namespace.digest()), ..Scan::default() };
            walk(session, &scan, |found| {
                unreadable += u64::from(tell_unreadable(&found));
                if found.state == State::Listed {
                    pages += 1;
                    bytes += found.len;
                }
                Ok(())
            })?;
            rows.push((namespace, pages, bytes));
        }
        Ok(rows)
    })?;
    if output.is_json() {
        let rows: Vec<_> = rows
            .iter()
            .map(|(namespace, pages, bytes)| {
                let digest = namespace.digest().to_string();
                json!({ "name": namespace.name(), "digest": digest, "pages": pages, "bytes": bytes })
            })
            .collect();
        output.document(&json!({ "namespaces": rows }))?;
    } else {
        if !output.is_quiet() {
            output.line(format_args!("store {url} (namespace, pages, bytes, page layout)"))?;
        }
        for (namespace, pages, bytes) in rows {
            output.line(format_args!(
                "{}: {}, {}, {}",
                namespace.name(),
                Count(pages, "page"),
                Size(bytes),
                namespace.layout()
            ))?;
        }
    }
    Ok(ending(unreadable))
}

pub(crate) fn drop(args: &Drop, output: &mut Output) -> Result {
    let mut session = Session::open(&args.place, Absent::Refuse)?;
    let url = session.url();
    let dropped = session.run(|session| {
        // Only the digest of a namespace says what is cleared, and one without a record has no layout to name.
        let digest = session.digest(&args.namespace)?;
        let namespace = Namespace::recorded(&args.namespace, digest, PageLayout::opaque(1)?);
        Ok(session.store().clear_blocking(&namespace)?)
    });
    if let Err(Failure::Store(error)) = &dropped
        && let Some(removed) = error.fact("removed").and_then(|removed| removed.parse::<u64>().ok())
        && output.is_json()
    {
        let failure = Failure::Store(error.clone()).document();
        output.document(&json!({ "removed": removed, "error": failure }))?;
    }
    let removed = dropped?;
    if output.is_json() {
        output.document(&json!({ "removed": removed }))?;
    } else {
        let removed = Count(removed, "page");
        output.line(format_args!("{removed} removed, with namespace {:?} of {url}", args.namespace))?;
    }
    Ok(Ending::Done)
}

/// The one namespace that is asked about, if there is one.
fn only(session: &Session, args: &Inspect) -> Result<Option<Digest>> {
    args.namespace.as_ref().map(|name| session.digest(name)).transpose()
}

/// Hands each find of a scan to `act`, on this thread, until there are no more or `act` fails.
fn walk(session: &Session, scan: &Scan, mut act: impl FnMut(Found) -> Result<()>) -> Result<()> {
    let (sender, receiver) = mpsc::sync_channel(FINDS_MAX);
    std::thread::scope(|scope| {
        // A store may walk inside the call, and then waits for room in the channel there.
        let walk = scope.spawn(move || {
            // When nobody reads any more, the rest of the walk is for nobody.
            let hand = move |found| match sender.send(found) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            session.store().scan(scan.clone(), Box::new(hand)).wait()
        });
        let acted = receiver.iter().try_for_each(&mut act);
        std::mem::drop(receiver);
        let walked = walk.join().expect("a scan reports its failures");
        acted?;
        Ok(walked?)
    })
}
