//! A check in memory on one thread: tollgate beside governor.
//!
//! Both enforce the same quota on the same keys in the same random order. The window grows with the number of keys and
//! holds a few dozen requests of each key, so that every check is allowed and tollgate's log has records to keep.
//!
//! governor borrows an existing key and returns whether the request is allowed. tollgate takes a text and creates a
//! key, a future (none with `try_check`) and a decision. The variants with the store alone measure the store's share,
//! on prepared checks.

use std::time::{Duration, Instant};
use std::{hint::black_box, num::NonZeroU32};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use serde_json::json;
use tollgate::store::{Answer, Store};
use tollgate::{Algorithm, Check, Key, Limiter, MemoryStore, Policy};

use crate::{ROUNDS, Result, args::Args, poll, random::Random, report::Report, stats::median};

const KEY_COUNTS: [usize; 3] = [1_000, 10_000, 1_000_000];
const VARIANTS: usize = 10;
const LIMIT: u32 = 1_000;
/// Number of checks between two readings of the clock.
const BLOCK: usize = 10_000;

/// The random order of the checked keys, drawn in advance so that drawing is not measured.
struct Order {
    keys: Vec<usize>,
    next: usize,
}

impl Order {
    fn new(keys: usize) -> Self {
        let mut random = Random::new(1);
        Self { keys: (0..2_000_000).map(|_| random.below(keys)).collect(), next: 0 }
    }

    fn block(&mut self) -> &[usize] {
        if self.next + BLOCK > self.keys.len() {
            self.next = 0;
        }
        self.next += BLOCK;
        &self.keys[self.next - BLOCK..self.next]
    }
}

/// Checks keys in blocks for at least `time`. Returns nanoseconds per check and the share of allowed checks.
fn slice(order: &mut Order, time: Duration, mut check: impl FnMut(usize) -> bool) -> (f64, f64) {
    let (start, mut checks, mut allowed) = (Instant::now(), 0_u64, 0_u64);
    loop {
        for &key in order.block() {
            allowed += u64::from(black_box(check(key)));
        }
        checks += BLOCK as u64;
        let elapsed = start.elapsed();
        if elapsed >= time {
            return (elapsed.as_nanos() as f64 / checks as f64, allowed as f64 / checks as f64);
        }
    }
}

type Slice<'a> = Box<dyn FnMut(&mut Order, Duration) -> (f64, f64) + 'a>;

pub fn run(args: &Args, report: &mut Report) -> Result<()> {
    for &count in args.some_of(&KEY_COUNTS) {
        compare(count, Duration::from_secs_f64(args.seconds), report)?;
    }
    Ok(())
}

