//! A flood on a key that is spent: who answers, and how fast.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use redis::Connection;
use serde_json::json;
use tollgate::{Limiter, Policy, RedisStore};

use crate::{
    ROUNDS, Result,
    report::Report,
    server::RedisServer,
    stats::{self, CommandStats, median},
};

pub async fn run(server: &RedisServer, admin: &mut Connection, time: Duration, report: &mut Report) -> Result<()> {
    let store = RedisStore::builder().prefix("deny:").deadline(Duration::from_secs(10)).connect(&server.url(0))?;
    let limiter = Limiter::new(store);
    let policy = Policy::per_hour("deny", 1)?;
    for expected in [true, false] {
        if limiter.check("flooder", &policy, 1).await?.is_allowed() != expected {
            return Err("deny: the first check passes, the second does not".into());
        }
    }
    stats::reset_commandstats(admin)?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let (mut answers, start) = (0_u64, Instant::now());
        while start.elapsed() < time / ROUNDS {
            for _ in 0..1_000 {
                // Ready at once when it comes from the cache. Otherwise a command is on its way, which is counted.
                let check = pin!(limiter.check("flooder", &policy, 1));
                match check.poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(decision) if !decision.as_ref().is_ok_and(tollgate::Decision::is_allowed) => {
                        answers += 1
                    }
                    Poll::Ready(_) => return Err("deny: a check of a spent key was allowed".into()),
                    Poll::Pending => {}
                }
            }
        }
        rates.push(answers as f64 / start.elapsed().as_secs_f64());
    }
    let commands = CommandStats::read(admin)?.calls;
    let per_second = median(rates);
    println!("\ndenied key: {per_second:.0} answers/s on one core, {commands} Redis commands");
    report.figure(json!({ "variant": "deny cache", "per_second": per_second, "redis_commands": commands }));
    report.ratio("deny_cache_per_second", per_second);
    report.ratio("deny_cache_redis_commands", commands as f64);
    Ok(())
}
