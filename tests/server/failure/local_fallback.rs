//! The local fallback: eight instances of a service during an outage of Redis, and before and after it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate::clock::{Clock, SystemClock};
use tollgate::{FailurePolicy, Limiter, MemoryStore, Policy, RedisStore, decision::Source};

use crate::support::redis_server::RedisServer;

const INSTANCES: u32 = 8;
const LIMIT: u64 = 400;
const WINDOW: Duration = Duration::from_secs(2);

/// An admitted unit: time by the clock of the deciding store, and source of the decision.
type Admitted = (u64, Source);

/// Eight instances under load, and their recorded decisions.
struct Service {
    history: Arc<Mutex<Vec<Admitted>>>,
    /// Waits of local decisions while Redis was down.
    waits: Arc<Mutex<Vec<Duration>>>,
    down: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    instances: JoinSet<()>,
}

impl Service {
    /// Starts the instances with equal load, in total several times the limit.
    fn start(server: &RedisServer, limiter: fn(RedisStore) -> Limiter) -> Self {
        let mut service = Self {
            history: Arc::default(),
            waits: Arc::default(),
            down: Arc::default(),
            stop: Arc::default(),
            instances: JoinSet::new(),
        };
        for _ in 0..INSTANCES {
            let limiter = limiter(RedisStore::open(&server.url()).unwrap());
            let (history, waits) = (Arc::clone(&service.history), Arc::clone(&service.waits));
            let (down, stop) = (Arc::clone(&service.down), Arc::clone(&service.stop));
            service.instances.spawn(async move {
                let policy = Policy::new("p", LIMIT, WINDOW).unwrap();
                while !stop.load(Ordering::SeqCst) {
                    let (start, was_down) = (Instant::now(), down.load(Ordering::SeqCst));
                    // On a busy machine a check may miss its deadline although Redis is healthy.
                    let result = limiter.check("k", &policy, 1).fail_local().await;
                    let decision = FailurePolicy::Local.resolve(result);
                    if was_down && decision.source() == Source::Local {
                        waits.lock().unwrap().push(start.elapsed());
                    }
                    if decision.is_allowed() {
                        history.lock().unwrap().push((crate::support::time_us(&decision).unwrap(), decision.source()));
                    }
                    tokio::time::sleep(Duration::from_millis(8)).await;
                }
            });
        }
        service
    }

    async fn end(mut self) -> Vec<Admitted> {
        self.stop.store(true, Ordering::SeqCst);
        while self.instances.join_next().await.is_some() {}
        let mut history = std::mem::take(&mut *self.history.lock().unwrap());
        history.sort_by_key(|(at, _)| *at);
        history
    }
}

/// The highest admitted cost of any window that ends in the period, as a multiple of the limit.
fn worst_ratio(history: &[Admitted], from: u64, to: u64) -> f64 {
    let window = u64::try_from(WINDOW.as_micros()).unwrap();
    let ends = history.iter().map(|(at, _)| *at).filter(|at| (from..to).contains(at));
    let within = |end: u64| history.iter().filter(|(at, _)| *at <= end && at + window > end).count();
    let most = ends.map(within).max().unwrap_or(0);
    most as f64 / LIMIT as f64
}

