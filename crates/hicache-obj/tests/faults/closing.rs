//! The end of a store: where its last handle goes, and what was accepted before.

use crate::stage::{self, MIB, Stage};
use crate::stub::{Action, Settings, bounded};
use hicache_core::{Call, ErrorKind, Store};
use hicache_obj::{Endpoint, ObjOptions, ObjStore};
use std::time::Duration;

/// A runtime must not be dropped in a task of another; the store's is its own thread's.
#[test]
fn a_store_dropped_inside_a_task_of_the_callers_ends_what_was_accepted() {
    bounded(|| {
        let stage = Stage::settled(MIB, Settings::default(), |_| ());
        stage.stub.script(|_, _| Action::normal().wait(Duration::from_millis(50)));
        let puts = (0..8).map(|n| stage.put(n)).collect();
        let pending = stage.backend.batch_set(puts, Call::default());
        let Stage { backend, store, stub, .. } = stage;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let outcomes = runtime.block_on(async move {
            let dropping = tokio::spawn(async move { drop((backend, store)) });
            dropping.await.expect("no runtime panics at being dropped in another");
            pending.await
        });
        assert!(outcomes.first_error().is_none(), "{outcomes:?}");
        drop(stub);
    });
}

#[test]
fn a_store_closed_inside_a_task_of_the_callers_refuses_from_then_on() {
    bounded(|| {
        let stage = Stage::settled(65_536, Settings::default(), |_| ());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        runtime.block_on(async {
            stage.store.close().await.unwrap();
            stage.store.close().await.unwrap();
        });
        assert_eq!(stage.set(1).unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// B027 asks for what is missing to be found at the start, and soon.
#[test]
fn b027_a_port_where_nobody_listens_is_told_at_open_and_soon() {
    bounded(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let endpoint = Some(Endpoint::parse(&format!("http://{address}")).unwrap());
        let options = ObjOptions { endpoint, credentials: stage::keys("a", "b"), ..ObjOptions::default() };
        let error = ObjStore::open("//b", options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(stage::story(&error).contains(&address.to_string()), "{error:?}");
        // Not as often as a page is asked for.
        assert!(stage::story(&error).contains("after 5 attempts"), "{error:?}");
    });
}

#[test]
fn a_server_that_never_answers_holds_an_open_for_its_deadline_at_most() {
    bounded(|| {
        // Connections are made, and nobody takes them.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mut options = ObjOptions {
            endpoint: Some(Endpoint::parse(&endpoint).unwrap()),
            credentials: stage::keys("a", "b"),
            ..ObjOptions::default()
        };
        options.common.deadline = Duration::from_secs(1);
        let (opened, took) = stage::timed(|| ObjStore::open("//b", options));
        let error = opened.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable), "{error:?}");
        assert!(took < Duration::from_secs(6), "{took:?}");
    });
}
