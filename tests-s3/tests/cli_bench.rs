//! The report of a measurement of a service.

use hicache_s3_tests::{Kind, S3Server};
use hicache_tests::Home;

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
