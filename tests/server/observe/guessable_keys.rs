//! The warning about guessable keys in Redis.

use tollgate::Limiter;

use crate::support::recorder::{Recorder, assert_warnings};
use crate::support::redis_server::RedisServer;
use crate::support::{patient, per_minute};

#[tokio::test]
async fn redis_without_a_key_secret_is_warned_of_once_and_with_one_is_not() {
    let server = RedisServer::start();
    let stores = [(patient(), 1), (patient().key_secret("a secret of 16 bytes"), 0), (patient().plain_keys(), 0)];
    for (builder, warnings) in stores {
        let limiter = Limiter::new(builder.open(&server.url()).unwrap());
        // A check before the observer is set.
        let _ = limiter.check("alice", &per_minute("wide", 1_000_000), 1).await.unwrap();
        let recorder = Recorder::default();
        let limiter = limiter.with_observer(recorder.clone());
        for _ in 0..3 {
            let _ = limiter.check("alice", &per_minute("wide", 1_000_000), 1).await.unwrap();
        }
        assert_warnings(&recorder.take().warnings, &vec![("guessable_keys", "key_secret"); warnings]);
    }
    // With plain keys a credential is hashed and still warned of.
    let limiter = Limiter::new(patient().plain_keys().open(&server.url()).unwrap());
    let recorder = Recorder::default();
    let limiter = limiter.with_observer(recorder.clone());
    let _ = limiter.check(tollgate::Key::hashed("sk-live-x7q2"), &per_minute("wide", 1_000_000), 1).await.unwrap();
    assert_warnings(&recorder.take().warnings, &[("guessable_keys", "key_secret")]);
}
