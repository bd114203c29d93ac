//! `examples/server`: uploads of which three may run at once in two servers, and tokens that are charged afterwards.

use std::io::{Read, Write};
use std::time::{Duration, Instant};
use std::{net::TcpStream, thread};

use crate::support::proxy::{Fault, Proxy};
use crate::support::{print_line, until};
use crate::{running::Server, support::redis_server::RedisServer};

const TTL: Duration = Duration::from_secs(3);

/// Two servers that share a Redis.
fn servers(redis: &RedisServer) -> [Server; 2] {
    let url = redis.url();
    // The deadline is long, because the servers and Redis share the cores with other tests.
    let start = || Server::start(&["--redis", &url, "--hold-ttl", "3s", "--deadline", "5s"]);
    [start(), start()]
}

/// An upload that has begun. Dropping it hangs up.
struct Upload(TcpStream);

impl Upload {
    fn begin(server: &Server, ms: u64) -> Self {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "GET /upload?ms={ms} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        Self(stream)
    }
}

/// Whether an upload begins and ends.
fn passes(server: &Server) -> bool {
    let response = server.fetch("GET", "/upload?ms=0");
    assert!(matches!(response.status, 200 | 429), "{response:?}");
    response.status == 200
}

#[test]
fn three_uploads_run_at_once_in_two_servers_and_those_of_a_killed_server_end_with_their_time_to_live() {
    let redis = RedisServer::start();
    let [mut one, other] = servers(&redis);
    let uploads: Vec<Upload> = (0..3).map(|_| Upload::begin(&one, 60_000)).collect();
    let refused = other.fetch("GET", "/upload?ms=0");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.fields["ratelimit-policy"], "\"uploads\";q=3;qu=\"concurrent-requests\"");
    assert_eq!(refused.fields["retry-after"], "1");

    // Renewed three times in each time-to-live, they outlive it.
    let begun = Instant::now();
    while begun.elapsed() < 2 * TTL {
        assert!(!passes(&other), "after {:?}", begun.elapsed());
        thread::sleep(Duration::from_millis(50));
    }

    one.kill();
    let killed = Instant::now();
    until("the slots of the killed server are free", || passes(&other));
    let freed = killed.elapsed();
    print_line(&format!("example server: slots of a killed server were free after {freed:?}, of {TTL:?}"));
    // Each was renewed at most a third of the time-to-live before.
    assert!(freed > TTL * 2 / 3 - Duration::from_millis(200), "{freed:?}");
    assert!(freed < TTL + Duration::from_secs(1), "{freed:?}");
    drop(uploads);
    thread::sleep(Duration::from_millis(100));
    let again: Vec<Upload> = (0..3).map(|_| Upload::begin(&other, 60_000)).collect();
    assert!(!passes(&other));
    drop(again);
}

#[test]
fn a_client_that_hangs_up_frees_its_slot_at_once() {
    let redis = RedisServer::start();
    let [one, other] = servers(&redis);
    let _others = [Upload::begin(&one, 60_000), Upload::begin(&other, 60_000)];
    let mut freed: Vec<Duration> = (0..5)
        .map(|_| {
            // The slot of the last request is free a moment after its response has arrived.
            until("a slot is free", || passes(&one));
            thread::sleep(Duration::from_millis(100));
            let upload = Upload::begin(&one, 60_000);
            assert!(!passes(&other));
            drop(upload);
            let hung_up = Instant::now();
            while !passes(&other) {
                assert!(hung_up.elapsed() < Duration::from_secs(10));
                thread::sleep(Duration::from_millis(5));
            }
            hung_up.elapsed()
        })
        .collect();
    freed.sort_unstable();
    print_line(&format!("example server: slots of clients that hung up were free after {freed:?}"));
    assert!(freed[2] < Duration::from_millis(200), "{freed:?}");
}

/// The way to Redis is cut while the last uploads end, so their ends have to be sent again before the process exits.
#[test]
fn a_server_that_ends_gracefully_leaves_no_slot_behind() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let start = |url: &str| Server::start(&["--redis", url, "--hold-ttl", "60s", "--deadline", "2s"]);
    let (mut one, other) = (start(&proxy.url()), start(&redis.url()));
    let uploads: Vec<Upload> = (0..3).map(|_| Upload::begin(&one, 1_000)).collect();
    assert!(!passes(&other));
    one.terminate();
    proxy.set(Fault::Reset);
    thread::sleep(Duration::from_millis(1_500));
    proxy.set(Fault::Pass);
    assert!(one.wait().success());
    drop(uploads);
    let again: Vec<Upload> = (0..3).map(|_| Upload::begin(&other, 60_000)).collect();
    assert!(!passes(&other));
    drop(again);
}

#[test]
fn an_upload_that_ends_frees_its_slot() {
    let redis = RedisServer::start();
    let [one, other] = servers(&redis);
    let mut uploads: Vec<Upload> = (0..3).map(|_| Upload::begin(&one, 2_000)).collect();
    assert!(!passes(&other));
    let mut rest = Vec::new();
    let last = uploads.pop().unwrap();
    // The end of a chunked body.
    last.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut stream = &last.0;
    while !rest.ends_with(b"\r\n0\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        rest.extend(byte);
    }
    until("the slot is free while the connection is kept", || passes(&other));
}

#[test]
fn tokens_are_held_at_first_and_charged_with_what_was_used() {
    let redis = RedisServer::start();
    let [one, other] = servers(&redis);
    let first = one.fetch("POST", "/generate?estimate=400&actual=31");
    assert_eq!((first.status, first.remaining(), &*first.body), (200, 600, "{\"charged\":31}"));
    let left =
        |tokens| move |server: &Server| server.fetch("POST", "/generate?estimate=1&actual=0").remaining() == tokens;
    until("31 are charged", || left(1_000 - 31 - 1)(&other));

    for (query, text) in [
        ("estimate=many", "estimate=many is not a whole number"),
        ("actual=-1", "actual=-1 is not a whole number"),
        ("estimate=0", "estimate=0 would hold nothing"),
        ("cost=1", "\"cost\" is not a parameter"),
        ("ms=soon", "ms=soon is not a whole number"),
        ("estimate=1001", "it can never pass"),
    ] {
        let refused = one.fetch("POST", &format!("/generate?{query}"));
        assert!(refused.status == 400 && refused.body.contains(text), "{query}: {refused:?}");
    }

    // The excess is charged too.
    assert_eq!(other.fetch("POST", "/generate?actual=5000").body, "{\"charged\":5000}");
    until("nothing is left", || one.fetch("POST", "/generate").status == 429);

    for query in ["ms=soon", "ms=86400001", "s=1"] {
        assert_eq!(one.fetch("GET", &format!("/upload?{query}")).status, 400, "{query}");
    }
}

#[test]
fn tokens_are_held_while_the_model_works() {
    let redis = RedisServer::start();
    let [one, other] = servers(&redis);
    let mut working = TcpStream::connect(&one.address).unwrap();
    write!(working, "POST /generate?estimate=600&ms=60000 HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    // A small request leaves room for the large one, whichever arrives first.
    until("600 of 1000 are held", || other.fetch("POST", "/generate?estimate=1&actual=0").remaining() == 399);
    // Nothing is charged yet, so the wait is that for a hold, and not the time until charges leave the window.
    let refused = other.fetch("POST", "/generate?estimate=401&actual=0");
    assert_eq!((refused.status, &*refused.fields["retry-after"]), (429, "1"));
}
