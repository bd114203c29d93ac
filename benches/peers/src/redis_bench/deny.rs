//! A flood of checks on a spent key: the rate of denials from the deny cache, and the commands that Redis gets.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{future::Future, pin::pin};

use redis::Connection;
use serde_json::json;
use tollgate::{Limiter, Policy, RedisStore};

use crate::stats::{self, CommandStats, median};
use crate::{ROUNDS, Result, endpoint::Endpoint, report::Report};

pub async fn run(endpoint: &Endpoint, admin: &mut Connection, time: Duration, report: &mut Report) -> Result<()> {
    let store = RedisStore::builder().prefix("deny:").deadline(Duration::from_secs(10)).open(endpoint.url())?;
    let limiter = Limiter::new(store);
    let policy = Policy::per_hour("deny", 1)?;
    for expected in [true, false] {
        if limiter.check("flooder", &policy, 1).await?.is_allowed() != expected {
            return Err("deny: the first check must be allowed and the second denied".into());
        }
    }
    stats::reset_commandstats(admin)?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let (mut denials, start) = (0_u64, Instant::now());
        while start.elapsed() < time / ROUNDS {
            for _ in 0..1_000 {
                // A denial from the cache is ready at the first poll. A pending check has sent a command to Redis;
                // those commands are counted below.
                let check = pin!(limiter.check("flooder", &policy, 1));
                match check.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(decision) if !decision.as_ref().is_ok_and(tollgate::Decision::is_allowed) => {
                        denials += 1
                    }
                    Poll::Ready(_) => return Err("deny: a check of a spent key was allowed".into()),
                    Poll::Pending => {}
                }
            }
        }
        rates.push(denials as f64 / start.elapsed().as_secs_f64());
    }
    let commands = CommandStats::read(admin)?.calls;
    let per_second = median(rates);
    println!("\nspent key: {per_second:.0} denials/s from memory on one core, {commands} Redis commands");
    report.figure(json!({ "variant": "deny cache", "per_second": per_second, "redis_commands": commands }));
    report.ratio("deny_cache_per_second", per_second);
    report.ratio("deny_cache_redis_commands", commands as f64);
    Ok(())
}
