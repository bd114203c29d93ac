//! Peeks at costs, and charges of as much as fits.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{Algorithm, Check, Limiter, Policy, RedisStore, decision::Source, policy::HoldSettings};

use crate::support::cluster::Cluster;
use crate::support::redis_server::{RedisServer, calls};

fn limiter(server: &RedisServer) -> Limiter {
    Limiter::new(RedisStore::builder().deadline(Duration::from_secs(10)).open(&server.url()).unwrap())
}

fn policies(limit: u64) -> impl Iterator<Item = Policy> {
    let algorithms =
        [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow, Algorithm::TokenBucket];
    algorithms.into_iter().map(move |algorithm| Policy::per_day("p", limit).unwrap().with_algorithm(algorithm))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_14_processes_that_charge_as_much_as_fits_together_never_pass_the_limit() {
    let server = RedisServer::start();
    let processes = [limiter(&server), limiter(&server)];
    for policy in policies(1_000) {
        for policy in [policy.clone(), policy.clone().with_holds(HoldSettings::new())] {
            let key = format!("{:?} {}", policy.algorithm(), policy.holds().is_some());
            let mut tasks = JoinSet::new();
            for units in 1..=100 {
                let (limiter, policy, key) = (processes[units % 2].clone(), policy.clone(), key.clone());
                tasks.spawn(async move {
                    limiter.check_up_to(key, &policy, units as u64).await.unwrap().policies()[0].cost
                });
            }
            let charged: u64 = tasks.join_all().await.into_iter().sum();
            assert_eq!(charged, 1_000, "{key}: all units, and no more");
        }
    }
}

#[tokio::test]
async fn as_much_as_fits_is_charged_in_one_call_and_denials_are_asked_again() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    let policy = Policy::per_day("p", 10).unwrap();
    assert!(limiter.check("k", &policy, 4).await.unwrap().is_allowed());
    let before = calls(&server, "evalsha");
    for (asked, charged) in [(3, 3), (u64::MAX, 3), (1, 0), (1, 0)] {
        let decision = limiter.check_up_to("k", &policy, asked).await.unwrap();
        assert_eq!((decision.policies()[0].cost, decision.source()), (charged, Source::Store));
    }
    let peek = limiter.peek_all(Check::new("k", &policy, 2)).await.unwrap();
    assert!(!peek.is_allowed() && peek.retry_after().is_some());
    assert_eq!(calls(&server, "evalsha") - before, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_at_the_costs_of_several_slots_charges_in_none() {
    let cluster = Cluster::start();
    let builder = RedisStore::builder().cluster_hash_tags(None).deadline(Duration::from_secs(10));
    let limiter = Limiter::new(builder.open_cluster([cluster.nodes[0].url()]).unwrap());
    limiter.ready().await.unwrap();
    let (policy, banning) = (
        Policy::per_day("p", 10).unwrap().with_denials_counted(true),
        Policy::per_day("q", 10).unwrap().ban_after(1, Duration::from_secs(600)),
    );
    let check =
        |costs: [u64; 3]| Check::new("a", &policy, costs[0]).and("b", &banning, costs[1]).and("c", &policy, costs[2]);
    for _ in 0..3 {
        assert!(limiter.peek_all(check([10, 10, 10])).await.unwrap().is_allowed());
    }
    assert!(limiter.check_all(check([4, 5, 6])).await.unwrap().is_allowed());
    for _ in 0..3 {
        let peek = limiter.peek_all(check([7, 6, 1])).await.unwrap();
        let violated: Vec<&str> = peek.violated().map(|standing| standing.policy.name()).collect();
        assert_eq!(violated, ["p", "q"]);
        assert!(peek.retry_after() > Some(Duration::from_secs(86_000)));
    }
    assert!(limiter.check_all(check([6, 5, 4])).await.unwrap().is_allowed(), "no peek was charged or counted");
    assert_eq!(limiter.check_up_to("b", &banning, 5).await.unwrap().policies()[0].cost, 0);
    assert!(limiter.peek("b", &banning).await.unwrap().policies()[0].ban.is_some(), "the denial was counted");
}

#[tokio::test]
async fn a_denial_of_as_much_as_fits_costs_no_search() {
    let server = RedisServer::start();
    let limiter = limiter(&server);
    for policy in policies(1 << 16) {
        let key = format!("{:?}", policy.algorithm());
        assert_eq!(limiter.check_up_to(&*key, &policy, 1 << 16).await.unwrap().policies()[0].cost, 1 << 16);
        let before = calls(&server, "getrange");
        assert!(!limiter.check_up_to(&*key, &policy, 1 << 16).await.unwrap().is_allowed());
        let evaluations = calls(&server, "getrange") - before;
        assert!(evaluations <= 8, "{key}: {evaluations} reads");
    }
}
