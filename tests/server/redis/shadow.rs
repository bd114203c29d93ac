//! Shadow policies on Redis: the deny cache, and charges in several slots of a cluster.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::{Check, Decision, Limiter, ManualClock, Policy, RedisStore, decision::Source};

use super::calls;
use super::cluster::{connected, limiter};
use crate::support::{cluster::Cluster, redis_server::RedisServer};

/// "bar" is in a slot of the first node and is committed before "foo", in a slot of the third.
const FIRST: &str = "bar";
const LAST: &str = "foo";

const DEADLINE: Duration = Duration::from_secs(2);

fn hourly(name: &str, limit: u64) -> Policy {
    Policy::per_hour(name, limit).unwrap()
}

async fn spent(limiter: &Limiter, key: &str, policy: &Policy) -> u64 {
    policy.limit() - limiter.peek(key, policy).await.unwrap().policies()[0].available
}

async fn check(limiter: &Limiter, charges: &[(&str, &Policy)]) -> Decision {
    let ((key, policy), others) = charges.split_first().unwrap();
    let check = others.iter().fold(Check::new(*key, policy, 1), |check, (key, policy)| check.and(*key, policy, 1));
    limiter.check_all(check).await.unwrap()
}

#[tokio::test]
async fn a_remembered_denial_answers_shadow_checks_and_no_check_that_an_enforced_policy_admits() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    let builder = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open(&server.url()).unwrap());
    let (shadow, wide, spent) = (hourly("shadow", 1).with_shadow(true), hourly("wide", 50), hourly("spent", 1));
    assert!(!check(&limiter, &[("k", &shadow)]).await.would_deny());
    assert_eq!(check(&limiter, &[("k", &shadow)]).await.source(), Source::Store);
    let before = calls(&server, "evalsha");
    for _ in 0..20 {
        let decision = check(&limiter, &[("k", &shadow)]).await;
        assert_eq!((decision.is_allowed(), decision.would_deny(), decision.source()), (true, true, Source::DenyCache));
    }
    assert_eq!(calls(&server, "evalsha"), before, "a flood over a shadow policy costs Redis nothing");
    // Law 14: every check with an enforced policy that has room reaches Redis and is charged.
    for left in (40..50).rev() {
        let decision = check(&limiter, &[("k", &shadow), ("k", &wide)]).await;
        assert_eq!((decision.source(), decision.available(), decision.would_deny()), (Source::Store, Some(left), true));
    }
    // A denial by an enforced policy is remembered, with what the shadow policy has reported.
    for source in [Source::Store, Source::Store, Source::DenyCache] {
        let decision = check(&limiter, &[("k", &shadow), ("k", &spent)]).await;
        assert_eq!((decision.source(), decision.would_deny()), (source, true));
    }
    // Enforced, the policy denies at once.
    let denied = check(&limiter, &[("k", &shadow.clone().with_shadow(false))]).await;
    assert!(!denied.is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_2_and_3_hold_for_shadow_charges_in_other_slots() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    for (round, (enforced_key, shadow_key)) in [(FIRST, LAST), (LAST, FIRST)].into_iter().enumerate() {
        let enforced = hourly(&format!("enforced{round}"), 4);
        let shadow = hourly(&format!("shadow{round}"), 2).with_shadow(true);
        for (allowed, would_deny) in [(true, false), (true, false), (true, true), (true, true), (false, true)] {
            let decision = check(&limiter, &[(enforced_key, &enforced), (shadow_key, &shadow)]).await;
            assert_eq!((decision.is_allowed(), decision.would_deny()), (allowed, would_deny), "{decision:?}");
        }
        assert_eq!(
            (spent(&limiter, enforced_key, &enforced).await, spent(&limiter, shadow_key, &shadow).await),
            (4, 2)
        );
        // A denied check charges no shadow policy.
        let unspent = hourly(&format!("unspent{round}"), 2).with_shadow(true);
        assert!(!check(&limiter, &[(shadow_key, &unspent), (enforced_key, &enforced)]).await.is_allowed());
        assert_eq!(spent(&limiter, shadow_key, &unspent).await, 0);
        // Shadow policies alone, in two slots: each is charged if it fits.
        let other = hourly(&format!("other{round}"), 1).with_shadow(true);
        let decision = check(&limiter, &[(shadow_key, &shadow), (enforced_key, &other)]).await;
        assert!(decision.is_allowed() && decision.policies()[0].would_deny && !decision.policies()[1].would_deny);
        assert_eq!(spent(&limiter, enforced_key, &other).await, 1);
        // Rejections count under a shadow policy that says so, in a slot of its own too.
        let counting = hourly(&format!("counting{round}"), 3).with_denials_counted(true).with_shadow(true);
        assert!(!check(&limiter, &[(enforced_key, &enforced), (shadow_key, &counting)]).await.is_allowed());
        assert_eq!(spent(&limiter, shadow_key, &counting).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_gives_back_no_shadow_charge_that_was_left_out() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    connected(&limiter).await;
    // The first slot has an enforced policy with room and a spent shadow policy. The last one has a scarce policy.
    let (wide, scarce) = (hourly("wide", 100_000), hourly("scarce", 50));
    let shadow = hourly("shadow", 5).with_shadow(true);
    for _ in 0..5 {
        assert!(!check(&limiter, &[(FIRST, &shadow)]).await.would_deny());
    }
    let mut burst = JoinSet::new();
    for task in 0..200 {
        let (limiter, wide, scarce, shadow) = (limiter.clone(), wide.clone(), scarce.clone(), shadow.clone());
        burst.spawn(async move {
            let all = [(LAST, &scarce), (FIRST, &wide), (FIRST, &shadow)];
            // Every fourth check charges the scarce policy alone, so that some commits of the others are refunded.
            let charges = if task % 4 == 0 { &all[..1] } else { &all[..] };
            (task % 4 > 0, check(&limiter, charges).await.is_allowed())
        });
    }
    let admitted: Vec<_> = burst.join_all().await.into_iter().filter(|(_, allowed)| *allowed).collect();
    assert_eq!((admitted.len(), spent(&limiter, LAST, &scarce).await), (50, 50));
    let both = u64::try_from(admitted.iter().filter(|(both, _)| *both).count()).unwrap();
    // The denial returns before the refund is executed.
    let started = Instant::now();
    while spent(&limiter, FIRST, &wide).await != both {
        assert!(started.elapsed() < Duration::from_secs(5));
    }
    assert_eq!(spent(&limiter, FIRST, &shadow).await, 5, "no more and no less than was charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_14_an_enforced_policy_holds_while_the_master_of_a_shadow_policy_is_silent_or_gone() {
    let mut cluster = Cluster::start();
    cluster.allow_partial_coverage();
    let builder = RedisStore::builder().plain_keys().deadline(DEADLINE);
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap());
    connected(&limiter).await;
    let (enforced, shadow) = (hourly("enforced", 6), hourly("shadow", 100).with_shadow(true));
    let charges = [(FIRST, &enforced), (LAST, &shadow)];
    assert!(check(&limiter, &charges).await.is_allowed());
    cluster.nodes[2].pause(2 * DEADLINE);
    for left in [4, 3] {
        let started = Instant::now();
        let decision = check(&limiter, &charges).await;
        assert_eq!((decision.is_allowed(), decision.available(), decision.would_deny()), (true, Some(left), false));
        assert!(started.elapsed() < DEADLINE, "{:?}", started.elapsed());
    }
    let gone = cluster.nodes.pop().unwrap();
    drop(gone);
    for left in [2, 1, 0] {
        let decision = check(&limiter, &charges).await;
        assert_eq!((decision.is_allowed(), decision.available()), (true, Some(left)));
    }
    let denied = check(&limiter, &charges).await;
    assert_eq!(denied.violated().map(|standing| standing.policy.name()).collect::<Vec<_>>(), ["enforced"]);
    // Shadow policies alone pass, with and without an answer.
    assert!(limiter.check(LAST, &shadow, 1).await.unwrap().is_allowed());
    assert!(check(&limiter, &[(FIRST, &hourly("other", 5).with_shadow(true)), (LAST, &shadow)]).await.is_allowed());
}
