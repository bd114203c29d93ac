//! Units that are given back in Redis: the log loses its youngest records, whatever the state of its ring.

use std::time::Duration;

use tollgate::{Check, Limiter, ManualClock, MemoryStore, Policy, RedisStore};

use crate::support::{random::Random, redis_server::RedisServer};

/// Checks and credits of random sizes on both stores, with a ring that grows, is full, shrinks and grows again.
#[tokio::test]
async fn law_12_credits_of_a_log_of_any_length_agree_with_the_memory_store() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let builder = RedisStore::builder().plain_keys().clock(clock.clone()).deadline(Duration::from_secs(10));
    let redis = Limiter::new(builder.open(&server.url()).unwrap());
    let memory = Limiter::new(MemoryStore::new().with_clock(clock.clone()));
    for seed in 0..6 {
        let mut random = Random(seed);
        let policy = Policy::new(format!("p{seed}"), 1_000_000, Duration::from_secs(1)).unwrap();
        for round in 0..40 {
            // At each pace, the window has room for another number of records. Old ones leave meanwhile, so that a ring
            // begins anywhere when it grows.
            let step = [100, 1_000, 5_000][random.index(3)];
            for _ in 0..random.index(400) {
                // Some records are of one instant.
                clock.advance(Duration::from_micros([0, step, step][random.index(3)]));
                let cost = 1 + random.index(3) as u64;
                let decisions = [redis.check("k", &policy, cost).await, memory.check("k", &policy, cost).await];
                let [one, other] = decisions.map(|decision| format!("{:?}", decision.unwrap().policies()[0]));
                assert_eq!(one, other, "seed {seed}, round {round}");
            }
            let available = memory.peek("k", &policy).await.unwrap().available().unwrap();
            let spent = 1_000_000 - available;
            let units = match random.index(6) {
                0 => 1 + spent / 2,
                1 => 1 + spent * 9 / 10,
                2 => spent.saturating_sub(1).max(1),
                3 => spent + 1,
                _ => 1 + random.index(100) as u64,
            };
            let credited = redis.credit("k", &policy, units).await.unwrap();
            assert_eq!(credited, memory.credit("k", &policy, units).await.unwrap(), "seed {seed}, round {round}");
            // The waits of many costs show the records that are left.
            for share in 0..12 {
                let cost = 1_000_000 - (spent - credited) * share / 12;
                let check = || Check::new("k", &policy, cost.max(1));
                let peeks = [redis.peek_all(check()).await, memory.peek_all(check()).await];
                let [one, other] = peeks.map(|peek| format!("{:?}", peek.unwrap().policies()[0]));
                assert_eq!(one, other, "seed {seed}, round {round}, {units} of {spent} units, cost {cost}");
            }
        }
    }
}
