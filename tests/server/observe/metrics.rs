//! Metrics of batches and of the deny cache.

use std::time::Duration;

use metrics::set_default_local_recorder;
use tollgate::{Limiter, RedisStore, observe::Metrics};

use crate::support::scrape::{assert_shows, recorder};
use crate::support::{per_minute, redis_server::RedisServer};

#[tokio::test]
async fn batches_and_the_deny_cache_are_counted() {
    let (recorder, handle) = recorder();
    let _guard = set_default_local_recorder(&recorder);
    let server = RedisServer::start();
    // A long deadline, so that a loaded machine causes no timeouts.
    let store = RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store).with_observer(Metrics::new());
    for _ in 0..10 {
        let _ = limiter.check("k", &per_minute("p", 1), 1).await.unwrap();
    }
    assert_shows(
        &handle,
        &[
            r#"tollgate_decisions_total{policy="p",outcome="denied"} 9"#,
            r#"tollgate_deny_cache_hits_total{policy="p"} 8"#,
            r#"tollgate_batch_checks_bucket{le="1"} 2"#,
            "tollgate_batch_checks_sum 2",
            "tollgate_batch_duration_seconds_count 2",
        ],
    );
}
