//! Sentinels that promote the replica.

use std::time::{Duration, Instant};

use crate::scenario::{ONE_SECOND_US, Trial};
use crate::support::{redis_server::RedisServer, sentinel::Trio};
use crate::{load::Load, record::now_us, target::Target};

/// A master, which is killed, its replica, and three sentinels.
struct FailoverSentinels {
    trio: Trio,
    killed_us: Option<u64>,
}

impl Target for FailoverSentinels {
    fn address(&self) -> String {
        let urls: Vec<String> = self.trio.sentinels.iter().map(RedisServer::url).collect();
        format!("sentinels {}", urls.join(" "))
    }

    fn serves_again_us(&self) -> u64 {
        let (start, Trio { replica, sentinels, .. }) = (Instant::now(), &self.trio);
        loop {
            let at = now_us();
            // A promotion disconnects all clients of the server, this connection included.
            if replica.try_command("ROLE").is_ok_and(|role| role.contains("master"))
                && sentinels[1..].iter().any(|sentinel| Trio::reports_master(sentinel, replica))
            {
                return at;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no replica was elected");
        }
    }

    fn killed_us(&self) -> Option<u64> {
        self.killed_us
    }
}

#[test]
fn sentinels_elect_another_master() {
    let trial = Trial { name: "sentinel_failover", losses: 0, heals_within_us: ONE_SECOND_US, load: Load::STEADY };
    let set = || FailoverSentinels { trio: Trio::start(Duration::from_millis(500)), killed_us: None };
    trial.run(set, |failover| {
        // Simulates the loss of the machine of a master and a sentinel: one refuses connections, the other is silent.
        failover.trio.master.kill();
        failover.killed_us = Some(now_us());
        failover.trio.sentinels[0].signal("STOP");
    });
}
