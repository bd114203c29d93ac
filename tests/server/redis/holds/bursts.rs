//! Bursts of holds that end at once, and of requests that are given up.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use std::{fs, future::Future, pin::pin, sync::Arc, thread};

use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tollgate::observe::{Event, Observer};
use tollgate::{Limiter, Policy, limiter::Hold, policy::HoldSettings};

use super::builder;
use crate::support::redis_server::{RedisServer, calls};
use crate::support::{asserts_times, print_line};
use crate::support::{link::Link, observed::Batch};

fn slots(limit: u64, ttl: Duration) -> Policy {
    Policy::concurrent("slots", limit).unwrap().with_holds(HoldSettings::new().with_ttl(ttl))
}

async fn taken(limiter: &Limiter, key: &str, policy: &Policy) -> u64 {
    policy.limit() - limiter.peek(key, policy).await.unwrap().available().unwrap()
}

async fn hold_many(limiter: &Limiter, policy: &Policy, number: usize) -> Vec<Hold> {
    let mut held = Vec::new();
    while held.len() < number {
        let mut made = JoinSet::new();
        (0..1_000).for_each(|_| drop(made.spawn(limiter.hold("k", policy, 1))));
        held.extend(made.join_all().await.into_iter().map(|hold| hold.unwrap().into_result().unwrap()));
    }
    held
}

/// Counts what is sent to Redis.
#[derive(Clone, Default)]
struct Sent(Arc<AtomicUsize>);

impl Observer for Sent {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(batch) = Batch::of(event) {
            self.0.fetch_add(batch.checks, Ordering::SeqCst);
        }
    }
}

/// The runtime of the test runs no other task before all are given up, so all but the first wait in the queue.
#[tokio::test]
async fn nothing_is_released_for_checks_that_were_given_up_in_the_queue_of_the_process() {
    let (server, sent) = (RedisServer::start(), Sent::default());
    let limiter = Limiter::new(builder().open(&server.url()).unwrap()).with_observer(sent.clone());
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
    let limiter = Limiter::new(builder().open(&server.url()).unwrap());
    let policy = slots(1_000_000, Duration::from_secs(600));
    let held = hold_many(&limiter, &policy, 20_000).await;
    let before = calls(&server, "evalsha");
    drop(held);
    let start = Instant::now();
    // A busy machine may need more than the 5 s for which one call waits.
    loop {
        limiter.close().await;
        if taken(&limiter, "k", &policy).await == 0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "slots are still taken");
    }
    let ends = calls(&server, "evalsha") - before;
    assert!(ends < 2_000, "{ends} calls for 20 000 ends");
}

/// Resident memory of this process in MB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1_024
}

/// The largest resident memory while this lives.
struct Peak {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Peak {
    fn watch() -> Self {
        let this = Self { most: Arc::default(), stop: Arc::default() };
        let (most, stop) = (Arc::clone(&this.most), Arc::clone(&this.stop));
        thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                most.fetch_max(memory(), Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
        });
        this
    }
}

