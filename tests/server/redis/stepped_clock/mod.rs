//! A real server whose clock is set back and forward under load: what is admitted, and what is free afterwards.
//!
//! `clock.c` moves the clock. `lua::clock_steps` and `redis::holds::clock_steps` have the exact bounds, with a script
//! that reads its time from a key.

use std::time::{Duration, Instant};
use std::{collections::BTreeMap, fs::File, os::unix::fs::FileExt, process::Command};

use tokio::task::JoinSet;
use tollgate::{Algorithm, Check, Limiter, Policy, RedisStore, decision::Source, policy::HoldSettings};

use super::holds::check;
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::windows::{Admitted, most_within};
use crate::support::{ALGORITHMS, print_line};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: u64 = 10;
const STEPS: [i64; 4] = [-3_600, -5, 5, 3_600];

/// A server, and the file with the microseconds that its clock is ahead.
pub(super) struct SteppedServer {
    pub(super) server: RedisServer,
    ahead: File,
    ahead_us: i64,
    _directory: Directory,
}

impl SteppedServer {
    /// `None` without a C compiler.
    pub(super) fn start() -> Option<Self> {
        let directory = Directory::new();
        let (library, file) = (compile_clock(&directory)?, directory.write("ahead", 0_i64.to_le_bytes()));
        let server = RedisServer::start_in(&[("LD_PRELOAD", &library), ("STEPPED_CLOCK", &file)]);
        let ahead = File::options().write(true).open(&file).unwrap();
        let stepped = Self { server, ahead, ahead_us: 0, _directory: directory };
        Some(stepped)
    }

    /// Sets the clock forward, or back. In place, because the server has mapped the file.
    pub(super) fn step(&mut self, seconds: i64) {
        let before = self.now();
        self.ahead_us += seconds * 1_000_000;
        self.ahead.write_all_at(&self.ahead_us.to_le_bytes(), 0).unwrap();
        let stepped = self.now() - before;
        assert!((seconds..seconds + 60).contains(&stepped), "the clock was set by {stepped} s instead of {seconds} s");
    }

    /// The seconds of the server's clock.
    fn now(&self) -> i64 {
        let (seconds, _): (i64, i64) = tollgate::redis::cmd("TIME").query(&mut self.server.connection()).unwrap();
        seconds
    }
}

/// Compiles the clock that a process preloads. `None` without a C compiler.
pub(super) fn compile_clock(directory: &Directory) -> Option<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/redis/stepped_clock/clock.c");
    let library = directory.path("clock.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library, source]).status();
    let Ok(status) = compiled else {
        eprintln!("SKIPPED: no C compiler (cc), so no process has a clock that this test can set");
        return None;
    };
    assert!(status.success(), "cc does not compile {source}");
    Some(library)
}

/// What spends a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Checks(Algorithm),
    Holds(Algorithm),
    Lease(Algorithm),
    Ban(Algorithm),
    Acquire(Algorithm),
}

impl Kind {
    /// Checks and holds under every algorithm, and the other kinds under the log.
    fn most() -> Vec<Self> {
        let algorithms = ALGORITHMS.into_iter();
        let kinds = algorithms.flat_map(|algorithm| [Self::Checks(algorithm), Self::Holds(algorithm)]);
        let log = Algorithm::SlidingWindowLog;
        kinds.chain([Self::Lease(log), Self::Ban(log), Self::Acquire(log)]).collect()
    }

    fn all() -> Vec<Self> {
        let kinds = [Self::Checks, Self::Holds, Self::Lease, Self::Ban, Self::Acquire];
        kinds.into_iter().flat_map(|kind| ALGORITHMS.map(kind)).collect()
    }

    fn algorithm(self) -> Algorithm {
        match self {
            Self::Checks(algorithm)
            | Self::Holds(algorithm)
            | Self::Lease(algorithm)
            | Self::Ban(algorithm)
            | Self::Acquire(algorithm) => algorithm,
        }
    }

    /// Blocks are taken of a large limit only, and for a key with many checks.
    fn limit(self) -> u64 {
        if let Self::Lease(_) = self { 40 * LIMIT } else { LIMIT }
    }

    fn checks_at_once(self) -> usize {
        if let Self::Lease(_) = self { 32 } else { 1 }
    }

    fn policy(self) -> Policy {
        let policy = Policy::per_second("p", self.limit()).unwrap().with_algorithm(self.algorithm());
        match self {
            Self::Checks(_) | Self::Acquire(_) => policy,
            Self::Holds(_) => policy.with_holds(HoldSettings::new().with_ttl(SECOND)),
            Self::Lease(_) => policy.with_lease(self.limit() / 4),
            Self::Ban(_) => policy.ban_after(3, SECOND),
        }
    }

