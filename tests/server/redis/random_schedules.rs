//! Random schedules for the batcher: dropped checks, panics in the same task, and network latency, silence and resets.
//! The seed determines the schedule. `TOLLGATE_SEED=5` begins with seed 5.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::{task::JoinHandle, time::timeout};
use tollgate::{Limiter, RedisStore};

use super::policy;
use crate::support::proxy::{Fault, Proxy};
use crate::support::{redis_server::RedisServer, seed::seeds};

/// The outcomes of all checks of one key.
#[derive(Default)]
struct Outcomes {
    admitted: AtomicU64,
    /// Checks that may have been charged: no verdict arrived, or the check was dropped.
    unknown: AtomicU64,
}

/// Counts a check as unknown if it is dropped before its verdict.
struct Dropped<'a>(&'a Outcomes, bool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.unknown.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn check(limiter: &Limiter, outcomes: &Arc<Outcomes>, panics_after: Option<Duration>) -> JoinHandle<()> {
    let (limiter, outcomes) = (limiter.clone(), Arc::clone(outcomes));
    tokio::spawn(async move {
        let check = async {
            let mut dropped = Dropped(&outcomes, false);
            let result = limiter.check("k", &policy(), 1).await;
            dropped.1 = true;
            match result {
                Ok(decision) => outcomes.admitted.fetch_add(u64::from(decision.is_allowed()), Ordering::SeqCst),
                Err(error) => outcomes.unknown.fetch_add(u64::from(error.may_have_charged()), Ordering::SeqCst),
            };
        };
        let sibling = async {
            if let Some(time) = panics_after {
                tokio::time::sleep(time).await;
                panic!("a sibling that panics");
            }
        };
        tokio::join!(check, sibling);
    })
}

/// The available units, as soon as the store answers: it recovers, and tests that run beside this one may delay it.
async fn available(limiter: &Limiter, seed: u64) -> u64 {
    let start = Instant::now();
    loop {
        if let Ok(decision) = limiter.peek("k", &policy()).await {
            return decision.available().unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(3), "seed {seed}: did not recover");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn schedule(seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: u64| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    };
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let limiter = Limiter::new(RedisStore::open(&proxy.url()).unwrap());
    let outcomes = Arc::<Outcomes>::default();
    let mut tasks = Vec::new();
    for _ in 0..120 {
        match below(12) {
            0..=3 => tasks.push(check(&limiter, &outcomes, None)),
            4 => tasks.push(check(&limiter, &outcomes, Some(Duration::from_millis(below(20))))),
            5 => tasks.extend((0..below(600)).map(|_| check(&limiter, &outcomes, None))),
            6 | 7 if !tasks.is_empty() => tasks[usize::try_from(below(tasks.len() as u64)).unwrap()].abort(),
            8 => proxy.set(Fault::Latency(Duration::from_millis(below(40)))),
            9 => proxy.set(if below(4) == 0 { Fault::Reset } else { Fault::Mute }),
            10 => proxy.set(Fault::Pass),
            _ => tokio::time::sleep(Duration::from_millis(below(30))).await,
        }
    }
    proxy.set(Fault::Pass);
    for task in tasks {
        let ended = timeout(Duration::from_secs(5), task).await;
        assert!(ended.is_ok(), "seed {seed}: a check hangs");
    }
    available(&limiter, seed).await;
    // Fills the queue and all calls, which would fail if an abandoned call had kept its slot.
    let burst: Vec<_> = (0..1_000).map(|_| check(&limiter, &outcomes, None)).collect();
    for task in burst {
        assert!(timeout(Duration::from_secs(5), task).await.is_ok(), "seed {seed}: the queue is stuck");
    }
    let spent = 100_000 - available(&limiter, seed).await;
    let (admitted, unknown) = (outcomes.admitted.load(Ordering::SeqCst), outcomes.unknown.load(Ordering::SeqCst));
    assert!((admitted..=admitted + unknown).contains(&spent), "seed {seed}: {admitted}, {unknown}, {spent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_random_schedule_of_drops_panics_and_network_faults_breaks_the_batcher() {
    // Hides the expected panics.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.to_string().contains("a sibling that panics") {
            hook(panic);
        }
    }));
    for seed in seeds(12) {
        schedule(seed).await;
    }
}
