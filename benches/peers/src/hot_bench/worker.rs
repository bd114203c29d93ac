//! One process of the load on a hot key, or on many warm keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::task::JoinSet;
use tollgate::{Limiter, Policy, RedisStore};

use super::{Variant, keys::Keys};
use crate::redis_bench::{Checker, RedisCell};
use crate::{Result, endpoint::Endpoint, random::Random, scripts};

/// The number of checks after which a task lets others run, as it would after a request.
const BURST: u64 = 16;

/// Runs the load that the arguments describe, and prints what it got.
pub fn run(args: Vec<String>) -> Result<()> {
    let mut args = args.into_iter();
    let mut text = || args.next().ok_or("a worker needs more arguments");
    let (url, variant) = (text()?, text()?);
    let variant = Variant::parse(&variant).ok_or("unknown variant")?;
    let numbers: Vec<u64> = args.map(|number| number.parse()).collect::<std::result::Result<_, _>>()?;
    let [limit, window_ms, lease, in_flight, start_ms, time_ms, per_second, keys, tenths] = numbers[..] else {
        return Err("a worker needs nine numbers".into());
    };
    let start = UNIX_EPOCH + Duration::from_millis(start_ms);
    let window = Duration::from_millis(window_ms);
    // Of many keys, only the second half of the time counts: by then their leases have begun.
    let counts_after = Duration::from_millis(if keys > 1 { time_ms / 2 } else { 0 });
    let load = Load { start, end: start + Duration::from_millis(time_ms), in_flight, per_second, counts_after };
    // The processes share two cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let got = runtime.block_on(async {
        if variant == Variant::RedisCell {
            let quota = scripts::Quota { limit, window_us: window_ms * 1_000 };
            let cell = RedisCell::new(&Endpoint::at(url), quota).await?;
            return load.run(cell).await;
        }
        let store = RedisStore::builder().prefix("hot:").deadline(Duration::from_secs(10)).open(&url)?;
        let policy = Policy::new("hot", limit, window)?.with_resolution(window / 1_000);
        let policy = if variant == Variant::Leased { policy.with_lease(lease) } else { policy };
        let keys = Arc::new(Keys::new(keys, tenths as f64 / 10.0));
        let hot = Tollgate { limiter: Limiter::new(store), policy, keys, random: Random::new(start_ms) };
        hot.limiter.ready().await?;
        let limiter = hot.limiter.clone();
        let got = load.run(hot).await;
        limiter.close().await;
        got
    })?;
    println!("{}", json!({ "decisions": got.decisions, "admitted": got.admitted }));
    Ok(())
}

/// The outcome of a check: when it was admitted, if the limiter says so.
trait Timed: Clone + Send + 'static {
    fn check(&mut self) -> impl Future<Output = Result<Option<SystemTime>>> + Send;
}

struct Tollgate {
    limiter: Limiter,
    policy: Policy,
    keys: Arc<Keys>,
    random: Random,
}

impl Clone for Tollgate {
    fn clone(&self) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let random = Random::new(NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { limiter: self.limiter.clone(), policy: self.policy.clone(), keys: Arc::clone(&self.keys), random }
    }
}

impl Timed for Tollgate {
    async fn check(&mut self) -> Result<Option<SystemTime>> {
        let key = self.keys.next(&mut self.random);
        let decision = self.limiter.check(key, &self.policy, 1).await?;
        Ok(decision.time().filter(|_| decision.is_allowed()))
    }
}

impl Timed for RedisCell {
    async fn check(&mut self) -> Result<Option<SystemTime>> {
        Checker::check(self, "hot").await.map(|_| None)
    }
}

struct Load {
    start: SystemTime,
    end: SystemTime,
    in_flight: u64,
    /// Checks a second; 0 for as many as possible.
    per_second: u64,
    /// The time after the start from which on decisions count.
    counts_after: Duration,
}

#[derive(Default)]
struct Got {
    decisions: u64,
    /// Units by millisecond since the start.
    admitted: Vec<u64>,
}

impl Load {
    async fn run(&self, checker: impl Timed) -> Result<Got> {
        tokio::time::sleep(self.start.duration_since(SystemTime::now()).unwrap_or_default()).await;
        let now = Instant::now();
        let end = now + self.end.duration_since(SystemTime::now()).unwrap_or_default();
        let counts_from = now + self.counts_after;
        let mut tasks = JoinSet::new();
        for _ in 0..self.in_flight {
            let pace = (self.per_second > 0).then(|| self.per_second as f64 / self.in_flight as f64);
            tasks.spawn(client(checker.clone(), pace, self.start, counts_from, end));
        }
        let mut all = Got::default();
        while let Some(got) = tasks.join_next().await {
            all.add(got??);
        }
        Ok(all)
    }
}

/// Checks as often as possible, or at a pace: so many times a second.
async fn client(
    mut checker: impl Timed,
    pace: Option<f64>,
    start: SystemTime,
    counts_from: Instant,
    end: Instant,
) -> Result<Got> {
    let mut got = Got::default();
    let (begin, mut checks) = (Instant::now(), 0_u64);
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(got);
        }
        while pace.is_some_and(|pace| checks as f64 > begin.elapsed().as_secs_f64() * pace) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if let Some(at) = checker.check().await? {
            let ms = at.duration_since(start).unwrap_or_default().as_millis() as usize;
            got.admitted.resize(got.admitted.len().max(ms + 1), 0);
            got.admitted[ms] += 1;
        }
        checks += 1;
        got.decisions += u64::from(now >= counts_from);
        if checks.is_multiple_of(BURST) {
            tokio::task::yield_now().await;
        }
    }
}

impl Got {
    fn add(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.admitted.resize(self.admitted.len().max(other.admitted.len()), 0);
        self.admitted.iter_mut().zip(other.admitted).for_each(|(sum, units)| *sum += units);
    }
}