    /// The limits that any window of a second may see while the clock goes as it should.
    fn limits_in_a_window(self) -> u64 {
        match self.algorithm() {
            Algorithm::SlidingWindowLog => 1,
            // The approximations of these algorithms.
            _ => 2,
        }
    }

    /// Asks for one unit. Returns who admitted it, and `None` if it was denied.
    async fn spend(self, limiter: &Limiter, key: &str, policy: &Policy) -> Option<Source> {
        let decision = match self {
            Self::Holds(_) => {
                let hold = limiter.hold(key, policy, 1).await.unwrap().into_result().ok()?;
                hold.settle(1).await.unwrap();
                return Some(Source::Store);
            }
            Self::Acquire(_) => limiter.acquire(key, policy, 1).within(SECOND / 4).await.unwrap(),
            _ => limiter.check(key, policy, 1).await.unwrap(),
        };
        decision.is_allowed().then(|| decision.source())
    }
}

/// Returns what was admitted, and how much of it from blocks.
async fn load(limiter: Limiter, kind: Kind, until: Instant) -> (Vec<Admitted>, usize) {
    let (mut admitted, mut from_blocks) = (Vec::new(), 0);
    while Instant::now() < until {
        let mut checks = JoinSet::new();
        for _ in 0..kind.checks_at_once() {
            let (limiter, key, policy) = (limiter.clone(), format!("{kind:?}"), kind.policy());
            checks.spawn(async move {
                let sent = Instant::now();
                let source = kind.spend(&limiter, &key, &policy).await?;
                Some(((sent, Instant::now()), source))
            });
        }
        for (times, source) in checks.join_all().await.into_iter().flatten() {
            admitted.push(times);
            from_blocks += usize::from(source == Source::Lease);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (admitted, from_blocks)
}

/// What has become of the load of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    most_in_a_second: usize,
    admitted: usize,
    from_blocks: usize,
    /// The units that are charged at the end of the load.
    charged: u64,
    free_after: Duration,
}

impl Figures {
    fn larger(self, other: Self) -> Self {
        Self {
            most_in_a_second: self.most_in_a_second.max(other.most_in_a_second),
            admitted: self.admitted.max(other.admitted),
            from_blocks: self.from_blocks.max(other.from_blocks),
            charged: self.charged.max(other.charged),
            free_after: self.free_after.max(other.free_after),
        }
    }
}

/// Waits until a key has all of its units again. A key that a step blocks has them an hour later.
async fn until_free(limiter: &Limiter, key: &str, policy: &Policy, case: &str) -> Duration {
    let start = Instant::now();
    loop {
        let available = limiter.peek(key, policy).await.unwrap().available();
        if available == Some(policy.limit()) {
            return start.elapsed();
        }
        assert!(start.elapsed() < 30 * SECOND, "{case}: {available:?} units of {key} are free");
        tokio::time::sleep(SECOND / 20).await;
    }
}

/// Steps the clock under the load of these kinds, beside a slot of a process that lives and those of one that has died.
async fn keeps_its_limits(steps: &[i64], kinds: &[Kind]) -> Vec<(String, Figures)> {
    let Some(mut stepped) = SteppedServer::start() else { return Vec::new() };
    let builder = RedisStore::builder().plain_keys().deadline(10 * SECOND).breaker(None);
    let store = builder.open(&stepped.server.url()).unwrap();
    let (limiter, case) = (Limiter::new(store.clone()).without_notices(), format!("steps of {steps:?} s"));
    limiter.ready().await.unwrap();
    let slots = HoldSettings::new().with_ttl(SECOND).with_unsettled_released(true);
    let slots = Policy::concurrent("slots", 1).unwrap().with_holds(slots);
    let living = limiter.hold("living", &slots, 1).await.unwrap().into_result().unwrap();

    let forward = steps.iter().filter(|step| **step > 0).count() as u64;
    let end = Instant::now() + SECOND * (2 + steps.len() as u32);
    let loads = kinds.iter().map(|&kind| (kind, tokio::spawn(load(limiter.clone(), kind, end))));
    let (loads, mut figures): (Vec<_>, _) = (loads.collect(), Vec::new());
    for &step in steps {
        tokio::time::sleep(SECOND * 3 / 4).await;
        // Nothing renews these: their process has died.
        let dead = Check::hold("dead", &slots, 1);
        check(&store, &dead).await;
        stepped.step(step);
    }
    tokio::time::sleep(SECOND * 3 / 2).await;
    if forward == 0 {
        let second = limiter.hold("living", &slots, 1).await.unwrap();
        assert!(!second.is_allowed(), "{case}: two slots of one");
    }
    drop(living);
    for (kind, load) in loads {
        let (admitted, from_blocks) = load.await.unwrap();
        // A block that the server has forgotten is spent beside the limit.
        let forgotten = u64::from(matches!(kind, Kind::Lease(_)) && forward > 0);
        let most = (kind.limit() * (kind.limits_in_a_window() + forward + forgotten)) as usize;
        let seen = most_within(SECOND, &admitted);
        assert!(seen <= most, "{case}, {kind:?}: {seen} units in a second, at most {most}");
        assert!(admitted.len() >= kind.limit() as usize, "{case}, {kind:?}: {} units in all", admitted.len());
        let (key, policy) = (format!("{kind:?}"), kind.policy());
        let left = limiter.peek(&*key, &policy).await.unwrap().available().unwrap();
        let (charged, admitted) = (kind.limit() - left, admitted.len());
        assert!(charged as usize <= admitted, "{case}, {kind:?}: {charged} charged, {admitted} admitted");
        let free_after = until_free(&limiter, &key, &policy, &case).await;
        assert!(kind.spend(&limiter, &key, &policy).await.is_some(), "{case}, {kind:?}");
        figures.push((key, Figures { most_in_a_second: seen, admitted, from_blocks, charged, free_after }));
    }
    for key in ["living", "dead"] {
        let free_after = until_free(&limiter, key, &slots, &case).await;
        figures.push((format!("slots of a process: {key}"), Figures { free_after, ..Figures::default() }));
    }
    figures
}

/// Returns the largest figures of each kind.
async fn all_keep_their_limits(cases: Vec<Vec<i64>>, kinds: &[Kind]) -> BTreeMap<String, Figures> {
    let cases = cases.into_iter().map(|case| {
        let kinds = kinds.to_vec();
        tokio::spawn(async move { keeps_its_limits(&case, &kinds).await })
    });
    let mut largest = BTreeMap::new();
    for case in cases.collect::<Vec<_>>() {
        for (kind, figures) in case.await.unwrap() {
            let entry: &mut Figures = largest.entry(kind).or_default();
            *entry = entry.larger(figures);
        }
    }
    largest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_15_limits_hold_and_all_is_free_after_the_clock_of_a_server_was_set_back_or_forward() {
    let figures = all_keep_their_limits(STEPS.map(|step| vec![step]).to_vec(), &Kind::most()).await;
    let leased = figures.iter().filter(|(kind, _)| kind.starts_with("Lease"));
    leased.for_each(|(kind, figures)| assert!(figures.from_blocks > 0, "{kind}: no clock was set under a block"));
}

/// Every pair of steps, among them those there and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute; tests/run --long runs it"]
async fn long_law_15_limits_hold_and_all_is_free_after_any_two_steps_of_the_clock_of_a_server() {
    let mut largest: BTreeMap<String, Figures> = BTreeMap::new();
    for first in STEPS {
        let cases = STEPS.map(|second| vec![first, second]).to_vec();
        for (kind, figures) in all_keep_their_limits(cases, &Kind::all()).await {
            let entry = largest.entry(kind).or_default();
            *entry = entry.larger(figures);
        }
    }
    for (kind, figures) in largest {
        print_line(&format!("{kind}: {figures:?}"));
    }
}

/// Of the end of a ban, a step of an hour would make one more hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ban_by_hand_lasts_at_most_twice_as_long_after_the_clock_was_set_back() {
    let Some(mut stepped) = SteppedServer::start() else { return };
    let builder = RedisStore::builder().plain_keys().deadline(10 * SECOND).breaker(None);
    let limiter = Limiter::new(builder.open(&stepped.server.url()).unwrap()).without_notices();
    let policies = ALGORITHMS.map(|algorithm| Policy::per_hour("p", LIMIT).unwrap().with_algorithm(algorithm));
    let key = |number: usize, is_used| format!("{number} {is_used}");
    for (number, policy) in policies.iter().enumerate() {
        assert!(limiter.check(key(number, true), policy, 3).await.unwrap().is_allowed());
        for is_used in [true, false] {
            limiter.ban(key(number, is_used), policy, 2 * SECOND).await.unwrap();
        }
    }
    stepped.step(-3_600);
    let start = Instant::now();
    for (number, policy) in policies.iter().enumerate() {
        for (is_used, left) in [(true, LIMIT - 3), (false, LIMIT)] {
            let denied = limiter.check(key(number, is_used), policy, 1).await.unwrap();
            let wait = denied.retry_after().expect("the ban goes on");
            assert!(wait <= 2 * SECOND, "{policy:?}: {wait:?}");
            tokio::time::sleep(wait).await;
            let decision = limiter.check(key(number, is_used), policy, left).await.unwrap();
            assert!(decision.is_allowed(), "{policy:?}, {is_used}: {decision:?}");
        }
    }
    assert!(start.elapsed() < 60 * SECOND, "{:?}", start.elapsed());
}
