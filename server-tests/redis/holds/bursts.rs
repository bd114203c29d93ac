//! Bursts of holds that end at once, and of requests that are given up.

use std::{
    fs,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    task::{Context, Waker},
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{interval, sleep, timeout},
};
use tollgate::{
    Limiter, Policy,
    limiter::Hold,
    observe::{Batch, Observer},
    policy::Holds,
};

use super::builder;
use crate::support::{
    link::Link,
    redis_server::{RedisServer, calls},
};

fn slots(limit: u32, ttl: Duration) -> Policy {
    Policy::concurrent("slots", limit).unwrap().with_holds(Holds::new().with_ttl(ttl)).unwrap()
}

async fn taken(limiter: &Limiter, key: &str, policy: &Policy) -> u32 {
    policy.limit() - limiter.peek(key, policy).await.unwrap().available().unwrap()
}

async fn hold_many(limiter: &Limiter, policy: &Policy, number: usize) -> Vec<Hold> {
    let mut held = Vec::new();
    while held.len() < number {
        let mut made = JoinSet::new();
        (0..1_000).for_each(|_| drop(made.spawn(limiter.hold("k", policy, 1))));
        held.extend(made.join_all().await.into_iter().map(|hold| hold.unwrap().into_hold().unwrap()));
    }
    held
}

/// Counts what is sent to Redis.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicUsize>);

impl Observer for Sent {
    fn on_batch(&self, batch: &Batch) {
        self.0.fetch_add(batch.checks, Ordering::SeqCst);
    }
}

