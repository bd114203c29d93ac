//! Processes of two versions on one server: each format of the log has its own keys, and neither disturbs the other.

use std::time::Duration;

use tollgate::redis::{self, Connection, Script};
use tollgate::{Limiter, Policy, RedisStore};

use crate::support::redis_server::RedisServer;

/// The script of the version before the current format.
const OLD_SCRIPT: &str = include_str!("format_l4.lua");
const OLD_KEY: &str = "tollgate:{k}:p:l4:3600000000";
const LIMIT: u64 = 500;

/// Charges one unit as the old version does. Returns whether it fits, and the available units.
fn old_check(connection: &mut Connection, script: &Script) -> (bool, u64) {
    let policy =
        [&[1, 0][..], &(LIMIT as u32).to_le_bytes(), &3_600e6_f64.to_le_bytes(), &1_f64.to_le_bytes()].concat();
    let charge = [1_u8, 0, 0, 1, 0, 0, 0];
    let reply: Vec<u8> =
        script.prepare_invoke().key(OLD_KEY).arg("").arg(policy).arg(&charge[..]).invoke(connection).unwrap();
    assert!(reply[8] < 2, "{}", String::from_utf8_lossy(&reply));
    (reply[8] == 1, u32::from_le_bytes(reply[9..13].try_into().unwrap()).into())
}

#[tokio::test]
async fn old_and_new_processes_count_separately_without_errors() {
    let server = RedisServer::start();
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let (limiter, policy) = (Limiter::new(store.clone()), Policy::per_hour("p", LIMIT).unwrap());
    let (mut connection, script) = (server.connection(), Script::new(OLD_SCRIPT));
    assert_ne!(store.redis_key("k", &policy), OLD_KEY);
    // Past the limit, through several sizes of the ring.
    for step in 1..=LIMIT + 20 {
        let expected = (step <= LIMIT, LIMIT.saturating_sub(step));
        assert_eq!(old_check(&mut connection, &script), expected, "old, step {step}");
        let decision = limiter.check("k", &policy, 1).await.unwrap();
        assert_eq!((decision.is_allowed(), decision.available()), (expected.0, Some(expected.1)), "new, step {step}");
    }
    for key in [OLD_KEY, &store.redis_key("k", &policy)] {
        let ttl: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        assert!(ttl > 3_600_000, "{key}: {ttl}");
    }
}
