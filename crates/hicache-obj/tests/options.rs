//! Every option: what holds where it is not set is what its table says, and each value is taken or refused.

use hicache_core::{ErrorKind, Source, StoreOptions};
use hicache_obj::{Addressing, ChecksumMode, Credentials, Encryption, OPTIONS, ObjOptions, Proxy};
use std::time::Duration;

fn parsed(pairs: &[(&str, &str)]) -> hicache_core::Result<ObjOptions> {
    let mut options = StoreOptions::default();
    for (name, value) in pairs {
        options.set(Source::Url, *name, *value);
    }
    ObjOptions::from_options(options)
}

fn one(name: &str, value: &str) -> ObjOptions {
    parsed(&[(name, value)]).unwrap_or_else(|error| panic!("{name}={value}: {error}"))
}

#[test]
fn what_is_not_set_is_as_the_table_says() {
    let default = parsed(&[]).unwrap();
    assert!(default == ObjOptions::default(), "{default:?}");
    let mut checked = 0;
    for spec in OPTIONS.iter().filter(|spec| spec.default != "none") {
        // Where the table's default is a value, setting it changes nothing.
        if let Ok(same) = parsed(&[(spec.name, spec.default)]) {
            assert!(same == default, "{}={}", spec.name, spec.default);
            checked += 1;
        }
    }
    assert!(checked >= 14, "{checked} defaults are values");
}

#[test]
fn each_value_is_taken() {
    assert_eq!(one("endpoint", "http://[::1]:9000/base/").endpoint.unwrap().url(), "http://[::1]:9000/base");
    assert!(one("endpoint_override", "https://s3.example.net").endpoint.unwrap().is_secure());
    assert_eq!(one("region", "eu-central-1").region.as_deref(), Some("eu-central-1"));
    assert_eq!(one("path_style", "true").addressing, Addressing::Path);
    assert_eq!(one("path_style", "false").addressing, Addressing::VirtualHost);
    assert_eq!(one("use_virtual_addressing", "true").addressing, Addressing::VirtualHost);
    let named = [
        ("env", Credentials::Environment),
        ("profile", Credentials::Profile(None)),
        ("profile:some", Credentials::Profile(Some("some".to_string()))),
        ("container", Credentials::Container),
        ("instance", Credentials::Instance),
        ("anonymous", Credentials::Anonymous),
        ("auto", Credentials::Auto),
    ];
    for (value, wanted) in named {
        assert_eq!(one("credentials", value).credentials, wanted, "{value}");
    }
    let keys = [("access_key", "a"), ("secrete_key", "b"), ("session_token", "c"), ("credentials", "static")];
    let wanted = Credentials::Static {
        access_key: "a".to_string(),
        secret_key: "b".to_string(),
        session_token: Some("c".to_string()),
    };
    assert_eq!(parsed(&keys).unwrap().credentials, wanted);
    assert_eq!(one("ca_bundle", "/a/b.pem").ca_bundle.unwrap().to_str(), Some("/a/b.pem"));
    assert_eq!(one("proxy", "off").proxy, Proxy::Off);
    assert_eq!(one("proxy", "http://p:3128").proxy, Proxy::Url("http://p:3128".to_string()));
    assert!(!one("checksum", "false").checksum);
    assert_eq!(one("checksum_mode", "crc64nvme").checksum_mode, ChecksumMode::Crc64Nvme);
    assert_eq!(one("req_checksum", "required").checksum_mode, ChecksumMode::Off);
    assert_eq!(one("sse", "AES256").encryption, Some(Encryption::Service));
    assert_eq!(one("sse", "aws:kms").encryption, Some(Encryption::Kms(None)));
    assert_eq!(one("sse", "aws:kms:k/1").encryption, Some(Encryption::Kms(Some("k/1".to_string()))));
    assert_eq!(one("storage_class", "STANDARD_IA").storage_class.as_deref(), Some("STANDARD_IA"));
    assert_eq!(one("concurrency", "7").concurrency.get(), 7);
    assert_eq!(one("num_threads", "2").threads.unwrap().get(), 2);
    assert_eq!(one("connect_timeout", "1s").connect_timeout, Duration::from_secs(1));
    assert_eq!(one("read_timeout", "250ms").read_timeout, Duration::from_millis(250));
    assert_eq!(one("idle_timeout", "2s").idle_timeout, Duration::from_secs(2));
    assert_eq!(one("retries", "0").retries, 0);
    assert_eq!(one("multipart_threshold", "8MiB").multipart_threshold, 8 << 20);
    assert_eq!(one("part_size", "5MiB").part_len, 5 << 20);
    assert_eq!(one("exists_ttl", "0s").exists_ttl, Duration::ZERO);
    assert!(one("forbidden_is_miss", "true").forbidden_is_miss);
}

