//! Privacy of keys and secrets in Redis.

use std::time::Duration;

use http::{Request, request::Parts};
use tollgate::headers::{HeaderWriter, PartitionKeys};
use tollgate::{
    ApiKey, Check, HeaderKey, HeaderStyle, Key, KeyExtractor, Limiter, Policy, RedisStore, http, redis,
    store::RedisStoreBuilder,
};

use crate::support::redis_server::RedisServer;

const SECRET: &str = "a secret of more than 16 bytes";
const API_KEY: &str = "sk-live-x7q2";
const USER: &str = "alice@example.com";

fn policy() -> Policy {
    Policy::per_hour("p", 10).unwrap()
}

fn store(server: &RedisServer, builder: RedisStoreBuilder) -> RedisStore {
    builder.deadline(Duration::from_secs(10)).open(&server.url()).unwrap()
}

fn keys(server: &RedisServer) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query(&mut server.connection()).unwrap()
}

/// All strings of a reply, joined.
fn text(reply: &redis::Value) -> String {
    match reply {
        redis::Value::Array(values) => values.iter().map(|value| text(value) + " ").collect(),
        redis::Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Keys from each kind of source, single and combined.
fn subjects() -> Vec<Key> {
    let (parts, ()) = Request::builder().header("x-api-key", API_KEY).body(()).unwrap().into_parts();
    let extracted = |extractor: &dyn Fn(&Parts) -> Key| extractor(&parts);
    let header = HeaderKey::new("x-api-key").unwrap();
    let api_key = ApiKey::header("x-api-key").unwrap();
    let header = extracted(&|parts| header.extract(parts).unwrap().unwrap());
    let api_key = extracted(&|parts| api_key.extract(parts).unwrap().unwrap());
    let long = Key::from(API_KEY.repeat(9));
    vec![header, api_key.clone(), long, Key::from(USER), Key::join([Key::from(USER), api_key])]
}

#[tokio::test]
async fn law_10_no_raw_key_in_redis_or_in_its_commands() {
    for builder in [RedisStore::builder(), RedisStore::builder().key_secret(SECRET)] {
        let server = RedisServer::start();
        server.command("CONFIG SET slowlog-log-slower-than 0");
        server.command("CONFIG SET slowlog-max-len 1000");
        let limiter = Limiter::new(store(&server, builder));
        for subject in subjects() {
            let _ = limiter.check(&subject, &policy(), 1).await.unwrap();
            let _ = limiter.peek(&subject, &policy()).await.unwrap();
            limiter.reset(&subject, &policy()).await.unwrap();
            let _ = limiter.check(&subject, &policy(), 11).await.unwrap();
            let _ = limiter.check(&subject, &policy(), 1).await.unwrap();
        }
        let log = redis::cmd("SLOWLOG").arg("GET").arg(1_000).query(&mut server.connection()).unwrap();
        let sent = format!("{:?} {}", keys(&server), text(&log));
        assert!(sent.contains("EVALSHA") && sent.contains("UNLINK"), "{sent}");
        for raw in [API_KEY, "sk-live", USER, "example"] {
            assert!(!sent.contains(raw), "{raw} in {sent}");
        }
        for subject in subjects() {
            // The in-process hash of a credential would allow guesses to be verified.
            let known = String::from_utf8(subject.encoded().to_vec()).unwrap();
            assert!(!sent.contains(&known), "{known} in {sent}");
        }
        assert_eq!(keys(&server).len(), subjects().len(), "keys collide");
    }
}

/// With one secret for both, a response must not identify the count in Redis, nor the key in Redis the response.
#[tokio::test]
async fn law_10_the_partition_key_in_a_response_is_unrelated_to_the_redis_key() {
    let server = RedisServer::start();
    let store = store(&server, RedisStore::builder().key_secret(SECRET));
    let policy = policy().with_partition_keys(PartitionKeys::hmac(SECRET).unwrap());
    let decision = Limiter::new(store.clone()).check(USER, &policy, 1).await.unwrap();
    let mut headers = http::HeaderMap::new();
    HeaderWriter::new(HeaderStyle::Draft11).write(&decision, &mut headers);
    let text = headers["ratelimit"].to_str().unwrap();
    let partition = text.split_once("pk=:").unwrap().1.split_once(':').unwrap().0;
    // Converts to the alphabet of the Redis key.
    let partition = partition.replace('+', "-").replace('/', "_");
    let key = store.redis_key(USER, &policy);
    assert_eq!(keys(&server), [key.as_str()]);
    assert!(partition.len() == 16 && !key.contains(&partition), "{partition} in {key}");
}

#[tokio::test]
async fn with_plain_keys_identities_can_be_read_and_credentials_cannot() {
    let server = RedisServer::start();
    let store = store(&server, RedisStore::builder().plain_keys().key_secret(SECRET));
    let limiter = Limiter::new(store.clone());
    let api_key = Key::hashed(API_KEY);
    for subject in [&Key::from(USER), &api_key, &Key::join([Key::from(USER), api_key.clone()])] {
        let _ = limiter.check(subject, &policy(), 1).await.unwrap();
        assert!(keys(&server).contains(&store.redis_key(subject, &policy())));
    }
    let keys = keys(&server);
    assert!(keys.contains(&format!("tollgate:{{{USER}}}:p:l5:1h")), "{keys:?}");
    let hash = String::from_utf8(api_key.encoded()[1..].to_vec()).unwrap();
    assert!(keys.iter().all(|key| !key.contains(&hash) && key.matches('@').count() <= 1), "{keys:?}");
    assert_eq!(keys.iter().filter(|key| key.contains(USER)).count(), 1, "{keys:?}");
}

#[tokio::test]
async fn law_11_one_budget_with_the_same_secret_or_with_none() {
    let builders = || [RedisStore::builder(), RedisStore::builder().key_secret(SECRET)];
    let server = RedisServer::start();
    for builder in builders() {
        let instances = [store(&server, builder.clone()), store(&server, builder)].map(Limiter::new);
        for left in [9, 8, 7, 6] {
            let decision = instances[left % 2].check(USER, &policy(), 1).await.unwrap();
            assert_eq!(decision.available(), u64::try_from(left).ok());
        }
    }
    let another = RedisStore::builder().key_secret("another secret of 16 bytes or more");
    let fresh = Limiter::new(store(&server, another)).peek(USER, &policy()).await.unwrap();
    assert_eq!(fresh.available(), Some(10), "another secret starts fresh counts");
}

#[tokio::test]
async fn several_keys_in_a_check_have_separate_counts() {
    let server = RedisServer::start();
    let limiter = Limiter::new(store(&server, RedisStore::builder()));
    let q = Policy::per_hour("q", 10).unwrap();
    for _ in 0..2 {
        let check = Check::new("a", &policy(), 1).and("a", &q, 2).and("b", &policy(), 3);
        let _ = limiter.check_all(check).await.unwrap();
    }
    for (key, policy, left) in [("a", policy(), 8), ("a", q, 6), ("b", policy(), 4)] {
        assert_eq!(limiter.peek(key, &policy).await.unwrap().available(), Some(left), "{key}");
    }
}

#[test]
fn a_short_secret_is_an_error_that_does_not_show_it() {
    for length in [0, 15] {
        let error = RedisStore::builder().key_secret("x".repeat(length)).open("redis://host").unwrap_err();
        assert_eq!(error.to_string(), format!("a secret of {length} bytes could be guessed; use at least 16"));
    }
    let builder = RedisStore::builder().key_secret(SECRET);
    let shown = format!("{builder:?} {:?}", builder.clone().open("redis://127.0.0.1:1").unwrap());
    assert!(!shown.contains(SECRET) && !shown.contains("97, 32, 115"), "{shown}");
}
