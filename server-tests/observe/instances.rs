//! The warning about a missing permission to count instances.

use std::time::{Duration, Instant};

use tollgate::{Limiter, MemoryStore, RedisStore, observe::Warning};

use crate::support::{per_minute, recorder::Recorder, redis_server::RedisServer};

#[tokio::test]
async fn law_13_a_missing_permission_to_count_instances_is_warned_of_once_with_the_remedy() {
    let server = RedisServer::start();
    // The ACL in the documentation of `RedisStore`, without the permissions for counting instances.
    server.command(
        "ACL SETUSER gate on >secret resetkeys ~tollgate:* resetchannels -@all +evalsha +eval +script|load +time +get \
         +getrange +setrange +pexpire +unlink +info",
    );
    let url = server.url().replace("redis://", "redis://gate:secret@");
    let recorder = Recorder::default();
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(5)).open(&url).unwrap();
    let limiter = Limiter::new(store).with_local_discovered(MemoryStore::new()).with_observer(recorder.clone());
    let start = Instant::now();
    let mut warnings = Vec::new();
    // The first registrations are a few hundred milliseconds apart, so several are refused.
    while start.elapsed() < Duration::from_millis(800) {
        let _ = limiter.check("k", &per_minute("p", 1_000), 1).await.unwrap();
        warnings.extend(recorder.take().warnings);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let [warning @ Warning::InstancesUnknown { key, reason }] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(key == "tollgate:instances" && reason.contains("NOPERM") && reason.contains("'zadd'"), "{warning:?}");
    let text = warning.to_string();
    assert!(text.contains(reason) && text.contains("+zadd +zremrangebyscore +pexpire +zcard"), "{text}");
    assert_eq!(warning.cause(), "instances_unknown");
}
