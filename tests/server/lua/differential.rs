//! Law 12: random traces through the memory store, Redis, and Redis behind the deny cache, compared in every field.

use std::cell::{Cell, RefCell};
use std::{fmt::Debug, time::Duration};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use tokio::runtime::Runtime;
use tollgate::{
    Algorithm, Check, Decision, Limiter, ManualClock, MemoryStore, Policy, RedisStore, decision::Source,
    store::CountChange,
};

use crate::support::{redis_server::RedisServer, seed};

const START: u64 = 1_767_225_600_000_000;

#[derive(Clone, Debug)]
struct Step {
    /// Microseconds; the clock may run backwards.
    advance: i64,
    charges: Vec<(usize, u64)>,
    /// A change by hand of one of the counts, before the check.
    change: Option<(usize, CountChange)>,
}

fn policy() -> impl Strategy<Value = Policy> {
    let algorithm = select(vec![
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
    ]);
    let limit = prop_oneof![4 => 1..=8_u64, 2 => 1..=200_u64, 1 => 1..=u64::from(u32::MAX), 1 => 1..=Policy::MAX_LIMIT];
    let window = prop_oneof![
        Just(1),
        1..=50_u64,
        Just(10_000),
        Just(60_000_000),
        Just(86_400_000_000),
        1..=31_622_400_000_000_u64
    ];
    let ban = prop_oneof![
        2 => Just(None),
        1 => (1..=4_u32, prop_oneof![1..=50_u64, Just(60_000_000), 1..=31_622_400_000_000_u64], 1..=5_u64).prop_map(Some),
    ];
    let shadow = prop::bool::weighted(0.3);
    (algorithm, limit, window, 1..=400_u64, 1..=300_u64, any::<bool>(), ban, shadow).prop_map(
        |(algorithm, limit, window, resolution, burst, count_rejected, ban, shadow)| {
            let policy = Policy::new("p", limit, Duration::from_micros(window)).unwrap().with_algorithm(algorithm);
            let policy = match algorithm {
                // Resolutions from exact to the whole window.
                Algorithm::SlidingWindowLog if resolution > 200 => {
                    let resolution = (window / (resolution - 200)).max(1);
                    policy.with_resolution(Duration::from_micros(resolution))
                }
                Algorithm::TokenBucket if burst <= 200 => {
                    policy.clone().with_burst(burst).validated().unwrap_or(policy)
                }
                _ => policy,
            };
            let policy = policy.with_denials_counted(count_rejected).with_shadow(shadow);
            match ban {
                Some((denials, duration, times)) => {
                    let longest = (duration * times).min(31_622_400_000_000);
                    let policy = policy.ban_after(denials, Duration::from_micros(duration));
                    policy.growing_to(Duration::from_micros(longest))
                }
                None => policy,
            }
        },
    )
}

/// Steps with time differences that matter for the window: none, a few microseconds, parts and multiples of the window,
/// and backward steps.
///
/// Backward steps occur only with a single count: with two, the memory store may replace an idle count by the other,
/// which a clock that runs backwards would reactivate.
fn steps(policies: &[Policy]) -> impl Strategy<Value = Vec<Step>> + use<> {
    let window = policies.iter().map(|policy| policy.window().unwrap().as_micros() as i64).min().unwrap();
    let limit = policies.iter().map(Policy::capacity).min().unwrap();
    let count = policies.len();
    let single = count == 1 && format!("{:?}", policies[0]).contains("ban: None");
    let advance = prop_oneof![
        3 => Just(0),
        2 => 0..=3_i64,
        4 => 0..=window / 3 + 1,
        2 => 0..=window * 3,
        1 => if single { -window..=0_i64 } else { 0..=0 },
    ];
    let cost = prop_oneof![6 => 0..=limit.min(4), 3 => 0..=limit, 1 => any::<u64>()];
    let charges = prop_oneof![
        4 => (0..count, cost.clone()).prop_map(|charge| vec![charge]),
        1 => vec(cost, count).prop_map(|costs| costs.into_iter().enumerate().collect()),
    ];
    let longest = (window.unsigned_abs() * 2).min(31_622_400_000_000);
    let ban = prop_oneof![1..=50_u64, 1..=longest].prop_map(Duration::from_micros);
    let units = prop_oneof![2 => 1..=limit.min(4), 1 => 1..=limit];
    // A ban ends by the clock of the call, and the denials that are remembered do not know if it runs backwards.
    let change = prop_oneof![
        if single { 0 } else { 1 } => ban.prop_map(CountChange::Ban),
        1 => Just(CountChange::Unban),
        1 => units.clone().prop_map(CountChange::Record),
        2 => units.prop_map(CountChange::Credit),
    ];
    let change = prop::option::weighted(0.2, (0..count, change));
    let step = (advance, charges, change);
    vec(step.prop_map(|(advance, charges, change)| Step { advance, charges, change }), 1..60)
}

/// Three limiters for the same checks: memory, Redis, and Redis behind the deny cache, each with separate counts.
struct Limiters {
    runtime: Runtime,
    #[expect(dead_code, reason = "ends with the test")]
    server: RedisServer,
    clock: ManualClock,
    memory: Limiter,
    redis: Limiter,
    cached: Limiter,
    cached_denials: Cell<u64>,
}

