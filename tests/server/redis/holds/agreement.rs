//! Law 12 with holds: random traces through memory and Redis agree on every field.

use std::time::Duration;

use tollgate::store::{Charge, HoldChange, Store};
use tollgate::{Algorithm, Check, ManualClock, MemoryStore, Policy, policy::HoldSettings};

use super::{builder, change, check, clock_at, with_clock};
use crate::support::seed::{self, seeds};
use crate::support::{cluster::Cluster, holds::random_trace, random::Random, redis_server::RedisServer};

const START_US: u64 = 1_767_225_600_000_000;

/// Policies of all algorithms, with holds that last for about a tenth of the window, for it, or longer.
fn policies(random: &mut Random) -> Vec<Policy> {
    let mut policies = Vec::new();
    for released in [false, true] {
        for ttl_us in [7, 90, 1_100] {
            let limit = [10, 37, Policy::MAX_LIMIT][random.below(3) as usize];
            let typical = Duration::from_micros(1 + random.below(200));
            let holds = HoldSettings::new()
                .with_ttl(Duration::from_micros(ttl_us))
                .with_typical_duration(typical)
                .with_unsettled_released(released);
            let policy = |algorithm| {
                let name = format!("p{}", policies.len());
                let policy = Policy::new(&name, limit, Duration::from_micros(100)).unwrap();
                policy.with_algorithm(algorithm).with_holds(holds)
            };
            let coarse = policy(Algorithm::SlidingWindowLog).with_resolution(Duration::from_micros(10));
            let bucket = policy(Algorithm::TokenBucket);
            let burst = bucket.clone().with_burst(5);
            let plain = [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];
            let made: Vec<_> = plain.into_iter().map(policy).chain([coarse, bucket, burst]).collect();
            // Some refuse nothing, and hold what fits beside the others.
            let shadow = |(number, policy): (usize, Policy)| policy.with_shadow(number % 3 == 1 && ttl_us == 90);
            policies.extend(made.into_iter().enumerate().map(shadow));
        }
    }
    policies
}

/// One step of a trace, on both stores.
struct Trace<'a> {
    random: Random,
    clock: ManualClock,
    memory: MemoryStore,
    redis: &'a dyn Store,
    /// Holds that were made; some have ended.
    made: Vec<Charge>,
}

impl Trace<'_> {
    async fn step(&mut self, policies: &[&Policy], keys: &[&str]) -> String {
        let Self { random, .. } = self;
        let jump = [0, 1, 10, 60, 400][random.below(5) as usize];
        self.clock.advance(Duration::from_micros(random.below(jump + 1)));
        if random.below(5) < 2 && !self.made.is_empty() {
            return self.change().await;
        }
        let mut whole: Option<Check> = None;
        for policy in policies {
            let most = policy.limit() + 2;
            let cost = if random.below(3) == 0 { units(random, most) } else { units(random, most / 3 + 1) };
            let key = keys[random.below(keys.len() as u64) as usize];
            let check = whole.take();
            let is_hold = random.below(2) == 0 && cost > 0;
            whole = Some(match (check, is_hold) {
                (None, true) => Check::hold(key, policy, cost),
                (None, false) => Check::new(key, policy, cost),
                (Some(check), true) => check.and_hold(key, policy, cost),
                (Some(check), false) => check.and(key, policy, cost),
            });
            if random.below(3) > 0 {
                break;
            }
        }
        let whole = whole.unwrap();
        let (memory, redis) = (check(&self.memory, &whole).await, check(self.redis, &whole).await);
        assert_eq!(
            (memory.allowed, memory.time_us, &memory.outcomes),
            (redis.allowed, redis.time_us, &redis.outcomes),
            "memory and Redis: {whole:?}"
        );
        if memory.allowed {
            // Shadow charges that do not fit are not held, so a change of such a hold is answered with `Expired`.
            self.made.extend(whole.charges().iter().filter(|charge| charge.hold.is_some()).cloned());
        }
        format!("{} {}", memory.allowed, memory.outcomes[0].available)
    }

    /// Changes one of the newest holds, or an older one that has ended.
    async fn change(&mut self) -> String {
        let Self { random, made, .. } = self;
        let newest = made.len() - 1;
        let index = newest - (random.below(8) as usize).min(newest);
        let hold = made[index].clone();
        let limit = hold.policy.limit();
        let made_change = match random.below(8) {
            0 => HoldChange::Renew,
            1 => HoldChange::Settle(0),
            2 => HoldChange::Settle(units(random, limit)),
            3 if random.below(6) == 0 => HoldChange::Settle(u64::MAX),
            _ => HoldChange::Settle(units(random, limit / 4 + 1)),
        };
        let memory = change(&self.memory, &hold, made_change).await;
        assert_eq!(memory, change(self.redis, &hold, made_change).await, "{made_change:?} of {hold:?}");
        format!("{memory:?}")
    }
}

fn units(random: &mut Random, bound: u64) -> u64 {
    random.below(bound)
}

async fn compare(redis: &dyn Store, clock: ManualClock, seed: u64, steps: u64, keys: &[&str]) {
    let mut random = Random(seed);
    let policies = policies(&mut random);
    let memory = MemoryStore::new().with_clock(clock.clone());
    let mut seen = std::collections::BTreeMap::<String, u64>::new();
    for (number, policy) in policies.iter().enumerate() {
        let other = &policies[(number * 7 + 3) % policies.len()];
        let mut checked = vec![policy];
        if other.name() != policy.name() {
            checked.push(other);
        }
        let mut trace = Trace {
            random: Random(seed + number as u64),
            clock: clock.clone(),
            memory: memory.clone(),
            redis,
            made: Vec::new(),
        };
        for _ in 0..steps {
            let kind = trace.step(&checked, keys).await;
            *seen.entry(kind.split(' ').next().unwrap().to_owned()).or_default() += 1;
        }
        clock.advance(Duration::from_millis(5));
    }
    for kind in ["true", "false", "Settled", "Expired"] {
        assert!(seen.get(kind).is_some_and(|count| *count > steps), "{seen:?}");
    }
}

#[tokio::test]
async fn law_12_memory_and_redis_agree_on_every_field_with_holds() {
    let server = RedisServer::start();
    for seed in seeds(seed::in_this_run(8).into()) {
        let clock = clock_at(START_US + seed * 1_000_000_000);
        let store = builder().prefix(format!("t{seed}:")).deny_cache(false).clock(clock.clone());
        compare(&store.open(&server.url()).unwrap(), clock, seed, 150, &["a", "b"]).await;
    }
}

#[tokio::test]
async fn law_12_a_deny_cache_changes_no_decision_with_holds() {
    let (server, clock) = (RedisServer::start(), clock_at(START_US));
    compare(&with_clock(&server, &clock), clock, 77, 150, &["a"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_12_memory_and_a_cluster_agree_with_holds_in_one_slot() {
    let (cluster, clock) = (Cluster::start(), clock_at(START_US));
    let store = builder().deny_cache(false).clock(clock.clone());
    let store = store.open_cluster([cluster.nodes[0].url().as_str()]).unwrap();
    compare(&store, clock, 5, 30, &["a"]).await;
}

#[tokio::test]
async fn law_12_redis_agrees_with_an_oracle_of_two_lists() {
    let server = RedisServer::start();
    for seed in seeds(seed::in_this_run(24).into()) {
        let clock = clock_at(START_US + seed * 1_000_000_007);
        let store = builder().deny_cache(seed % 2 == 0).clock(clock.clone()).open(&server.url()).unwrap();
        random_trace(&store, &clock, seed, 400).await;
    }
}
