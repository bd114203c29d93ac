//! The warning about a missing permission to count instances.

use std::time::{Duration, Instant};

use tollgate::{Limiter, MemoryStore, RedisStore};

use crate::support::recorder::{Recorder, assert_warnings};
use crate::support::{per_minute, redis_server::RedisServer};

#[tokio::test]
async fn law_13_a_missing_permission_to_count_instances_is_warned_of_once_with_the_remedy() {
    let server = RedisServer::start();
    // The ACL in the documentation of `RedisStore`, without the permissions for counting instances.
    server.command(
        "ACL SETUSER gate on >secret resetkeys ~tollgate:* resetchannels -@all +evalsha +eval +script|load +time \
         +getrange +setrange +pexpire +unlink +info",
    );
    let url = server.url().replace("redis://", "redis://gate:secret@");
    let recorder = Recorder::default();
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(5)).open(&url).unwrap();
    let limiter = Limiter::new(store).with_local_fallback(MemoryStore::new(), None).with_observer(recorder.clone());
    let start = Instant::now();
    let mut warnings = Vec::new();
    // The first registrations are a few hundred milliseconds apart, so several are refused.
    while start.elapsed() < Duration::from_millis(800) {
        let _ = limiter.check("k", &per_minute("p", 1_000), 1).await.unwrap();
        warnings.extend(recorder.take().warnings);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_warnings(&warnings, &[("instances_unknown", "\"tollgate:instances\"")]);
    let text = warnings[0].to_string();
    assert!(text.contains("+eval +time +zadd +zremrangebyscore +pexpire +zcard"), "{text}");
    // Redis 7.0 does not name the command that a script may not call; later servers do.
    let is_reason = |words: &&str| text.contains(words);
    assert!(["can't run this command", "no permissions to run the 'zadd' command"].iter().any(is_reason), "{text}");
}
