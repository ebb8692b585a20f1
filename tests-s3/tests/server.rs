//! The servers themselves: they keep what they are given, over a kill too, and end with whoever started them.

use hicache_s3_tests::{Kind, S3Server};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Ends a wait that would never end.
const LIMIT: Duration = Duration::from_secs(60);

fn keeps_objects(server: &S3Server) {
    let client = server.client();
    let bytes: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    assert_eq!(client.get("objects/one"), Ok(None));
    client.put("objects/one", &bytes).unwrap();
    client.put("objects/two", b"").unwrap();
    assert_eq!(client.get("objects/one").unwrap().as_deref(), Some(bytes.as_slice()));
    assert_eq!(client.keys("objects/").unwrap(), ["objects/one", "objects/two"]);
    client.remove("objects/two").unwrap();
    assert_eq!(client.keys("objects/").unwrap(), ["objects/one"]);
    client.remove("objects/one").unwrap();
}

fn outlives_kill_and_pause(server: &mut S3Server) {
    let client = server.client();
    client.put("kept", b"over a kill").unwrap();
    server.kill();
    assert!(!server.is_healthy());
    assert!(client.get("kept").is_err());
    server.restart();
    assert_eq!(client.get("kept").unwrap().as_deref(), Some(b"over a kill".as_slice()));

    server.pause();
    assert!(!server.is_healthy(), "a paused server answered");
    server.resume();
    assert!(server.is_healthy());
    assert_eq!(server.client().get("kept").unwrap().as_deref(), Some(b"over a kill".as_slice()));
    server.kill();
}

#[test]
fn whichever_server_is_used_keeps_what_a_signed_request_gives_it() {
    let test = "whichever_server_is_used_keeps_what_a_signed_request_gives_it";
    let Some(server) = S3Server::for_test(test, &Kind::ALL) else { return };
    assert!(server.is_healthy());
    keeps_objects(&server);
}

#[test]
fn a_server_in_a_container_keeps_its_objects_over_kill_and_pause() {
    let test = "a_server_in_a_container_keeps_its_objects_over_kill_and_pause";
    let Some(mut server) = S3Server::for_test(test, &[Kind::Container]) else { return };
    assert_eq!(server.kind(), Kind::Container);
    keeps_objects(&server);
    outlives_kill_and_pause(&mut server);
}

#[test]
fn a_server_from_a_package_keeps_its_objects_over_kill_and_pause() {
    let test = "a_server_from_a_package_keeps_its_objects_over_kill_and_pause";
    let Some(mut server) = S3Server::for_test(test, &[Kind::Package]) else { return };
    assert_eq!(server.kind(), Kind::Package);
    keeps_objects(&server);
    outlives_kill_and_pause(&mut server);
}

#[test]
fn two_servers_at_once_are_two() {
    let test = "two_servers_at_once_are_two";
    let Some(one) = S3Server::for_test(test, &Kind::OWN) else { return };
    let Some(two) = S3Server::for_test(test, &Kind::OWN) else { return };
    assert_ne!(one.access().endpoint, two.access().endpoint);
    one.client().put("own", b"one").unwrap();
    assert_eq!(two.client().get("own"), Ok(None));
}

#[test]
fn a_server_ends_when_the_process_that_started_it_is_killed() {
    let test = "a_server_ends_when_the_process_that_started_it_is_killed";
    // The same question first: where no server is to be had, the program has none either.
    if S3Server::for_test(test, &Kind::OWN).is_none() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3-server"));
    command.env_remove("HICACHE_TEST_S3_ENDPOINT").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
    let address = told["endpoint"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    assert!(std::net::TcpStream::connect(&address).is_ok());

    program.kill().unwrap();
    program.wait().unwrap();
    let end = Instant::now() + LIMIT;
    while std::net::TcpStream::connect(&address).is_ok() {
        assert!(Instant::now() < end, "the server at {address} outlived its owner");
        std::thread::sleep(Duration::from_millis(20));
    }
}
