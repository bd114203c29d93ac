//! Alternatives on Redis and on a cluster: one atomic call charges the first that has room.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Check, Decision, Limiter, ManualClock, Policy, RedisStore, decision::Source, policy::HoldSettings};

use super::calls;
use crate::support::cluster::{Cluster, plain_key};
use crate::support::{
    ALGORITHMS, alternatives::twin_trace, holds::random_trace_with_alternatives, redis_server::RedisServer, seed::seeds,
};

/// A long deadline, so that a loaded machine causes no timeouts.
fn with_clock(server: &RedisServer, clock: &ManualClock, deny_cache: bool) -> RedisStore {
    let builder = RedisStore::builder().clock(clock.clone()).deny_cache(deny_cache).deadline(Duration::from_secs(10));
    builder.open(&server.url()).unwrap()
}

fn alternatives() -> [Policy; 2] {
    [Policy::per_minute("included", 4).unwrap(), Policy::per_minute("credits", 3).unwrap()]
}

async fn holds(traces: u64, steps: usize) {
    let server = RedisServer::start();
    for seed in seeds(traces) {
        let clock = ManualClock::default();
        random_trace_with_alternatives(&with_clock(&server, &clock, false), &clock, seed, steps).await;
    }
}

async fn twins(traces: u64, steps: usize) {
    let server = RedisServer::start();
    for seed in seeds(traces) {
        let clock = ManualClock::default();
        twin_trace(&with_clock(&server, &clock, false), &clock, seed, steps).await;
    }
}

#[tokio::test]
async fn law_12_redis_agrees_with_the_oracle_on_alternatives_and_holds() {
    holds(40, 100).await;
}

#[tokio::test]
async fn law_12_on_redis_a_check_with_alternatives_is_the_plain_check_of_the_first_with_room() {
    twins(16, 120).await;
}

#[tokio::test]
async fn law_12_a_cluster_agrees_with_the_oracle_on_alternatives() {
    let cluster = Cluster::start();
    let clock = ManualClock::default();
    let builder = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10));
    let store = builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap();
    for seed in seeds(4) {
        random_trace_with_alternatives(&store, &clock, seed, 80).await;
    }
}

#[tokio::test]
#[ignore = "a million steps, and half a million: tests/run --long"]
async fn long_law_12_a_million_steps_with_alternatives_agree_on_redis() {
    holds(6_700, 150).await;
    twins(1_700, 300).await;
}

#[tokio::test]
async fn a_check_with_alternatives_is_one_call() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(with_clock(&server, &clock, false));
    let _ = limiter.check("k", &alternatives()[0], 1).await.unwrap();
    let before = calls(&server, "evalsha");
    for _ in 0..10 {
        let _ = limiter.check_all(Check::first_of("k", &alternatives(), 1)).await.unwrap();
    }
    assert_eq!(calls(&server, "evalsha") - before, 10);
}

/// Checks at the same time share calls, and each is judged alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_many_checks_at_once_charge_the_first_to_its_limit_and_then_the_second() {
    let server = RedisServer::start();
    let limiters: Vec<Limiter> = (0..4)
        .map(|_| RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap())
        .map(Limiter::new)
        .collect();
    let (included, credits) = (Policy::per_hour("included", 300).unwrap(), Policy::per_hour("credits", 200).unwrap());
    let mut tasks = JoinSet::new();
    for number in 0..1_000 {
        let (limiter, check) = (limiters[number % 4].clone(), Check::first_of("k", [&included, &credits], 1));
        tasks.spawn(async move {
            let decision = limiter.check_all(check).await.unwrap();
            let name = decision.policies()[0].policy.name().to_owned();
            (decision.time().unwrap(), decision.is_allowed().then_some(name))
        });
    }
    let decisions = tasks.join_all().await;
    let of = |name: Option<&'static str>| decisions.iter().filter(move |(_, charged)| charged.as_deref() == name);
    assert_eq!((of(Some("included")).count(), of(Some("credits")).count()), (300, 200));
    // By the clock of the store, the second is charged only once the first has no room, and a denial follows both.
    let last = |name: &'static str| of(Some(name)).map(|(time, _)| *time).max().unwrap();
    let first = |name: Option<&'static str>| of(name).map(|(time, _)| *time).min().unwrap();
    assert!(first(Some("credits")) >= last("included") && first(None) >= last("credits"));
}

#[tokio::test]
async fn a_denial_of_all_is_remembered_until_one_of_them_has_room() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(with_clock(&server, &clock, true));
    let slow = Policy::per_hour("slow", 1).unwrap();
    let fast = Policy::new("fast", 1, Duration::from_millis(500)).unwrap();
    let check = || limiter.check_all(Check::first_of("k", [&slow, &fast], 1));
    for _ in 0..2 {
        assert!(check().await.unwrap().is_allowed(), "a denial of one is not one of all");
    }
    assert_eq!(check().await.unwrap().source(), Source::Store);
    let remembered = check().await.unwrap();
    assert_eq!((remembered.is_allowed(), remembered.source()), (false, Source::DenyCache));
    assert_eq!(remembered.policies()[0].policy.name(), "fast");
    // Each of them alone is another check.
    assert_eq!(limiter.check("k", &fast, 1).await.unwrap().source(), Source::Store);
    clock.advance(Duration::from_millis(500));
    let decision = check().await.unwrap();
    assert_eq!((decision.is_allowed(), decision.policies()[0].policy.name()), (true, "fast"));
}