fn compare(count: usize, time: Duration, report: &mut Report) -> Result<()> {
    // A check takes a few tenths of a microsecond, so 10 us per key hold a few dozen requests of each key.
    let window = Duration::from_micros(10 * count as u64);
    let texts: Vec<String> = (0..count).map(|key| format!("user:{key}")).collect();
    let keys: Vec<Key> = texts.iter().map(Key::from).collect();
    let policy = Policy::new("peers", LIMIT.into(), window)?;
    let (log, bucket) = (policy.clone(), policy.with_algorithm(Algorithm::TokenBucket));
    let store = || memory(count).map(Limiter::new);
    let (from_text, from_key, from_number, as_bucket) = (store()?, store()?, store()?, store()?);
    let (tried, tried_as_bucket) = (store()?, store()?);
    let (store_as_log, store_as_bucket) = (memory(count)?, memory(count)?);
    let checks = |policy: &Policy| keys.iter().map(|key| Check::new(key.clone(), policy, 1)).collect::<Vec<_>>();
    let (log_checks, bucket_checks) = (checks(&log), checks(&bucket));
    let (by_text, by_number) = (governor::<String>(window)?, governor::<u64>(window)?);
    let is_allowed = |limiter: &Limiter, key: Key, policy: &Policy| {
        poll::once(limiter.check(key, policy, 1))
            .is_some_and(|result| result.is_ok_and(|decision| decision.is_allowed()))
    };
    let tries = |limiter: &Limiter, key: &String, policy: &Policy| {
        limiter.try_check(key, policy, 1).is_ok_and(|decision| decision.is_allowed())
    };
    let store_allows = |store: &MemoryStore, check: &Check| match store.check(check) {
        Answer::Ready(verdict) => verdict.is_ok_and(|verdict| verdict.allowed),
        Answer::Pending(_) => false,
    };
    let mut variants: [(&str, Slice<'_>); VARIANTS] = [
        ("tollgate log, key from text", checker(|key| is_allowed(&from_text, Key::from(&texts[key]), &log))),
        ("tollgate log, prepared key", checker(|key| is_allowed(&from_key, keys[key].clone(), &log))),
        ("tollgate log, key from u64", checker(|key| is_allowed(&from_number, Key::from(key as u64), &log))),
        (
            "tollgate token bucket, key from text",
            checker(|key| is_allowed(&as_bucket, Key::from(&texts[key]), &bucket)),
        ),
        ("governor check_key, String", checker(|key| by_text.check_key(&texts[key]).is_ok())),
        ("governor check_key, u64", checker(|key| by_number.check_key(&(key as u64)).is_ok())),
        ("tollgate log, the store alone", checker(|key| store_allows(&store_as_log, &log_checks[key]))),
        ("tollgate token bucket, the store alone", checker(|key| store_allows(&store_as_bucket, &bucket_checks[key]))),
        ("tollgate log, try_check", checker(|key| tries(&tried, &texts[key], &log))),
        ("tollgate token bucket, try_check", checker(|key| tries(&tried_as_bucket, &texts[key], &bucket))),
    ];
    let mut order = Order::new(count);
    let mut figures = [const { Vec::new() }; VARIANTS];
    // The warm-up lasts one window, but at least one slice and at most `time`.
    for (_, check) in &mut variants {
        check(&mut order, (time / ROUNDS).max(window.min(time)));
    }
    for _ in 0..ROUNDS {
        for ((_, check), figures) in variants.iter_mut().zip(&mut figures) {
            figures.push(check(&mut order, time / ROUNDS));
        }
    }
    println!("\n{count} keys");
    let mut ns = [0.0; VARIANTS];
    for (index, (name, _)) in variants.iter().enumerate() {
        ns[index] = median(figures[index].iter().map(|figure| figure.0).collect());
        let allowed = median(figures[index].iter().map(|figure| figure.1).collect());
        println!("  {name:<38} {:>7.1} ns  {:>5.1} % allowed", ns[index], 100.0 * allowed);
        report.figure(json!({ "variant": name, "keys": count, "ns": ns[index], "allowed": allowed }));
    }
    let name = match count {
        1_000 => "1k",
        10_000 => "10k",
        _ => "1m",
    };
    report.ratio(&format!("memory_{name}_vs_governor"), ns[0] / ns[4]);
    report.ratio(&format!("memory_{name}_key_made_before_vs_governor"), ns[1] / ns[4]);
    report.ratio(&format!("memory_{name}_u64_vs_governor"), ns[2] / ns[5]);
    report.ratio(&format!("memory_{name}_bucket_vs_governor"), ns[3] / ns[4]);
    report.ratio(&format!("memory_{name}_store_alone_vs_governor"), ns[6] / ns[4]);
    report.ratio(&format!("memory_{name}_bucket_store_alone_vs_governor"), ns[7] / ns[4]);
    report.ratio(&format!("memory_{name}_try_check_vs_governor"), ns[8] / ns[4]);
    report.ratio(&format!("memory_{name}_bucket_try_check_vs_governor"), ns[9] / ns[4]);
    Ok(())
}

fn memory(count: usize) -> Result<MemoryStore> {
    Ok(MemoryStore::with_capacity(2 * count.max(1_000))?)
}

fn checker<'a>(mut check: impl FnMut(usize) -> bool + 'a) -> Slice<'a> {
    Box::new(move |order, time| slice(order, time, &mut check))
}

/// A governor limiter with the limit of tollgate's policy: `LIMIT` units per `window`, and a burst of `LIMIT`.
fn governor<K: Clone + Eq + std::hash::Hash>(window: Duration) -> Result<DefaultKeyedRateLimiter<K>> {
    let quota = Quota::with_period(window / LIMIT).ok_or("governor: the period must not be zero")?;
    let burst = NonZeroU32::new(LIMIT).ok_or("governor: the burst must not be zero")?;
    Ok(RateLimiter::keyed(quota.allow_burst(burst)))
}
