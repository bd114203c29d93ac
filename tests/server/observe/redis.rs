//! Events of a limiter on Redis: decisions, batches and failures.

use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{ErrorKind, Limiter, Policy, RedisStore, decision::Source};

use crate::support::{observed::Batch, per_minute, recorder::Recorder, redis_server::RedisServer};

fn recorded(server: &RedisServer, batching: bool) -> (Limiter, Recorder) {
    let recorder = Recorder::default();
    let builder = RedisStore::builder().deadline(Duration::from_secs(10)).batching(batching);
    (Limiter::new(builder.open(&server.url()).unwrap()).with_observer(recorder.clone()), recorder)
}

#[tokio::test]
async fn a_flood_of_denied_checks_is_reported_as_from_the_deny_cache() {
    let server = RedisServer::start();
    let (limiter, recorder) = recorded(&server, true);
    for (outcome, source, batches) in [
        ("allowed", Source::Store, 1),
        ("denied", Source::Store, 1),
        ("denied", Source::DenyCache, 0),
        ("denied", Source::DenyCache, 0),
    ] {
        let _ = limiter.check("k", &per_minute("p", 1), 1).await.unwrap();
        let seen = recorder.take();
        let [decision] = &seen.decisions[..] else { panic!("{:?}", seen.decisions) };
        assert_eq!((decision.outcome, decision.source, seen.batches.len()), (outcome, source, batches));
    }
}

#[tokio::test]
async fn batches_report_how_many_checks_share_a_call() {
    let server = RedisServer::start();
    let (limiter, recorder) = recorded(&server, true);
    let policies = [("p", 1_000), ("q", 1_000)].map(|(name, limit)| Policy::per_hour(name, limit).unwrap());
    let check = |key: u64| tollgate::Check::new(key, &policies[0], 1).and(key, &policies[1], 1);
    let mut checks = JoinSet::new();
    for key in 0..200_u64 {
        checks.spawn(limiter.check_all(check(key)));
    }
    assert!(checks.join_all().await.into_iter().all(|decision| decision.unwrap().is_allowed()));
    let seen = recorder.take();
    let sum = |size: fn(&Batch) -> usize| seen.batches.iter().map(size).sum::<usize>();
    assert_eq!((sum(|batch| batch.checks), sum(|batch| batch.charges)), (200, 400));
    assert!(seen.batches.len() < 50, "{:?}", seen.batches);
    assert!(seen.batches.iter().all(|batch| batch.answered && batch.elapsed > Duration::ZERO));
    assert_eq!(seen.decisions.len(), 200);
}

#[tokio::test]
async fn without_batching_each_check_is_a_batch_of_its_own() {
    let server = RedisServer::start();
    let (limiter, recorder) = recorded(&server, false);
    for _ in 0..3 {
        let _ = limiter.check("k", &per_minute("p", 9), 1).await.unwrap();
    }
    assert_eq!(recorder.take().batches.iter().map(|batch| batch.checks).collect::<Vec<_>>(), [1, 1, 1]);
}

#[tokio::test]
async fn an_outage_and_a_missed_deadline_are_reported() {
    let mut server = RedisServer::start();
    let recorder = Recorder::default();
    let builder = RedisStore::builder().deadline(Duration::from_millis(500));
    let limiter = Limiter::new(builder.open(&server.url()).unwrap()).with_observer(recorder.clone());
    let _ = limiter.check("k", &per_minute("p", 9), 1).await.unwrap();
    recorder.take();

    server.pause(Duration::from_secs(2));
    limiter.check("k", &per_minute("p", 9), 1).await.unwrap_err();
    let seen = recorder.take();
    assert_eq!(seen.failures, [(ErrorKind::Deadline, vec!["p".to_owned()])]);

    server.kill();
    while !recorder.take().failures.iter().any(|(kind, _)| *kind == ErrorKind::Unavailable) {
        limiter.check("k", &per_minute("p", 9), 1).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_call_without_a_reply_is_reported_as_unanswered() {
    let server = RedisServer::start();
    let recorder = Recorder::default();
    let builder = RedisStore::builder().batching(false).deadline(Duration::from_millis(500));
    let limiter = Limiter::new(builder.open(&server.url()).unwrap()).with_observer(recorder.clone());
    let _ = limiter.check("k", &per_minute("p", 9), 1).await.unwrap();
    recorder.take();
    server.pause(Duration::from_secs(2));
    limiter.check("k", &per_minute("p", 9), 1).await.unwrap_err();
    let seen = recorder.take();
    assert_eq!(seen.batches.iter().map(|batch| (batch.checks, batch.answered)).collect::<Vec<_>>(), [(1, false)]);
}
