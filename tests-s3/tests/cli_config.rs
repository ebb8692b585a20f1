//! The command on the configuration that SGLang gives its plugin for S3.

use hicache_s3_tests::{Kind, S3Server};
use hicache_tests::Home;
use serde_json::json;

#[test]
fn the_configuration_of_sglangs_plugin_serves_every_command() {
    let test = "the_configuration_of_sglangs_plugin_serves_every_command";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let home = Home::new();
    let access = server.access();
    let plugin = json!({
        "active": true,
        "bucket": access.bucket,
        "endpoint_override": access.endpoint,
        "scheme": "http",
        "region": access.region,
        "access_key": access.access_key,
        "secret_key": access.secret_key,
        "num_threads": 2,
    });
    let document =
        json!({ "plugin": { "posix": { "active": false }, "obj": plugin }, "prefetch_threshold": 256 });
    // JSON in one line is YAML, too.
    for name in ["extra.json", "extra.yaml"] {
        let config = home.file(name, document.to_string());
        let checked = home.run(["config", "check", &config, "--json"]).ended(0).json();
        assert_eq!(checked["backend"], json!(format!("s3://{}", access.bucket)), "{checked}");
        let told = home.run(["doctor", "--config", &config, "--json"]).ended(0).json();
        let checks = told["checks"].as_array().unwrap();
        let of_service: Vec<_> =
            checks.iter().filter(|check| check["name"].as_str().unwrap().starts_with("s3_")).collect();
        assert!(of_service.len() >= 5 && of_service.iter().all(|check| check["ok"] == true), "{told}");
        let flags = ["--pages", "4", "--page-bytes", "64KiB", "--json", "--config", &config];
        let measured = home.run(["bench", "obj"].iter().chain(&flags)).ended(0).json();
        assert_eq!((&measured["mode"], &measured["write"]["bytes"]), (&json!("network"), &json!(256 << 10)));
    }
}

#[test]
fn each_configuration_that_the_documentation_shows_is_right() {
    let home = Home::new();
    let text = std::fs::read_to_string("../docs/CONFIG.md").unwrap();
    let mut shown = 0;
    // Of the pieces between fences, every other one is an example, after the name of its syntax.
    for example in text.split("```").skip(1).step_by(2) {
        let (syntax, document) = example.split_once('\n').unwrap();
        let config = home.file(&format!("shown.{syntax}"), document);
        home.run(["config", "check", &config]).ended(0);
        shown += 1;
    }
    assert!(shown >= 6, "{shown}");
}

#[test]
fn the_doctor_says_what_a_bucket_lacks_to_be_asked_and_looks_at_the_machine_all_the_same() {
    let home = Home::new();
    let told = home.run(["doctor", "--json", "--backend", "s3://bucket/kv"]).ended(0).json();
    let row = |name: &str| {
        let rows = told["checks"].as_array().unwrap().iter();
        rows.clone().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {told}")).clone()
    };
    let reached = row("s3_reachable");
    assert_eq!(reached["ok"], false);
    assert!(reached["found"].as_str().unwrap().contains("region is not known"), "{reached}");
    assert!(reached["fix"].as_str().unwrap().contains("set region, or an endpoint"), "{reached}");
    row("nofile");
    // What no service could mend is bad usage.
    home.run(["doctor", "--backend", "s3://bucket/kv?retries=many"]).ended(2);
}
