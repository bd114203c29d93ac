//! Sentinels that elect another master.

use std::time::{Duration, Instant};

use crate::{
    load::Load,
    record::now_us,
    scenario::{ONE_SECOND_US, Place, Trial},
    support::{redis_server::RedisServer, sentinel::Trio},
};

struct Watched {
    trio: Trio,
    killed_us: Option<u64>,
}

impl Place for Watched {
    fn address(&self) -> String {
        let urls: Vec<String> = self.trio.sentinels.iter().map(RedisServer::url).collect();
        format!("sentinels {}", urls.join(" "))
    }

    fn answers_us(&self) -> u64 {
        let (start, Trio { replica, sentinels, .. }) = (Instant::now(), &self.trio);
        loop {
            let at = now_us();
            // Sentinels cut off the clients of a server that they promote, us among them.
            if replica.try_command("ROLE").is_ok_and(|role| role.contains("master"))
                && sentinels[1..].iter().any(|sentinel| Trio::names(sentinel, replica))
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
    let set = || Watched { trio: Trio::start(Duration::from_millis(500)), killed_us: None };
    trial.run(set, |watched| {
        // As when a machine goes that both of them are on: one leaves sockets that are refused, the other silent ones.
        watched.trio.master.kill();
        watched.killed_us = Some(now_us());
        watched.trio.sentinels[0].signal("STOP");
    });
}
