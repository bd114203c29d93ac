//! What holds cost: nothing for policies without them, and a known number of commands for those with them.

use std::{collections::BTreeMap, time::Duration};

use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{Algorithm, Check, Limiter, ManualClock, Policy, policy::HoldSettings};

use super::{change, check, hold, with_clock};
use crate::support::redis_server::RedisServer;

/// The calls of each command since the last call of this function.
pub(super) fn commands(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.command("INFO commandstats");
    server.command("CONFIG RESETSTAT");
    let calls = stats.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
    });
    // Those of this function do not count, nor does a further connection of a loaded machine.
    let is_other = |command: &str| command.starts_with("config") || ["hello", "info", "quit"].contains(&command);
    calls.filter(|(command, _)| !is_other(command)).collect()
}

fn expected(commands: &[(&str, u64)]) -> BTreeMap<String, u64> {
    commands.iter().map(|&(command, calls)| (command.to_owned(), calls)).collect()
}

#[tokio::test]
async fn a_plain_policy_has_the_commands_and_keys_that_it_had_before() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let limiter = Limiter::new(with_clock(&server, &clock)).without_notices();
    let _ = limiter.check("warm", &Policy::per_minute("p", 10).unwrap(), 1).await.unwrap();
    for algorithm in
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket]
    {
        let plain = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm);
        commands(&server);
        let _ = limiter.check("a", &plain, 1).await.unwrap();
        let first = [("evalsha", 1), ("getrange", 1), ("setrange", 1), ("pexpire", 1)];
        assert_eq!(commands(&server), expected(&first), "{algorithm:?}");
        clock.advance(Duration::from_millis(1));
        let _ = limiter.check("a", &plain, 1).await.unwrap();
        assert_eq!(commands(&server), expected(&[("evalsha", 1), ("getrange", 1), ("setrange", 1)]), "{algorithm:?}");
        // Open holds of a policy with the same count change nothing for it.
        let with_holds = plain.clone().with_holds(HoldSettings::new());
        let held = limiter.hold("a", &with_holds, 7).await.unwrap();
        clock.advance(Duration::from_millis(1));
        commands(&server);
        assert_eq!(limiter.check("a", &plain, 1).await.unwrap().available(), Some(7), "{algorithm:?}");
        assert_eq!(commands(&server), expected(&[("evalsha", 1), ("getrange", 1), ("setrange", 1)]), "{algorithm:?}");
        assert_eq!(held.into_result().unwrap().release().await.unwrap(), SettleAnswer::Settled);
    }
}

#[tokio::test]
async fn a_check_beside_no_open_holds_reads_one_number_more_than_a_plain_one() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    for algorithm in
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket]
    {
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm);
        for policy in [policy.clone().with_holds(HoldSettings::new()), policy.with_lease(5)] {
            check(&store, &Check::new("a", &policy, 1)).await;
            clock.advance(Duration::from_millis(1));
            commands(&server);
            check(&store, &Check::new("a", &policy, 1)).await;
            let checked = expected(&[("evalsha", 1), ("getrange", 1), ("setrange", 1), ("zcard", 1)]);
            assert_eq!(commands(&server), checked, "{algorithm:?}");
        }
    }
}

#[tokio::test]
async fn a_check_beside_many_open_holds_costs_as_much_as_beside_one() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let store = with_clock(&server, &clock);
    let policy = Policy::per_minute("p", 100_000).unwrap();
    let policy = policy.with_holds(HoldSettings::new().with_ttl(Duration::from_secs(600)));
    check(&store, &Check::new("a", &policy, 1)).await;
    let mut costs = Vec::new();
    for holds in [1, 1_000] {
        let mut open = Vec::new();
        for _ in 0..holds {
            open.extend(hold(&store, "a", &policy, 3).await);
        }
        commands(&server);
        check(&store, &Check::new("a", &policy, 1)).await;
        let checked = commands(&server);
        change(&store, &open[0], HoldChange::Settle(1)).await;
        costs.push((checked, commands(&server)));
    }
    let (checked, settled) = &costs[1];
    assert_eq!(*checked, expected(&[("evalsha", 1), ("getrange", 2), ("setrange", 1), ("zcard", 1), ("zrange", 1)]));
    let total: u64 = settled.values().sum();
    assert!(total <= 13, "{settled:?}");
    assert_eq!(costs[0].0, *checked);
    assert_eq!(costs[0].1.get("zscore"), settled.get("zscore"));
}
