//! Measurements of a service: the report, and what is left of one that does not come to its end.

use hicache_s3_tests::{Kind, S3Server};
use hicache_tests::{Home, Ran};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Within which a measurement has stored its first page.
const BEGUN: Duration = Duration::from_secs(60);

#[test]
fn a_report_of_a_service_is_one_file_that_needs_nothing_from_elsewhere_and_tells_no_secret() {
    let test = "a_report_of_a_service_is_one_file_that_needs_nothing_from_elsewhere_and_tells_no_secret";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    let (page, access) = (home.path("report.html"), server.access());
    let url = access.url(&format!("report/{}", std::process::id()));
    let flags =
        ["--pages", "4", "--page-bytes", "64KiB", "--html", page.to_str().unwrap(), "--backend", &url];
    home.run(["bench", "obj"].iter().chain(&flags)).ended(0);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
    assert_eq!(text.matches("<svg").count(), 5, "{text}");
    assert!(text.contains("<code>hicache bench obj") && text.contains("report.html"), "{text}");
    assert!(!text.contains(&access.secret_key) && text.contains(&access.bucket), "{text}");
    // The endpoint is in the command; nothing is loaded from it.
    for banned in ["<script", "src=", "href=", "url(", "NaN"] {
        assert!(!text.contains(banned), "{banned}: {text}");
    }
}

#[test]
fn a_measurement_of_a_service_tells_what_the_store_does_whoever_asked_for_it() {
    let test = "a_measurement_of_a_service_tells_what_the_store_does_whoever_asked_for_it";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    let url = server.access().url(&format!("told/{}", std::process::id()));
    let of = |options: &str, more: &[&str]| {
        let url = url.clone() + options;
        let flags = ["--pages", "4", "--page-bytes", "64KiB", "--json", "--backend", &url];
        let told = home.run(["bench", "obj"].iter().chain(&flags).chain(more)).ended(0).json();
        (told["concurrency"].as_u64().unwrap(), told["checksum"].as_bool().unwrap())
    };
    assert_eq!(of("", &[]), (32, true));
    assert_eq!(of("&concurrency=4&checksum=off", &[]), (4, false));
    assert_eq!(of("&concurrency=4", &["--concurrency", "2"]), (2, true));
}

/// Connections that nobody uses are given up where a process has no descriptor left for another.
#[test]
fn a_measurement_with_fewer_descriptors_than_requests_comes_to_its_end_and_leaves_nothing() {
    let test = "a_measurement_with_fewer_descriptors_than_requests_comes_to_its_end_and_leaves_nothing";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    let prefix = format!("few/{}", std::process::id());
    let url = server.access().url(&prefix);
    let flags = "--json --pages 200 --page-bytes 64KiB --concurrency 64";
    let script = format!("ulimit -n 40; exec \"$H\" bench obj {flags} --backend '{url}'");
    let told = home.shell(&script).ended(0).json();
    assert!(told["retries"].as_u64().unwrap() > 0, "there were enough: {told}");
    let left = server.client().keys(&prefix).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// A measurement that takes long, once pages of it are in the bucket.
fn begun(home: &Home, server: &S3Server, prefix: &str, options: &str) -> Child {
    let url = server.access().url(prefix) + options;
    let flags = ["--pages", "100000", "--page-bytes", "16KiB", "--concurrency", "4", "--backend", &url];
    let mut command = home.command(["bench", "obj"].iter().chain(&flags));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let started = Instant::now();
    while server.client().keys(prefix).unwrap().len() < 3 {
        assert!(started.elapsed() < BEGUN, "nothing was stored");
    }
    child
}

#[test]
fn a_measurement_that_is_stopped_leaves_no_object_also_of_calls_that_were_under_way() {
    let test = "a_measurement_that_is_stopped_leaves_no_object_also_of_calls_that_were_under_way";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    let prefix = format!("stopped/{}", std::process::id());
    let child = begun(&home, &server, &prefix, "");
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let ran = Ran::from(child.wait_with_output().unwrap()).ended(130);
    assert!(!ran.stderr.contains("is left"), "{}", ran.stderr);
    let left = server.client().keys(&prefix).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_measurement_that_is_stopped_while_the_service_stands_still_says_what_it_waits_for() {
    let test = "a_measurement_that_is_stopped_while_the_service_stands_still_says_what_it_waits_for";
    let Some(server) = S3Server::for_test(test, &Kind::OWN) else { return };
    let home = Home::new();
    let mut child = begun(&home, &server, &format!("still/{}", std::process::id()), "&deadline=5s");
    server.pause();
    let stopped = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("interrupted") && line.contains("once more")));
    server.resume();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{:?}", told.collect::<Vec<_>>());
}

#[test]
fn what_a_measurement_cannot_remove_from_a_lost_service_is_told_with_the_command_that_does() {
    let test = "what_a_measurement_cannot_remove_from_a_lost_service_is_told_with_the_command_that_does";
    let Some(mut server) = S3Server::for_test(test, &Kind::OWN) else { return };
    let home = Home::new();
    let prefix = format!("lost/{}", std::process::id());
    let child = begun(&home, &server, &prefix, "&retries=0&deadline=3s");
    server.kill();
    let ran = Ran::from(child.wait_with_output().unwrap()).ended(1);
    let secret = &server.access().secret_key;
    assert!(ran.stderr.contains("error: ") && !ran.stderr.contains(secret), "{}", ran.stderr);
    let advice = ran.stderr.split('`').nth(1).expect("a command");
    let namespace = advice.strip_prefix("hicache drop ").and_then(|rest| rest.split(' ').next());
    let namespace = namespace.unwrap_or_else(|| panic!("{}", ran.stderr));
    server.restart();
    let url = server.access().url(&prefix);
    let named = |url: &str| {
        let told = home.run(["namespaces", "--json", "--backend", url]).ended(0).json();
        told["namespaces"].as_array().unwrap().iter().any(|one| one["name"] == namespace)
    };
    assert!(named(&url), "{advice}");
    home.run(["drop", namespace, "--backend", &url]).ended(0);
    assert!(!named(&url));
}
