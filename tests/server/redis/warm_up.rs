//! The first checks of a process, before the first connection.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{Check, ErrorKind, Limiter, RedisStore, decision::Source, store::RedisStoreBuilder};

use super::{fake_server, policy};
use crate::support::proxy::{Fault, Proxy};
use crate::support::{link::Link, redis_server::RedisServer, timely};

const ROUND_TRIP: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(50);
const FIRST_DIAL: Duration = Duration::from_millis(250);

/// Asserts that Redis decides the first check of each store, and that the check is in time.
pub(crate) async fn assert_judged(store: impl Fn() -> RedisStore) {
    timely(FIRST_DIAL + DEADLINE, async || {
        let limiter = Limiter::new(store());
        let start = Instant::now();
        let decision = limiter.check("k", &policy(), 1).await;
        let waited = start.elapsed();
        match decision {
            // The network of the test was late.
            Err(error) if error.kind() == ErrorKind::Deadline => Duration::MAX,
            decision => {
                assert_eq!(decision.unwrap().source(), Source::Store);
                waited
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_first_check_over_a_round_trip_of_twenty_milliseconds_is_judged_by_redis() {
    let server = RedisServer::start();
    let link = Link::far_from(server.port(), ROUND_TRIP);
    for builder in [RedisStore::builder(), RedisStore::builder().batching(false)] {
        assert_judged(|| builder.clone().open(&link.url()).unwrap()).await;
    }
}

#[tokio::test]
async fn a_dial_of_two_seconds_succeeds_and_the_first_check_waits_for_it_as_long_as_it_is_set_to() {
    let server = RedisServer::start();
    let link = Link::far_from(server.port(), Duration::from_secs(1));
    let builder = RedisStore::builder().deadline(Duration::from_secs(3)).first_dial_deadline(Duration::from_secs(5));
    let limiter = Limiter::new(builder.open(&link.url()).unwrap());
    let decision = limiter.check("k", &policy(), 1).await;
    assert_eq!(decision.map(|decision| decision.source()).map_err(|error| error.to_string()), Ok(Source::Store));
}

#[tokio::test]
async fn all_checks_before_the_first_connection_get_verdicts() {
    let server = RedisServer::start();
    let link = Link::far_from(server.port(), ROUND_TRIP);
    let attempts = std::cell::Cell::new(0_u64);
    timely(FIRST_DIAL + 2 * DEADLINE, async || {
        attempts.set(attempts.get() + 1);
        let key = attempts.get();
        let limiter = Limiter::new(RedisStore::open(&link.url()).unwrap());
        let mut checks = JoinSet::new();
        let start = Instant::now();
        for number in 0..200_u64 {
            let limiter = limiter.clone();
            checks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(number / 4)).await;
                limiter.check(key, &policy(), 1).await
            });
        }
        let decisions = checks.join_all().await;
        let waited = start.elapsed();
        // The network of the test was late.
        if decisions.iter().any(|decision| decision.as_ref().is_err_and(|error| error.kind() == ErrorKind::Deadline)) {
            return Duration::MAX;
        }
        assert!(decisions.into_iter().all(|decision| decision.unwrap().is_allowed()));
        assert_eq!(limiter.peek(key, &policy()).await.unwrap().available(), Some(100_000 - 200));
        waited
    })
    .await;
}

#[tokio::test]
async fn the_first_check_behind_distant_sentinels_gets_a_verdict() {
    let trio = crate::support::sentinel::Trio::start(Duration::from_secs(60));
    let links: Vec<_> =
        trio.sentinels.iter().map(|sentinel| Link::far_from(sentinel.port(), ROUND_TRIP).url()).collect();
    assert_judged(|| RedisStore::builder().open_sentinel(&links, "mymaster").unwrap()).await;
}

#[tokio::test]
async fn the_first_check_on_a_distant_cluster_gets_a_verdict_also_across_slots() {
    let cluster = crate::support::cluster::Cluster::start();
    let links: Vec<_> = cluster.nodes.iter().map(|node| Link::far_from(node.port(), ROUND_TRIP).url()).collect();
    let store = || RedisStore::builder().open_cluster(&links).unwrap();
    assert_judged(store).await;
    let check = Check::new("foo", &policy(), 1).and("bar", &policy(), 1);
    assert!(Limiter::new(store()).check_all(check).await.unwrap().is_allowed());
}

/// A limiter whose server or cluster accepts connections and never replies.
fn of_silent(server: &Proxy, is_cluster: bool, builder: RedisStoreBuilder) -> Limiter {
    Limiter::new(if is_cluster { builder.open_cluster([server.url()]) } else { builder.open(&server.url()) }.unwrap())
}

fn silent_server() -> (Proxy, RedisServer) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    proxy.set(Fault::BlackHole);
    (proxy, server)
}

#[tokio::test]
async fn law_8_without_any_reply_only_the_first_checks_wait_longer_than_the_deadline() {
    let (silent, _server) = silent_server();
    for is_cluster in [false, true] {
        // Without a breaker, which would fail later checks at once.
        let limiter = || of_silent(&silent, is_cluster, RedisStore::builder().breaker(None));
        let mut late = limiter();
        timely(FIRST_DIAL + 2 * DEADLINE, async || {
            late = limiter();
            let start = Instant::now();
            let mut checks = JoinSet::new();
            for _ in 0..20 {
                let limiter = late.clone();
                checks.spawn(async move { limiter.check("k", &policy(), 1).await.unwrap_err() });
            }
            for error in checks.join_all().await {
                assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Deadline, false), "{error}");
                assert!(error.to_string().contains("no first connection within 250ms"), "{error}");
            }
            let waited = start.elapsed();
            assert!(waited >= FIRST_DIAL - DEADLINE / 2, "{waited:?}");
            waited
        })
        .await;
        for _ in 0..20 {
            timely(DEADLINE * 2, async || {
                let start = Instant::now();
                let error = late.check("k", &policy(), 1).await.unwrap_err();
                assert!(!error.may_have_charged(), "{error}");
                start.elapsed()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn law_8_a_later_check_waits_only_for_the_rest_of_the_first_dial() {
    let (silent, _server) = silent_server();
    for is_cluster in [false, true] {
        timely(FIRST_DIAL * 2 / 5 + DEADLINE, async || {
            let limiter = of_silent(&silent, is_cluster, RedisStore::builder().breaker(None));
            let early = tokio::spawn(limiter.check("k", &policy(), 1));
            tokio::time::sleep(FIRST_DIAL * 3 / 5).await;
            let start = Instant::now();
            limiter.check("k", &policy(), 1).await.unwrap_err();
            let waited = start.elapsed();
            early.await.unwrap().unwrap_err();
            waited
        })
        .await;
    }
}

#[tokio::test]
async fn law_8_without_a_deadline_for_the_first_dial_no_check_waits_longer_than_the_deadline() {
    let (silent, _server) = silent_server();
    for is_cluster in [false, true] {
        timely(DEADLINE * 2, async || {
            let builder = RedisStore::builder().first_dial_deadline(Duration::ZERO);
            let limiter = of_silent(&silent, is_cluster, builder);
            let start = Instant::now();
            limiter.check("k", &policy(), 1).await.unwrap_err();
            start.elapsed()
        })
        .await;
    }
}

#[tokio::test]
async fn law_8_the_deadline_restarts_with_the_first_connection_and_is_kept() {
    const DIAL: Duration = Duration::from_millis(60);
    const REPLY: Duration = Duration::from_millis(45);
    for batching in [true, false] {
        let (asked, first_call) = mpsc::channel();
        let port = fake_server::start(move |command| match command {
            "HELLO" => (DIAL, b"%1\r\n+proto\r\n:3\r\n".to_vec()),
            "EVALSHA" | "EVAL" => {
                let _ = asked.send(Instant::now());
                (REPLY, b"-NOSCRIPT No matching script.\r\n".to_vec())
            }
            _ => (Duration::ZERO, b"+OK\r\n".to_vec()),
        });
        // The time is below that of two replies.
        timely(DEADLINE + Duration::from_millis(30), async || {
            let builder = RedisStore::builder().batching(batching);
            let limiter = Limiter::new(builder.open(&format!("redis://127.0.0.1:{port}")).unwrap());
            let error = limiter.check("k", &policy(), 1).await.unwrap_err();
            let waited = first_call.try_recv().unwrap().elapsed();
            assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
            // Without a new deadline it would be over before the call: the dial takes longer than one. The server of
            // this test may see the call some milliseconds late.
            assert!(waited > DEADLINE / 2, "{waited:?}");
            waited
        })
        .await;
    }
}

#[tokio::test]
async fn a_first_dial_that_is_refused_is_an_error_at_once() {
    let mut gone = RedisServer::start();
    gone.kill();
    let closed = RedisServer::start_with(&["--requirepass", "hunter2"]);
    for (url, kind) in [(gone.url(), ErrorKind::Unavailable), (closed.url(), ErrorKind::StoreMisconfigured)] {
        timely(DEADLINE, async || {
            let start = Instant::now();
            let error = Limiter::new(RedisStore::open(&url).unwrap()).check("k", &policy(), 1).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            start.elapsed()
        })
        .await;
    }
}