impl Limiters {
    fn new() -> Self {
        let (server, clock) = (RedisServer::start(), ManualClock::default());
        let redis = |prefix, deny_cache| {
            let builder = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10));
            Limiter::new(builder.prefix(prefix).deny_cache(deny_cache).open(&server.url()).unwrap())
        };
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            memory: Limiter::new(MemoryStore::new().with_clock(clock.clone())),
            redis: redis("plain:", false),
            cached: redis("cached:", true),
            server,
            clock,
            cached_denials: Cell::new(0),
        }
    }

    fn restart(&mut self) {
        let cached_denials = self.cached_denials.clone();
        *self = Self { cached_denials, ..Self::new() };
    }

    fn forget_memory(&mut self) {
        self.memory = Limiter::new(MemoryStore::new().with_clock(self.clock.clone()));
    }

    /// Changes a count of all three limiters by hand; the error describes the differences.
    fn change(&self, key: &str, policy: &Policy, change: CountChange) -> Result<(), String> {
        let make = |limiter: &Limiter| {
            self.runtime.block_on(async {
                match change {
                    CountChange::Ban(duration) => limiter.ban(key, policy, duration).await.map(|()| 0),
                    CountChange::Unban => limiter.unban(key, policy).await.map(u64::from),
                    CountChange::Record(units) => limiter.record(key, policy, units).await.map(|()| units),
                    CountChange::Credit(units) => limiter.credit(key, policy, units).await,
                    _ => unreachable!("no other change"),
                }
                .unwrap()
            })
        };
        let [memory, redis, cached] = [&self.memory, &self.redis, &self.cached].map(make);
        if memory == redis && redis == cached { Ok(()) } else { Err(format!("{memory}, {redis}, {cached}")) }
    }

    /// Sends the check to all three limiters; the error describes the differences.
    fn check_all(&self, check: &Check) -> Result<Decision, String> {
        let decide = |limiter: &Limiter| {
            self.runtime.block_on(limiter.check_all(check.clone())).map_err(|error| error.to_string())
        };
        let (memory, redis, cached) = (decide(&self.memory)?, decide(&self.redis)?, decide(&self.cached)?);
        if cached.source() == Source::DenyCache {
            self.cached_denials.set(self.cached_denials.get() + 1);
        }
        if shown(&memory) == shown(&redis) && equals_apart_from_policies_with_room(&cached, &redis) {
            return Ok(memory);
        }
        Err(format!("memory: {memory:#?}\nredis: {redis:#?}\nbehind the deny cache: {cached:#?}"))
    }
}

fn shown(value: &impl Debug) -> String {
    format!("{value:?}").replace("DenyCache", "Store")
}

/// Whether a decision from behind the deny cache equals the decision of Redis. A cached denial is compared in the
/// fields of spent policies only, because other clients may have charged the policies with room.
fn equals_apart_from_policies_with_room(cached: &Decision, redis: &Decision) -> bool {
    if cached.source() == Source::Store {
        return shown(cached) == shown(redis);
    }
    let mut both = cached.policies().iter().zip(redis.policies());
    let is_unfit = |decision: &Decision| !decision.is_allowed() || decision.would_deny();
    redis.is_allowed() == cached.is_allowed()
        && is_unfit(redis)
        && cached.time() == redis.time()
        && both.all(|(cached, redis)| {
            let is_spent =
                (cached.violated || cached.would_deny) && cached.available == 0 && cached.retry_after.is_some();
            !is_spent || shown(cached) == shown(redis)
        })
}