#[test]
fn a_value_that_cannot_be_is_refused_by_name_and_without_a_secret() {
    let bad = [
        ("endpoint", "127.0.0.1:9000"),
        ("endpoint", "ftp://a"),
        ("endpoint", "http://user:pass@a"),
        ("endpoint", "http://a?b=c"),
        ("endpoint", "http://a:99999"),
        ("region", "eu central"),
        ("region", "a.evil.example/"),
        ("path_style", "maybe"),
        ("credentials", "imds"),
        ("credentials", "static"),
        ("ca_bundle", ""),
        ("proxy", "p:3128"),
        ("checksum_mode", "md5"),
        ("sse", "aes"),
        ("concurrency", "0"),
        ("concurrency", "5000"),
        ("threads", "-1"),
        ("connect_timeout", "0s"),
        ("read_timeout", "soon"),
        ("retries", "-1"),
        ("part_size", "1MiB"),
        ("exists_ttl", "x"),
        ("buckets", "x"),
    ];
    for (name, value) in bad {
        let error = parsed(&[(name, value)]).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{name}={value}: {error}");
    }
    for half in [[("access_key", "hushhush")], [("secret_key", "hushhush")], [("session_token", "hushhush")]]
    {
        let error = parsed(&half).expect_err("half a pair");
        assert!(!format!("{error:?}").contains("hushhush"), "{error:?}");
    }
    let both = [("access_key", "a"), ("secret_key", "hushhush"), ("credentials", "env")];
    let error = parsed(&both).expect_err("two kinds of credentials");
    assert!(!format!("{error:?}").contains("hushhush"), "{error:?}");
    let spaced =
        parsed(&[("access_key", "a"), ("secret_key", "hush hush")]).expect_err("a secret with a space");
    assert!(!format!("{spaced:?}").contains("hush hush"), "{spaced:?}");
}

#[test]
fn b019_a_secret_in_the_place_of_another_value_is_not_in_the_refusal() {
    let misplaced = [
        ("credentials", "static:hushhush"),
        ("credentials", "hushhush"),
        ("credentials", "env:hushhush"),
        ("access_key", "name hushhush"),
        ("sse", "customer:hushhush"),
        ("sse", "aws:kms:hush hushhush"),
        ("proxy", "hushhush"),
        ("endpoint", "http://name:hushhush@host"),
    ];
    for (name, value) in misplaced {
        let error = parsed(&[(name, value)]).expect_err(name);
        assert_eq!(error.fact("option"), Some(name), "{error:?}");
        assert!(!format!("{error:?}").contains("hushhush"), "{name}={value}: {error:?}");
    }
    let error = parsed(&[("credentials", "static:hushhush")]).expect_err("keys are options");
    assert!(error.to_string().contains("access_key and secret_key"), "{error}");
}

#[test]
fn b019_secrets_are_in_no_print_of_the_options() {
    let keys = [
        ("access_key", "name"),
        ("secret_key", "hushhush"),
        ("session_token", "hushtoken"),
        ("proxy", "http://u:hushproxy@p:1"),
    ];
    let printed = format!("{:?}", parsed(&keys).unwrap());
    assert!(!printed.contains("hush"), "{printed}");
}

#[test]
fn b019_a_location_that_is_no_bucket_is_refused_by_a_check_and_tells_no_secret() {
    let said = |url: &str| {
        let mut registry = hicache_core::StoreRegistry::default();
        registry.register(hicache_obj::ObjStore::FACTORY);
        let nothing = |_: &str| Ok(StoreOptions::default());
        let checked = registry.check_with(url, StoreOptions::default(), &nothing);
        let opened = registry.open(url, StoreOptions::default()).map(drop);
        let shown = registry.redact(url);
        for error in [checked.expect_err(url), opened.expect_err(url)] {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}: {error:?}");
            assert!(!format!("{error:?} {shown}").contains("S3cr3t"), "{url}: {error:?} {shown}");
        }
        registry.check_with(url, StoreOptions::default(), &nothing).expect_err(url).to_string()
    };
    for url in [
        "s3://USER:S3cr3t@bucket",
        "s3://USER:S3c/S3cr3t@bucket/p",
        "s3://S3cr3t@bucket",
        "s3:USER:S3cr3t@bucket",
        "s3://USER%3AS3cr3t%40bucket",
        "s3://USER:S3cr3t?x@bucket",
        "s3://bucket&secret_key=S3cr3t",
        "s3://bucket/p&secret_key=S3cr3t",
        "s3://bucket/p&secretkey=S3cr3t",
        "s3://bucket/p;secrete_key=S3cr3t",
        "s3://bucket;secret_key=S3cr3t",
        "s3://bucket;S3cr3t",
        "s3://bucket#S3cr3t",
        "s3://bucket/secret_key=S3cr3t",
        "s3://bucket/p#session_token=S3cr3t",
        "s3://bucket/p secret_key=S3cr3t",
        "s3://bucket/p%20secret_key=S3cr3t",
        "s3://bucket%3Fsecret_key=S3cr3t",
        "s3://bucket/p%3Fregion=x%26secret_key%3DS3cr3t",
        "s3://bucket?region=x;secret_key=S3cr3t",
        "s3://bucket?storage_class=x%3Bsecret_key=S3cr3t",
        "s3://bucket?endpoint=http://h:9000;secret_key=S3cr3t",
        "s3://bucket?endpoint=http://h:9000/%26secret_key=S3cr3t",
        "s3://bucket?endpoint=http://USER:S3cr3t@h",
        "s3://bucket?secret_key=a&S3cr3t=b",
    ] {
        said(url);
    }
    assert!(said("s3://bucket/p&secret_key=S3cr3t").contains("write ? before the first option"));
    assert!(said("s3://USER:S3cr3t@bucket").contains("access_key and secret_key"));
    for url in ["s3://bucket ", "s3://bucket/p ", "s3://bucket/%20p", "s3://bucket/p%0A"] {
        said(url);
    }
}

#[test]
fn a_prefix_may_have_marks_that_are_no_options() {
    for location in ["//b/a&b", "//b/a;b", "//b/a#b", "//b/team=llm/x", "//b/a b", "//b/u@h"] {
        (hicache_obj::ObjStore::FACTORY.locate)(location).unwrap();
    }
}
