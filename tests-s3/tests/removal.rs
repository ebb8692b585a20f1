//! A namespace that is cleared on a real server: all of it, however many listings that takes, and nothing else.

use hicache::{Namespace, PageLayout};
use hicache_s3_tests::{Kind, S3Server};
use hicache_testkit::{View, pages, wait};

#[test]
fn more_pages_than_one_request_may_remove_are_removed_and_those_of_another_namespace_stay() {
    let test = "more_pages_than_one_request_may_remove_are_removed_and_those_of_another_namespace_stay";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    let store = hicache::open(&server.access().url(&format!("{test}/{}", std::process::id()))).unwrap();
    let layout = PageLayout::opaque(512).unwrap();
    let [one, other] = ["one", "other"].map(|name| View::of(&store, name, layout, 128));
    let keys = pages::keys(0..1_100);
    keys.chunks(128).for_each(|keys| one.write(keys));
    other.write(&keys[..3]);
    assert_eq!(wait("clear", store.clear(&one.namespace)).unwrap(), 1_100);
    assert!(one.exists(&keys).iter().all(|there| !there));
    assert_eq!(other.hits(&keys[..3]), [true; 3]);
    let left = wait("namespaces", store.namespaces()).unwrap();
    assert_eq!(left.iter().map(Namespace::name).collect::<Vec<_>>(), ["other"]);
    eprintln!("fallbacks: {:?}", store.health().fallbacks);
    wait("close", store.close()).unwrap();
}
