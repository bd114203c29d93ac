//! Law 12 where policies share a count and differ in limits, time-to-live, and whether they have holds. The clock may
//! go back, and counts are reset.

use std::time::Duration;

use tollgate::store::{Charge, HoldChange, Store};
use tollgate::{Algorithm, Check, Key, ManualClock, MemoryStore, Policy, clock::Clock, policy::HoldSettings};

use super::{answer, builder, change, check, clock_at, hold, with_clock};
use crate::support::seed::{self, seeds};
use crate::support::{ALGORITHMS, random::Random, redis_server::RedisServer};

const START_US: u64 = 1_767_225_600_000_000;

/// Policies that share their counts. Some release unsettled holds if `mixed`.
fn policies(algorithm: Algorithm, mixed: bool) -> Vec<Policy> {
    let plain = |limit| Policy::new("shared", limit, Duration::from_micros(100)).unwrap().with_algorithm(algorithm);
    let mut policies = vec![plain(10)];
    for (limit, ttl) in [(20, 7), (10, 90), (37, 40), (Policy::MAX_LIMIT, 300)] {
        let released = mixed && ttl == 40;
        let holds =
            HoldSettings::new().with_ttl(Duration::from_micros(ttl)).with_typical_duration(Duration::from_micros(55));
        policies.push(plain(limit).with_holds(holds.with_unsettled_released(released)));
    }
    policies
}

async fn compare(redis: &dyn Store, clock: ManualClock, policies: &[Policy], seed: u64, goes_back: bool) {
    // A policy without holds does not end those of other policies, so they may be charged late. A count is dropped when
    // all that it holds would be gone if it had been charged in time: by Redis some time later, in memory when new
    // keys come. Here every key has a store of its own, and nothing is dropped.
    let stores = ["a", "b", "c"].map(|key| (Key::from(key), MemoryStore::new().with_clock(clock.clone())));
    let memory = |key: &Key| stores.iter().find(|(other, _)| other == key).map(|(_, store)| store).unwrap();
    let mut random = Random(seed);
    let mut made: Vec<Charge> = Vec::new();
    for step in 0..400 {
        let longest = random.pick(&[0, 1, 10, 60, 250]);
        let by = random.below(longest + 1);
        match goes_back && random.one_in(10) {
            true => clock.set_us(clock.now_us() - by.min(80)),
            false => clock.advance(Duration::from_micros(by)),
        }
        let (policy, key) = (&policies[random.index(policies.len())], random.pick(&["a", "b", "c"]));
        let place = format!("seed {seed}, step {step}");
        if random.one_in(40) {
            // What they return differs, because Redis keeps a count for a little longer than its window.
            let _ = answer(memory(&key.into()).reset(&key.into(), policy)).await.unwrap();
            let _ = answer(redis.reset(&key.into(), policy)).await.unwrap();
        } else if !made.is_empty() && random.one_in(3) {
            let hold = &made[made.len() - 1 - random.index(made.len().min(8))];
            let made_change = match random.below(6) {
                0 => HoldChange::Renew,
                1 => HoldChange::Settle(0),
                2 if random.one_in(8) => HoldChange::Settle(u64::MAX),
                _ => HoldChange::Settle(random.cost(30)),
            };
            let (one, other) =
                (change(memory(&hold.key), hold, made_change).await, change(redis, hold, made_change).await);
            assert_eq!(one, other, "{place}: {made_change:?} of {hold:?}");
        } else {
            let is_largest = policy.limit() == Policy::MAX_LIMIT && random.one_in(4);
            let cost = random.cost(if is_largest { Policy::MAX_LIMIT } else { policy.limit().min(30) + 2 });
            let whole = match policy.holds().is_some() && cost > 0 && random.one_in(2) {
                true => Check::hold(key, policy, cost),
                false => Check::new(key, policy, if random.one_in(6) { 0 } else { cost }),
            };
            let (one, other) = (check(memory(&key.into()), &whole).await, check(redis, &whole).await);
            assert_eq!((one.allowed, &one.outcomes), (other.allowed, &other.outcomes), "{place}: {whole:?}");
            made.extend(whole.charges().first().filter(|charge| charge.hold.is_some() && one.allowed).cloned());
        }
    }
}

#[tokio::test]
async fn law_12_policies_that_share_a_count_agree() {
    let server = RedisServer::start();
    for algorithm in ALGORITHMS {
        for seed in seeds(seed::in_this_run(12).into()) {
            let clock = clock_at(START_US + seed * 1_000_000_000);
            let store = builder().prefix(format!("{algorithm:?}{seed}:")).deny_cache(false).clock(clock.clone());
            let store = store.open(&server.url()).unwrap();
            compare(&store, clock, &policies(algorithm, seed % 3 == 1), seed, seed % 3 == 2).await;
        }
    }
}

/// A policy without holds looks for none, also when it resets the count.
#[tokio::test]
async fn law_12_a_reset_without_holds_leaves_those_of_other_policies() {
    let (server, clock) = (RedisServer::start(), clock_at(START_US));
    let (redis, memory) = (with_clock(&server, &clock), MemoryStore::new().with_clock(clock.clone()));
    for algorithm in ALGORITHMS {
        let [plain, with_holds, ..] = &policies(algorithm, false)[..] else { panic!() };
        for store in [&redis as &dyn Store, &memory] {
            let open = hold(store, "k", with_holds, 6).await.unwrap();
            check(store, &Check::new("k", plain, 3)).await;
            assert!(answer(store.reset(&"k".into(), plain)).await.unwrap());
            assert_eq!(super::available(store, "k", with_holds).await, 14, "{algorithm:?}");
            assert_eq!(change(store, &open, HoldChange::Settle(0)).await, tollgate::store::SettleAnswer::Settled);
        }
    }
}

/// More is charged than was held, so fewer units are left than are held, and the log is searched for the next one.
#[tokio::test]
async fn law_12_the_next_unit_of_an_overdrawn_log_is_exact_beside_holds() {
    let (server, clock) = (RedisServer::start(), clock_at(START_US));
    let (redis, memory) = (with_clock(&server, &clock), MemoryStore::new().with_clock(clock.clone()));
    let holds = HoldSettings::new().with_typical_duration(Duration::from_secs(600));
    let policy = Policy::per_minute("log", 10).unwrap().with_holds(holds);
    let mut open = Vec::new();
    for store in [&redis as &dyn Store, &memory] {
        open.push((store, hold(store, "k", &policy, 2).await.unwrap(), hold(store, "k", &policy, 2).await.unwrap()));
    }
    for _ in 0..6 {
        for (store, ..) in &open {
            assert!(check(*store, &Check::new("k", &policy, 1)).await.allowed);
        }
        clock.advance(Duration::from_secs(1));
    }
    for (store, settled, _) in &open {
        change(*store, settled, HoldChange::Settle(5)).await;
        let peek = check(*store, &Check::new("k", &policy, 0)).await;
        // 11 are spent and 2 held, so the first 4 of the 6 have to leave: the fourth was charged 3 s ago.
        assert_eq!((peek.outcomes[0].available, peek.outcomes[0].next_us), (0, 57_000_000));
    }
}
