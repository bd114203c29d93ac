//! Measures checks and holds of one commit, for `benches/commits/compare`: prints a line for each case with its name,
//! the operations a second, and the median and the 99th percentile of their times in microseconds. A slot counts when
//! it has been given back.
//!
//! Only the parts of the API that are the same in both commits.
// Units are u32 in older commits.
#![allow(clippy::unwrap_used, clippy::useless_conversion)]

use std::env;
use std::time::{Duration, Instant};

#[cfg(not(holds))]
use tollgate::policy::HoldSettings;
#[cfg(holds)]
use tollgate::policy::Holds as HoldSettings;
use tollgate::{Limiter, MemoryStore, Policy, RedisStore, limiter::Hold};

/// What is measured: an operation on one of 10 000 keys.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Check,
    /// Holds a unit, and settles it.
    HoldAndSettle,
    /// Takes a slot, and drops it: its end is sent in the background.
    SlotAndDrop,
}

const OPERATIONS: [Operation; 3] = [Operation::Check, Operation::HoldAndSettle, Operation::SlotAndDrop];
const KEYS: u64 = 10_000;
/// How many keys are looked at at once.
const PEEKS: u64 = 256;
/// The limit of each key, which is never reached.
const LIMIT: u32 = 1_000_000;

/// What a setter of a policy returns: a `Result` in older commits.
trait Set {
    fn policy(self) -> Policy;
}

impl Set for Policy {
    fn policy(self) -> Policy {
        self
    }
}

impl<E: std::fmt::Debug> Set for Result<Policy, E> {
    fn policy(self) -> Policy {
        self.unwrap()
    }
}

#[cfg(connects)]
fn open(url: &str) -> RedisStore {
    RedisStore::connect(url).unwrap()
}

#[cfg(not(connects))]
fn open(url: &str) -> RedisStore {
    RedisStore::open(url).unwrap()
}

#[cfg(into_hold)]
async fn hold(limiter: &Limiter, key: u64, policy: &Policy) -> Hold {
    limiter.hold(key, policy, 1).await.unwrap().into_hold().unwrap()
}

#[cfg(not(into_hold))]
async fn hold(limiter: &Limiter, key: u64, policy: &Policy) -> Hold {
    limiter.hold(key, policy, 1).await.unwrap().into_result().unwrap()
}

impl Operation {
    fn policy(self) -> Policy {
        let rate = || Policy::per_second("rate", LIMIT.into()).unwrap();
        match self {
            Self::Check => rate(),
            Self::HoldAndSettle => rate().with_holds(HoldSettings::new()).policy(),
            Self::SlotAndDrop => Policy::concurrent("slots", LIMIT.into()).unwrap(),
        }
    }

    async fn run(self, limiter: &Limiter, policy: &Policy, key: u64) {
        match self {
            Self::Check => assert!(limiter.check(key, policy, 1).await.unwrap().is_allowed()),
            Self::HoldAndSettle => {
                let _ = hold(limiter, key, policy).await.settle(1).await.unwrap();
            }
            Self::SlotAndDrop => drop(hold(limiter, key, policy).await),
        }
    }
}

/// Keeps as many operations in flight for this time. Returns how long each of them took, in nanoseconds.
async fn load(limiter: &Limiter, operation: Operation, in_flight: u64, time: Duration) -> Vec<u64> {
    let end = Instant::now() + time;
    let tasks: Vec<_> = (0..in_flight)
        .map(|task| {
            let (limiter, policy) = (limiter.clone(), operation.policy());
            tokio::spawn(async move {
                let (mut times, mut key) = (Vec::new(), task);
                loop {
                    let start = Instant::now();
                    if start >= end {
                        return times;
                    }
                    operation.run(&limiter, &policy, key % KEYS).await;
                    times.push(u64::try_from(start.elapsed().as_nanos()).unwrap());
                    key += in_flight;
                    if in_flight == 1 && key.is_multiple_of(64) {
                        // A store in memory never waits, and the ends in the background need the thread too.
                        tokio::task::yield_now().await;
                    }
                }
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.unwrap());
    }
    times
}

/// The slots that are still taken right after a load. The ends of holds are sent in the background, and commits differ
/// in how far behind that is.
async fn still_held(limiter: &Limiter) -> usize {
    let peeks: Vec<_> = (0..PEEKS)
        .map(|first| {
            let (limiter, policy) = (limiter.clone(), Operation::SlotAndDrop.policy());
            tokio::spawn(async move {
                let mut held = 0;
                for key in (first..KEYS).step_by(PEEKS as usize) {
                    let decision = limiter.peek(key, &policy).await.unwrap();
                    held += u64::from(LIMIT) - u64::from(decision.available().unwrap());
                }
                usize::try_from(held).unwrap()
            })
        })
        .collect();
    let mut held = 0;
    for peek in peeks {
        held += peek.await.unwrap();
    }
    held
}

/// Loads the limiter, and prints the line of the case.
async fn measure(case: &str, limiter: &Limiter, operation: Operation, in_flight: u64, time: Duration) {
    let mut times = load(limiter, operation, in_flight, time).await;
    let unfinished = match operation {
        Operation::SlotAndDrop => still_held(limiter).await,
        Operation::Check | Operation::HoldAndSettle => 0,
    };
    times.sort_unstable();
    let us = |part: usize| times[times.len() * part / 100] as f64 / 1_000.0;
    let finished = times.len().saturating_sub(unfinished);
    println!("{case}\t{:.0}\t{:.3}\t{:.3}", finished as f64 / time.as_secs_f64(), us(50), us(99));
}

fn main() {
    let time = Duration::from_millis(env::var("MILLISECONDS").unwrap().parse().unwrap());
    let url = env::var("REDIS_URL").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for operation in OPERATIONS {
            let memory = Limiter::new(MemoryStore::new());
            load(&memory, operation, 1, time / 4).await;
            measure(&format!("memory {operation:?}"), &memory, operation, 1, time).await;
            let redis = Limiter::new(open(&url));
            load(&redis, operation, 16, time / 4).await;
            for in_flight in [1, 16, 256] {
                measure(&format!("redis {operation:?}, {in_flight} in flight"), &redis, operation, in_flight, time)
                    .await;
            }
            redis.close().await;
        }
    });
}
