//! Keys in Redis that can be guessed are warned of.

use tollgate::{Limiter, RedisStore, observe::Warning};

use crate::support::{per_minute, recorder::Recorder, redis_server::RedisServer};

#[tokio::test]
async fn redis_without_a_key_secret_is_warned_of_once_and_with_one_is_not() {
    let server = RedisServer::start();
    let stores = [
        (RedisStore::builder(), 1),
        (RedisStore::builder().key_secret("a secret of 16 bytes").unwrap(), 0),
        (RedisStore::builder().plain_keys(), 0),
    ];
    for (builder, told) in stores {
        let limiter = Limiter::new(builder.connect(&server.url()).unwrap());
        // Before anybody listens.
        limiter.check("alice", &per_minute("wide", 1_000_000), 1).await.unwrap();
        let recorder = Recorder::default();
        let limiter = limiter.with_observer(recorder.clone());
        for _ in 0..3 {
            limiter.check("alice", &per_minute("wide", 1_000_000), 1).await.unwrap();
        }
        assert_eq!(recorder.take().warnings, vec![Warning::GuessableKeys; told]);
    }
    // A credential is hashed in any case.
    let limiter = Limiter::new(RedisStore::builder().plain_keys().connect(&server.url()).unwrap());
    let recorder = Recorder::default();
    let limiter = limiter.with_observer(recorder.clone());
    limiter.check(tollgate::Key::hashed("sk-live-4242"), &per_minute("wide", 1_000_000), 1).await.unwrap();
    assert_eq!(recorder.take().warnings, [Warning::GuessableKeys]);
}