async fn seconds(seconds: u64) -> u64 {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    SystemClock.now_us()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_with_balanced_load_admit_little_more_than_the_limit_while_redis_is_silent() {
    let server = RedisServer::start();
    let service =
        Service::start(&server, |store| Limiter::new(store).with_local_fallback(MemoryStore::new(), INSTANCES));
    let start = seconds(3).await;
    server.pause(Duration::from_secs(5));
    service.down.store(true, Ordering::SeqCst);
    let back = seconds(5).await;
    let end = seconds(4).await;
    report("silent", service, start, back, end).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_instances_with_balanced_load_admit_little_more_than_the_limit_while_redis_is_dead() {
    let mut server = RedisServer::start();
    let service = Service::start(&server, |store| Limiter::new(store).with_local_fallback(MemoryStore::new(), None));
    let start = seconds(3).await;
    server.kill();
    service.down.store(true, Ordering::SeqCst);
    let back = seconds(5).await;
    server.restart();
    let end = seconds(4).await;
    report("dead", service, start, back, end).await;
}

async fn report(outage: &str, service: Service, start: u64, back: u64, end: u64) {
    let waits = Arc::clone(&service.waits);
    let history = service.end().await;
    let mut waits = std::mem::take(&mut *waits.lock().unwrap());
    // Probes and the checks at the onset wait for the deadline; all other decisions are local and immediate.
    let all = waits.len();
    waits.retain(|wait| *wait < Duration::from_millis(50));
    waits.sort();
    let enforced = history.iter().find(|(at, source)| *at > back && *source == Source::Store).unwrap().0 - back;
    let (before, during, after) =
        (worst_ratio(&history, 0, start), worst_ratio(&history, start, back), worst_ratio(&history, back, end));
    println!(
        "local outage={outage} before={before:.3} during={during:.3} after={after:.3} recovery_ms={} p50_wait_us={} \
         p99_wait_us={} waited_for_the_deadline={} of {all}",
        enforced / 1_000,
        waits[waits.len() / 2].as_micros(),
        waits[waits.len() * 99 / 100].as_micros(),
        all - waits.len(),
    );
    assert!(before <= 1.25, "{before}");
    assert!(during <= 1.25, "{during}");
    assert!(after <= 1.25, "{after}");
    assert!(enforced <= 2_000_000, "{enforced} µs");
}

/// A store with a long deadline for a busy machine; a dead server refuses connections at once.
fn with_long_deadline(server: &RedisServer) -> RedisStore {
    RedisStore::builder().deadline(Duration::from_secs(2)).open(&server.url()).unwrap()
}

#[tokio::test]
async fn instances_discover_each_other_and_have_no_share_before() {
    let mut server = RedisServer::start();
    let instance = || Limiter::new(with_long_deadline(&server)).with_local_fallback(MemoryStore::new(), None);
    let (limiters, policy) = ([instance(), instance(), instance(), instance()], Policy::per_hour("p", 40).unwrap());
    let late = instance();
    for _ in 0..10 {
        for limiter in &limiters {
            let _ = limiter.peek("k", &policy).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let kept = server.command("ZCARD tollgate:instances");
    assert!(kept.contains(":4"), "{kept}");
    let ttl = server.command("PTTL tollgate:instances");
    let ttl: i64 = ttl.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap();
    assert!((1..=60_000).contains(&ttl), "{ttl}");
    server.kill();
    for limiter in &limiters {
        let decision = limiter.check("k", &policy, 1).fail_local().await.unwrap();
        assert_eq!((decision.source(), decision.available()), (Source::Local, Some(9)));
    }
    assert!(late.check("k", &policy, 1).fail_local().await.is_err(), "an undiscovered instance has a share");
}

#[tokio::test]
async fn instances_are_not_counted_without_discovery() {
    let server = RedisServer::start();
    let limiter = Limiter::new(with_long_deadline(&server)).with_local_fallback(MemoryStore::new(), 2);
    let _ = limiter.check("k", &Policy::per_hour("p", 40).unwrap(), 1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(server.command("EXISTS tollgate:instances").starts_with(":0"));
}

#[tokio::test]
async fn admissions_during_an_outage_are_charged_to_redis() {
    let mut server = RedisServer::start();
    let limiter = Limiter::new(with_long_deadline(&server)).with_local_fallback(MemoryStore::new(), 2);
    let policy = Policy::per_hour("p", 40).unwrap();
    assert!(limiter.check("k", &policy, 5).fail_local().await.unwrap().is_allowed());
    server.kill();
    let mut admitted = 0;
    for _ in 0..30 {
        let decision = limiter.check("k", &policy, 1).fail_local().await.unwrap();
        assert_eq!(decision.source(), Source::Local);
        admitted += u64::from(decision.is_allowed());
    }
    assert_eq!(admitted, 15, "half of the limit, less what Redis had admitted");
    server.restart();
    let start = Instant::now();
    // Redis has lost the first five units; the local admissions are charged now, except at most two in-flight checks.
    while !limiter.peek("k", &policy).await.is_ok_and(|decision| (25..=27).contains(&decision.available().unwrap())) {
        assert!(start.elapsed() < Duration::from_secs(2));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