/// The runtime of the test runs no other task before all are given up, so all but the first wait in the queue.
#[tokio::test]
async fn nothing_is_released_for_checks_that_were_given_up_in_the_queue_of_the_process() {
    let (server, sent) = (RedisServer::start(), Sent::default());
    let limiter = Limiter::new(builder().connect(&server.url()).unwrap()).with_observer(sent.clone());
    let policy = slots(10, Duration::from_secs(60));
    drop(limiter.hold("warm", &policy, 1).await.unwrap());
    sleep(Duration::from_millis(300)).await;
    let before = sent.0.load(Ordering::SeqCst);
    for _ in 0..1_000 {
        let mut hold = pin!(limiter.hold("reset", &policy, 1));
        assert!(hold.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    sleep(Duration::from_secs(3)).await;
    let sent = sent.0.load(Ordering::SeqCst) - before;
    // The first check was sent, and its hold is released.
    assert!((2..=10).contains(&sent), "{sent} checks and releases were sent");
    assert_eq!(taken(&limiter, "reset", &policy).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_15_twenty_thousand_slots_that_are_dropped_at_once_are_given_back_in_shared_calls() {
    let server = RedisServer::start();
    let limiter = Limiter::new(builder().connect(&server.url()).unwrap());
    let policy = slots(1_000_000, Duration::from_secs(600));
    let held = hold_many(&limiter, &policy, 20_000).await;
    let before = calls(&server, "evalsha");
    drop(held);
    limiter.close().await;
    assert_eq!(taken(&limiter, "k", &policy).await, 0);
    let ends = calls(&server, "evalsha") - before;
    assert!(ends < 2_000, "{ends} calls for 20 000 ends");
}

/// Resident memory of this process in MB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute"]
async fn long_a_hundred_thousand_streams_that_are_dropped_at_once_leave_no_slot() {
    let server = RedisServer::start();
    let limiter = Limiter::new(builder().connect(&server.url()).unwrap());
    let policy = slots(1_000_000, Duration::from_secs(20));
    for round in 0..3 {
        let before = memory();
        let held = hold_many(&limiter, &policy, 100_000).await;
        let with_holds = memory();
        sleep(Duration::from_secs(25)).await;
        let renewed = taken(&limiter, "k", &policy).await;
        let start = Instant::now();
        drop(held);
        let dropped = start.elapsed();
        let mut peak = memory();
        while taken(&limiter, "k", &policy).await > 0 {
            peak = peak.max(memory());
            sleep(Duration::from_millis(5)).await;
        }
        let free = start.elapsed();
        sleep(Duration::from_secs(2)).await;
        println!(
            "round {round}: {renewed} held after a time-to-live of 20 s; dropped in {dropped:?}, all free after {free:?}; \
             memory {before} MB before, {with_holds} MB held, {peak} MB at the peak, {} MB after",
            memory()
        );
    }
}

/// Two servers over 20 ms with requests of 5 ms. Prints what is held for each request that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes two minutes"]
async fn long_ten_thousand_requests_a_second_of_two_servers_are_not_denied_while_slots_are_free() {
    for resets in [0_u64, 1_000, 4_000] {
        let server = RedisServer::start();
        let link = Link::to(server.port(), Duration::from_millis(20));
        let servers = [0, 1].map(|_| {
            let store = tollgate::RedisStore::builder().plain_keys().deadline(Duration::from_secs(1));
            Limiter::new(store.connect(&link.url()).unwrap())
        });
        let direct = Limiter::new(builder().connect(&server.url()).unwrap());
        let (policy, one) = (slots(1_000_000, Duration::from_secs(60)), Policy::concurrent("one", 1).unwrap());
        let tenant = Policy::concurrent("tenant", 100).unwrap();
        let [running, denied, errors, done] = [0; 4].map(|_| Arc::new(AtomicU32::new(0)));
        let mut ticks = interval(Duration::from_millis(1));
        let (start, mut sent, mut reset) = (Instant::now(), 0_u64, 0_u64);
        let (mut ratios, mut next) = (Vec::new(), Duration::from_secs(3));
        while start.elapsed() < Duration::from_secs(15) {
            ticks.tick().await;
            let now = start.elapsed();
            while sent < u64::try_from(now.as_millis()).unwrap() * 10 {
                sent += 1;
                let (limiter, key) = (servers[sent as usize % 2].clone(), format!("tenant-{}", sent % 50));
                let check = tollgate::Check::hold("k", &policy, 1).unwrap().and_hold(key, &tenant, 1).unwrap();
                let counts = [&running, &denied, &errors, &done].map(Arc::clone);
                tokio::spawn(async move {
                    let [running, denied, errors, done] = counts;
                    running.fetch_add(1, Ordering::SeqCst);
                    let held = limiter.hold_all(check).await;
                    errors.fetch_add(u32::from(held.is_err()), Ordering::SeqCst);
                    let held = held.ok().and_then(|held| {
                        denied.fetch_add(u32::from(!held.is_allowed()), Ordering::SeqCst);
                        held.into_hold()
                    });
                    sleep(Duration::from_millis(5)).await;
                    drop(held);
                    running.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
            while reset < u64::try_from(now.as_millis()).unwrap() * resets / 1_000 {
                reset += 1;
                let hold = servers[reset as usize % 2].hold("reset", &one, 1);
                drop(tokio::spawn(timeout(Duration::from_millis(reset % 20), hold)));
            }
            if now > next {
                next += Duration::from_millis(200);
                let ratio = f64::from(taken(&direct, "k", &policy).await) / f64::from(running.load(Ordering::SeqCst));
                ratios.push(ratio);
            }
        }
        let last = start.elapsed();
        let rate = f64::from(done.load(Ordering::SeqCst)) / last.as_secs_f64();
        ratios.sort_by(f64::total_cmp);
        sleep(Duration::from_secs(4)).await;
        println!(
            "{resets} resets a second: {rate:.0} requests a second, held for each running: median {:.2}, most {:.2}; \
             {} denied, {} errors; {} held 4 s after the load",
            ratios[ratios.len() / 2],
            ratios.last().unwrap(),
            denied.load(Ordering::SeqCst),
            errors.load(Ordering::SeqCst),
            taken(&direct, "k", &policy).await,
        );
    }
}
