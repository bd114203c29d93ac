//! No raw key appears in events, logs and metrics.

use std::{net::IpAddr, time::Duration};

use axum::{Router, routing::get};
use metrics::set_default_local_recorder;
use tollgate::observe::{Metrics, Tracing};
use tollgate::{Error, ErrorKind, HeaderKey, Key, Limiter, ManualClock, MemoryStore, RateLimitLayer, RedisStore};
use tracing::Level;

use crate::support::{
    FlakyStore, SilentStore, http::get_with, log::Log, per_minute, recorder::Recorder, redis_server::RedisServer,
    scrape::recorder,
};

const SECRET: &str = "sk-live-x7q2";

/// Adds all observers to a limiter.
fn observed(limiter: Limiter, recorded: &Recorder) -> Limiter {
    // With a constant clock, the throttle would suppress all warnings but the first.
    let clock = ManualClock::default();
    let tracing = Tracing::new().with_clock(AdvancingClock(clock));
    limiter.with_observer(recorded.clone()).with_observer(tracing).with_observer(Metrics::new())
}

#[derive(Debug)]
struct AdvancingClock(ManualClock);

impl tollgate::clock::Clock for AdvancingClock {
    fn now_us(&self) -> u64 {
        self.0.advance(Duration::from_secs(2));
        self.0.now_us()
    }
}

#[track_caller]
fn assert_shows_no_secret(what: &str, text: &str, secrets: &[String]) {
    assert!(!text.is_empty(), "{what} is empty");
    for secret in secrets {
        assert!(!text.contains(secret), "{what} shows {secret}: {text}");
    }
}

#[tokio::test]
async fn law_10_no_raw_key_in_any_event_log_line_or_label() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let (log, _guard) = Log::start(Level::TRACE);
    let recorded = Recorder::default();
    let address: IpAddr = "203.0.113.77".parse().unwrap();
    let keys = [Key::from(SECRET), Key::from(address), Key::hashed(SECRET), Key::join([Key::from(SECRET)])];
    let mut secrets = vec!["sk-live".to_owned(), "x7q2".to_owned(), "203.0.113.77".to_owned()];
    secrets.extend(keys.iter().map(|key| String::from_utf8(key.encoded().to_vec()).unwrap()));

    let mut server = RedisServer::start();
    // With plain keys, errors of Redis contain the key. A long deadline, so that a loaded machine causes no timeouts.
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10));
    let store = builder.open(&server.url()).unwrap();
    let redis = observed(Limiter::new(store), &recorded);
    let memory = observed(Limiter::new(MemoryStore::new()), &recorded);
    let flaky = FlakyStore::default();
    let failing = observed(Limiter::new(flaky.clone()), &recorded);
    for key in &keys {
        for limiter in [&redis, &memory] {
            // Allowed, denied, and on Redis denied by the deny cache.
            for _ in 0..3 {
                let _ = limiter.check(key, &per_minute("p", 1), 1).await.unwrap();
            }
        }
        for kind in [ErrorKind::BadKey, ErrorKind::InvalidCall, ErrorKind::Deadline, ErrorKind::StoreMisconfigured] {
            flaky.fail(Some(Error::new(kind, "a reason")));
            failing.check(key, &per_minute("p", 1), 1).await.unwrap_err();
        }
        flaky.fail(None);
        let _ = failing.check(key, &per_minute("p", 1), 1).await.unwrap();
    }
    for key in &keys {
        memory.reset(key, &per_minute("p", 1)).await.unwrap();
        let silent = observed(Limiter::new(SilentStore), &recorded);
        let check = silent.check(key, &per_minute("p", 1), 1);
        tokio::time::timeout(Duration::from_millis(1), check).await.unwrap_err();
    }
    let layer = RateLimitLayer::new(memory, per_minute("r", 9), HeaderKey::new("x-api-key").unwrap());
    let app = Router::new().route("/", get(|| async {})).layer(layer);
    get_with(&app, "/", &[("x-api-key", SECRET), ("x-api-key", SECRET)]).await;
    // The error of a real server about a key of another type.
    server.command(&format!("SADD tollgate:{{{SECRET}}}:q:l5:1m x"));
    assert_eq!(redis.check(SECRET, &per_minute("q", 1), 1).await.unwrap_err().kind(), ErrorKind::BadKey);
    // A server that quotes the arguments of an unknown command.
    let quoting = RedisServer::start_with(&["--rename-command", "EVALSHA", ""]);
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10)).open(&quoting.url()).unwrap();
    let error = observed(Limiter::new(store), &recorded).check(SECRET, &per_minute("q", 1), 1).await.unwrap_err();
    assert!(error.to_string().ends_with("ERR unknown command 'EVALSHA'"), "{error}");
    server.kill();
    let layer = RateLimitLayer::new(redis, per_minute("r", 9), HeaderKey::new("x-api-key").unwrap());
    for layer in [layer.clone().fail_open(), layer.fail_closed()] {
        let app = Router::new().route("/", get(|| async {})).layer(layer);
        get_with(&app, "/", &[("x-api-key", SECRET)]).await;
    }

    let recorded = recorded.take();
    for outcome in ["allowed", "denied", "open", "closed"] {
        assert!(recorded.decisions.iter().any(|decision| decision.outcome == outcome), "{outcome}");
    }
    assert!(!recorded.resets.is_empty() && !recorded.abandoned.is_empty() && !recorded.refusals.is_empty());
    assert_shows_no_secret("an event", &recorded.debug, &secrets);
    let log = log.take();
    for target in ["tollgate::decision", "tollgate::store", "tollgate::batch", "tollgate::reset", "tollgate::refusal"] {
        assert!(log.iter().any(|line| line.contains(target)), "{target}");
    }
    assert_shows_no_secret("the log", &log.join("\n"), &secrets);
    assert_shows_no_secret("a scrape", &handle.render(), &secrets);
}