impl Drop for Peak {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// The slots are held for longer than their time-to-live, so they have been renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: tests/run --long"]
async fn long_law_15_a_hundred_thousand_streams_that_are_dropped_at_once_leave_no_slot() {
    let server = RedisServer::start();
    let limiter = Limiter::new(builder().open(&server.url()).unwrap());
    for ttl in [60, 20, 5].map(Duration::from_secs) {
        let policy = slots(1_000_000, ttl);
        let (before, start) = (memory(), Instant::now());
        let held = hold_many(&limiter, &policy, 100_000).await;
        let (made, with_holds) = (start.elapsed(), memory());
        sleep(ttl + ttl / 4).await;
        let renewed = taken(&limiter, "k", &policy).await;
        let (peak, start) = (Peak::watch(), Instant::now());
        drop(held);
        let dropped = start.elapsed();
        while taken(&limiter, "k", &policy).await > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        let (free, peak) = (start.elapsed(), peak.most.load(Ordering::SeqCst));
        sleep(Duration::from_secs(2)).await;
        print_line(&format!(
            "time-to-live {ttl:?}: made in {made:?}, {renewed} held after a quarter more; dropped in {dropped:?}, all free \
             after {free:?}; memory {before} MB before, {with_holds} MB held, {peak} MB at the peak, {} MB after",
            memory()
        ));
        assert_eq!(renewed, 100_000, "slots of streams that live were lost");
        assert!(free < Duration::from_secs(2) || !asserts_times(), "all slots are free after {free:?}");
    }
}

/// Two servers over 20 ms with requests of 5 ms, and a client of one slot that resets its requests. One process has the
/// servers, the link and the clients, so a small machine reaches lower rates only, and the largest one is judged.
/// `law_2_no_request_is_denied_while_slots_are_free_beside_a_client_that_resets_its_requests` has the full rate, in
/// paused time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: tests/run --long"]
async fn long_law_2_requests_of_two_servers_are_not_denied_while_slots_are_free() {
    for resets in [0, 2, 4] {
        for rate in [10_000, 7_000, 5_000, 3_500, 2_500, 1_500, 1_000, 500] {
            let load = two_servers(rate, rate * resets / 10).await;
            print_line(&format!(
                "{rate} requests and {} resets a second: {load:?}, at most {:.2} held",
                rate * resets / 10,
                load.held_most
            ));
            let is_reached = load.rate > rate as f64 * 0.95;
            if is_reached {
                assert_eq!((load.denied, load.errors, load.left), (0, 0, 0), "{load:?}");
                assert!(load.held_median <= 1.3 || !asserts_times(), "{load:?}");
                break;
            }
        }
    }
}

/// What became of the requests of two servers.
#[derive(Debug)]
struct Load {
    /// Requests a second that have ended.
    rate: f64,
    /// The slots that are held for each request that runs.
    held_median: f64,
    held_most: f64,
    denied: u64,
    errors: u64,
    /// The slots that are held 4 s after the load.
    left: u64,
}

async fn two_servers(rate: u64, resets: u64) -> Load {
    let server = RedisServer::start();
    let link = Link::to(server.port(), Duration::from_millis(20));
    let servers = [0, 1].map(|_| {
        let store = tollgate::RedisStore::builder().plain_keys().deadline(Duration::from_secs(1));
        Limiter::new(store.open(&link.url()).unwrap())
    });
    let direct = Limiter::new(builder().open(&server.url()).unwrap());
    let (policy, one) = (slots(1_000_000, Duration::from_secs(60)), Policy::concurrent("one", 1).unwrap());
    let tenant = Policy::concurrent("tenant", 100).unwrap();
    let [running, denied, errors, done] = [0; 4].map(|_| Arc::new(AtomicU64::new(0)));
    let mut ticks = interval(Duration::from_millis(1));
    let (start, mut sent, mut reset) = (Instant::now(), 0, 0);
    let (mut ratios, mut next) = (Vec::new(), Duration::from_secs(3));
    while start.elapsed() < Duration::from_secs(10) {
        ticks.tick().await;
        let now = start.elapsed();
        while sent < (now.as_secs_f64() * rate as f64) as usize {
            sent += 1;
            let (limiter, key) = (servers[sent % 2].clone(), format!("tenant-{}", sent % 50));
            let check = tollgate::Check::hold("k", &policy, 1).and_hold(key, &tenant, 1);
            let counts = [&running, &denied, &errors, &done].map(Arc::clone);
            tokio::spawn(async move {
                let [running, denied, errors, done] = counts;
                running.fetch_add(1, Ordering::SeqCst);
                let held = limiter.hold_all(check).await;
                errors.fetch_add(u64::from(held.is_err()), Ordering::SeqCst);
                let held = held.ok().and_then(|held| {
                    denied.fetch_add(u64::from(!held.is_allowed()), Ordering::SeqCst);
                    held.into_result().ok()
                });
                sleep(Duration::from_millis(5)).await;
                drop(held);
                running.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while reset < (now.as_secs_f64() * resets as f64) as usize {
            reset += 1;
            let hold = servers[reset % 2].hold("reset", &one, 1);
            drop(tokio::spawn(timeout(Duration::from_millis(reset as u64 % 20), hold)));
        }
        if now > next {
            next += Duration::from_millis(200);
            ratios.push(taken(&direct, "k", &policy).await as f64 / running.load(Ordering::SeqCst).max(1) as f64);
        }
    }
    let rate = done.load(Ordering::SeqCst) as f64 / start.elapsed().as_secs_f64();
    ratios.sort_by(f64::total_cmp);
    sleep(Duration::from_secs(4)).await;
    Load {
        rate,
        held_median: ratios[ratios.len() / 2],
        held_most: ratios[ratios.len() - 1],
        denied: denied.load(Ordering::SeqCst),
        errors: errors.load(Ordering::SeqCst),
        left: taken(&direct, "k", &policy).await,
    }
}