/// The next check ends such holds, and charges their units, where the key is not banned.
#[tokio::test]
async fn a_ban_by_hand_of_an_alternative_outlasts_the_lost_holds_of_its_key() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(with_clock(&server, &clock, false));
    let seconds = Duration::from_secs;
    let lost = HoldSettings::new().with_ttl(seconds(1));
    for (algorithm, are_both_banned) in ALGORITHMS.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        let [included, credits] = alternatives().map(|policy| policy.with_algorithm(algorithm).with_holds(lost));
        let key = format!("{algorithm:?} {are_both_banned}");
        for policy in [&included, &credits] {
            std::mem::forget(limiter.hold(&*key, policy, 2).await.unwrap());
        }
        let banned = if are_both_banned { vec![&included, &credits] } else { vec![&included] };
        for policy in &banned {
            limiter.ban(&*key, policy, seconds(600)).await.unwrap();
        }
        clock.advance(seconds(2));
        let mut charged = Vec::new();
        for _ in 0..2 {
            let decision = limiter.check_all(Check::first_of(&*key, [&included, &credits], 1)).await.unwrap();
            charged.push(decision.is_allowed().then(|| decision.policies()[0].policy.name().to_owned()));
        }
        // Two of the three credits were charged at the end of their hold.
        assert_eq!(charged, [(!are_both_banned).then(|| "credits".to_owned()), None], "{key}");
        for policy in banned {
            let refused = limiter.check(&*key, policy, 1).await.unwrap();
            assert_eq!((refused.is_allowed(), refused.policies()[0].ban), (false, Some(seconds(598))), "{key}");
        }
    }
}

#[tokio::test]
async fn on_a_cluster_alternatives_beside_a_key_of_another_slot_are_charged_whole_or_not() {
    let cluster = Cluster::start();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    let [included, credits] = alternatives();
    let narrow = Policy::per_minute("narrow", 5).unwrap();
    async fn left(limiter: &Limiter, key: &str, policy: &Policy) -> u64 {
        limiter.peek(key, policy).await.unwrap().available().unwrap()
    }
    for key in ["a", "b", "c"] {
        let other = format!("other-{key}");
        let check = || limiter.check_all(Check::new(&*other, &narrow, 1).and_first_of(key, [&included, &credits], 2));
        for charged in ["included", "included", "credits"] {
            let decision = check().await.unwrap();
            assert_eq!((decision.is_allowed(), decision.policies()[1].policy.name()), (true, charged));
        }
        assert!(!check().await.unwrap().is_allowed());
        assert_eq!(left(&limiter, &other, &narrow).await, 2, "what a denied part has taken is given back");
        assert_eq!((left(&limiter, key, &included).await, left(&limiter, key, &credits).await), (0, 1));
    }
}

/// While a slot moves, the keys of a check may be with two masters, and each is asked alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_alternatives_whose_keys_are_with_two_masters_are_charged_in_order() {
    let cluster = Cluster::start();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    for (key, kind) in [("foo", "plain"), ("foo", "holds"), ("foo", "bans"), ("foo", "by-hand")] {
        let [included, credits] = ["included", "credits"].map(|name| {
            let policy = Policy::per_hour(format!("{name}-{kind}"), 4).unwrap();
            match kind {
                "holds" => policy.with_holds(HoldSettings::new()),
                "plain" => policy,
                _ => policy.ban_after(2, Duration::from_secs(600)),
            }
        });
        let slot = cluster.slot_of(&plain_key(key, &included)).0;
        let check = || limiter.check_all(Check::first_of(key, [&included, &credits], 1));
        for policy in [&included, &credits] {
            assert!(limiter.check(key, policy, 1).await.unwrap().is_allowed());
        }
        if kind == "by-hand" {
            limiter.ban(key, &included, Duration::from_secs(600)).await.unwrap();
        }
        cluster.begin_move(slot, 2, 0);
        let reply = cluster.nodes[2].command(&format!(
            "MIGRATE 127.0.0.1 {} {} 0 5000",
            cluster.nodes[0].port(),
            plain_key(key, &credits)
        ));
        assert!(reply.is_empty(), "{reply}");
        let mut charged = Vec::new();
        for _ in 0..7 {
            let decision = check().await.unwrap();
            charged.push(decision.is_allowed().then(|| decision.policies()[0].policy.name().to_owned()));
        }
        let names = [&included, &included, &included, &credits, &credits, &credits];
        let mut expected = names.map(|policy| Some(policy.name().to_owned())).to_vec();
        if kind == "by-hand" {
            expected.drain(..3);
        }
        expected.resize(7, None);
        assert_eq!(charged, expected, "{kind}");
        let is_banned = |decision: &Decision| decision.policies()[0].ban.is_some();
        // The second denial of all bans under each of them. Beside a ban by hand, no denial is counted.
        let banned = match kind {
            "bans" => [true, true],
            "by-hand" => [true, false],
            _ => [false, false],
        };
        assert_eq!(is_banned(&check().await.unwrap()), banned[0], "{kind}");
        for (policy, banned) in [&included, &credits].into_iter().zip(banned) {
            assert_eq!(is_banned(&limiter.peek(key, policy).await.unwrap()), banned, "{}", policy.name());
        }
        cluster.end_move(slot, 2, 0);
        cluster.move_slot(slot, 0, 2);
    }
}