#[test]
fn law_12_memory_and_redis_agree_on_every_field() {
    let limiters = RefCell::new(Limiters::new());
    let latest = Cell::new(START);
    let case = Cell::new(0_u64);

    let traces = vec(policy(), 1..=3).prop_flat_map(|policies| {
        let steps = steps(&policies);
        (Just(policies), steps)
    });
    TestRunner::new(seed::cases(seed::in_this_run(400)))
        .run(&traces, |(policies, steps)| {
            // Each case has its own keys, also while a failing case shrinks.
            case.set(case.get() + 1);
            let key = |index: usize| format!("{}:{index}", case.get());
            let mut limiters = limiters.borrow_mut();
            limiters.forget_memory();
            // Each case starts after the latest time of earlier cases, because the deny cache does not go back in time.
            if latest.get() > 2 * START {
                // At such times doubles would lose microseconds.
                limiters.restart();
                latest.set(START);
            }
            let start = latest.get() + 1;
            limiters.clock.set_us(start);
            for step in &steps {
                limiters.clock.set_us(start.max(now(&limiters.clock).saturating_add_signed(step.advance)));
                latest.set(latest.get().max(now(&limiters.clock)));
                if let Some((index, change)) = step.change {
                    let changed = limiters.change(&key(index), &policies[index], change);
                    prop_assert!(changed.is_ok(), "{change:?}: {}", changed.unwrap_err());
                }
                let mut check: Option<Check> = None;
                for &(index, cost) in &step.charges {
                    check = Some(match check {
                        None => Check::new(key(index), &policies[index], cost),
                        Some(check) => check.and(key(index), &policies[index], cost),
                    });
                }
                let check = check.unwrap();
                let agreed = limiters.check_all(&check);
                prop_assert!(agreed.is_ok(), "{}", agreed.unwrap_err());
            }
            // At one instant: all units are spent, Redis denies another unit, and the deny cache the next one. The
            // cache holds no denial that counts towards a ban, and takes a thousandth off a wait, so it holds none of
            // 1 us.
            limiters.clock.set_us(latest.get());
            let policy = policies[0].clone().with_denials_counted(false).with_shadow(false);
            let cached_before = limiters.cached_denials.get();
            let (mut cost, mut wait) = (1, None);
            for step in 0..4 {
                let agreed = limiters.check_all(&Check::new(key(0), &policy, cost));
                prop_assert!(agreed.is_ok(), "{}", agreed.unwrap_err());
                let decision = agreed.unwrap();
                cost = if step == 0 { decision.policies()[0].available } else { 1 };
                // A denial of a banned key is remembered until the ban ends, although the count may need longer.
                wait = decision.policies()[0].ban.or(decision.retry_after());
            }
            let is_cached = limiters.cached_denials.get() > cached_before;
            let has_no_ban = format!("{policy:?}").contains("ban: None");
            let must_be = has_no_ban && wait > Some(Duration::from_micros(1));
            prop_assert!(is_cached || !must_be, "a denial of {:?} is not cached", wait);
            Ok(())
        })
        .unwrap();
    assert!(limiters.borrow().cached_denials.get() > 0, "no denial came from the deny cache");
}

/// The ban of the first key lasts, and the check costs it nothing, so the second charge is committed.
#[test]
fn a_charge_beside_a_banned_key_lifts_its_own_ban_that_has_ended() {
    let limiters = Limiters::new();
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog, Algorithm::TokenBucket]
    {
        let policy = Policy::per_day("p", 6).unwrap().with_algorithm(algorithm);
        let ended = format!("ended-{:?}", policy.algorithm());
        limiters.change(&ended, &policy, CountChange::Ban(Duration::from_micros(1))).unwrap();
        limiters.clock.advance(Duration::from_micros(1));
        limiters.change("lasts", &policy, CountChange::Ban(Duration::from_micros(9))).unwrap();
        let check = Check::new("lasts", &policy, 0).and(&*ended, &policy, 1);
        assert!(limiters.check_all(&check).unwrap().is_allowed());
        let left = limiters.check_all(&Check::new(&*ended, &policy, 0)).unwrap().available();
        assert_eq!(left, Some(5), "{policy:?}");
    }
}

/// Logs of many records, at their limit most of the time.
#[test]
fn law_12_memory_and_redis_agree_on_long_logs() {
    let limiters = Limiters::new();
    let clock = &limiters.clock;
    let window = Duration::from_secs(10);
    let policy = |name: &str, limit| Policy::new(name, limit, window).unwrap();
    let policies = [
        (policy("ones", 500), 1),
        (policy("mixed", 2_000), 9),
        (policy("large", 3_000), 400),
        (policy("rejected", 300).with_denials_counted(true), 2),
        (policy("rejected-mixed", 700).with_denials_counted(true), 300),
        (policy("quantised", 400).with_resolution(Duration::from_millis(50)), 3),
    ];
    let mut random = 7_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    for (mut policy, max_cost) in policies {
        let usual = policy.limit();
        let mut denied = 0;
        for step in 0..4_000 {
            // Simulates a deployment that changes the limit or `count_rejected` of a live key.
            match below(600) {
                0 => policy = with_limit(&policy, usual / 4 + below(usual)),
                1 => policy = policy.clone().with_denials_counted(!policy.denials_counted()),
                _ => {}
            }
            // Traffic near the limit; rarely a pause, a long pause, or a backward step.
            let pace = 10_000_000 * max_cost / policy.limit();
            match below(300) {
                0 => clock.advance(Duration::from_secs(6)),
                1 => clock.advance(Duration::from_secs(25)),
                2 => clock.set_us(now(clock) - below(1_000_000)),
                _ => clock.advance(Duration::from_micros(below(pace))),
            }
            let cost = below(max_cost) + 1;
            let decision =
                limiters.check_all(&Check::new("k", &policy, cost)).unwrap_or_else(|why| panic!("step {step}: {why}"));
            denied += usize::from(!decision.is_allowed());
        }
        assert!((100..3_900).contains(&denied), "{policy:?}: {denied} denied");
    }
}

fn with_limit(policy: &Policy, limit: u64) -> Policy {
    let with_limit = Policy::new(policy.name(), limit, policy.window().unwrap())
        .unwrap()
        .with_denials_counted(policy.denials_counted());
    if policy.name() == "quantised" { with_limit.with_resolution(Duration::from_millis(50)) } else { with_limit }
}

fn now(clock: &ManualClock) -> u64 {
    tollgate::clock::Clock::now_us(clock)
}
