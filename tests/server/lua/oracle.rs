//! Laws 1, 2 and 12: random traces through memory, Redis and a [naive oracle](Oracle), with policies of several limits
//! and bursts on one count.
//!
//! The contract for counted rejections under different limits: a log keeps rejections up to the highest limit that has
//! charged since the log was last empty. Under that limit and lower ones every rejection counts. Under a higher limit,
//! every admitted charge counts, and some rejections may be dropped.

use std::{cell::Cell, time::Duration};

use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use tokio::runtime::Runtime;
use tollgate::{Algorithm, Check, Limiter, ManualClock, MemoryStore, Policy, RedisStore, decision::PolicyDecision};
use tollgate_testing::Oracle;

use crate::support::{redis_server::RedisServer, seed};

const START_US: u64 = 1_767_225_600_000_000;

/// Policies that share a count.
#[derive(Clone, Debug)]
struct SharedCount {
    policies: Vec<Policy>,
    resolution_us: u64,
}

#[derive(Clone, Debug, Default)]
struct Step {
    advance_us: u64,
    policy: usize,
    cost: u64,
    /// Whether another policy denies the check.
    denied_by_other: bool,
    /// Whether a shadow policy is in the check that would deny it.
    beside_shadow: bool,
}

fn shared_count() -> impl Strategy<Value = SharedCount> {
    let algorithm = select(vec![
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::SlidingWindowLog,
        Algorithm::TokenBucket,
    ]);
    let window = prop_oneof![1..=50_u64, Just(10_000), Just(60_000_000), 1..=31_622_400_000_000_u64];
    // Limit, burst (used by every second bucket), whether rejections count, and whether it is a shadow policy.
    let variant = || {
        (
            prop_oneof![2 => 1..=8_u64, 2 => 1..=100_u64, 1 => 1..=5_000_u64],
            1..=200_u64,
            any::<bool>(),
            prop::bool::weighted(0.2),
        )
    };
    let single = (
        prop_oneof![1..=200_u64, 1..=u64::from(u32::MAX), 1..=Policy::MAX_LIMIT],
        1..=200_u64,
        any::<bool>(),
        Just(false),
    );
    let variants = prop_oneof![1 => vec(single, 1), 3 => vec(variant(), 2..=3)];
    (algorithm, window, 1..=400_u64, variants).prop_map(|(algorithm, window, resolution, variants)| {
        // Resolutions from exact to the whole window.
        let coarse = algorithm == Algorithm::SlidingWindowLog && resolution > 200;
        let resolution_us = if coarse { (window / (resolution - 200)).max(1) } else { 1 };
        let policies = variants.into_iter().map(|(limit, burst, count_rejected, shadow)| {
            let policy = Policy::new("p", limit, Duration::from_micros(window)).unwrap().with_algorithm(algorithm);
            let policy = match algorithm {
                Algorithm::SlidingWindowLog => policy.with_resolution(Duration::from_micros(resolution_us)),
                Algorithm::TokenBucket if burst % 2 == 0 => {
                    policy.clone().with_burst(burst).validated().unwrap_or(policy)
                }
                _ => policy,
            };
            policy.with_denials_counted(count_rejected).with_shadow(shadow)
        });
        SharedCount { policies: policies.collect(), resolution_us }
    })
}

/// Logs that have dropped rejections: more rejections than the first policy's limit were counted, and the second
/// policy, which has a higher limit, charges after them. Then random steps follow.
fn logs_with_dropped_rejections() -> impl Strategy<Value = (SharedCount, Vec<Step>)> {
    let limits = (1..=8_u64, 9..=100_u64, 0..=8_u64);
    (limits, prop_oneof![Just(10_000), Just(60_000_000), 8..=31_622_400_000_000_u64]).prop_flat_map(
        |((low, high, more), window)| {
            let policy = |limit| Policy::new("p", limit, Duration::from_micros(window)).unwrap();
            let policies = vec![policy(low).with_denials_counted(true), policy(high)];
            let first = |policy| Step { policy, cost: 1, ..Step::default() };
            // `low` charges pass, and more than `low` rejections follow, of which the log keeps `low` at most.
            let mut start = vec![first(0); (2 * low + 1 + more) as usize];
            start.push(first(1));
            let traces = steps(&policies).prop_map(move |rest| [start.clone(), rest].concat());
            (Just(SharedCount { policies, resolution_us: 1 }), traces)
        },
    )
}

/// Steps with time differences that matter for the window, and costs that matter for one of the limits.
fn steps(policies: &[Policy]) -> impl Strategy<Value = Vec<Step>> + use<> {
    let window_us = u64::try_from(policies[0].window().unwrap().as_micros()).unwrap();
    let advance = prop_oneof![4 => Just(0), 2 => 0..=3_u64, 4 => 0..=window_us / 4 + 1, 1 => 0..=window_us * 2];
    let capacities: Vec<_> = policies.iter().map(Policy::capacity).collect();
    let charge = (0..policies.len(), select(capacities)).prop_flat_map(|(policy, capacity)| {
        let cost = prop_oneof![4 => 0..=capacity.min(4), 4 => 0..=capacity, 1 => any::<u64>()];
        (Just(policy), cost, prop::bool::weighted(0.1), prop::bool::weighted(0.2))
    });
    let step = (advance, charge).prop_map(|(advance_us, (policy, cost, denied_by_other, beside_shadow))| Step {
        advance_us,
        policy,
        cost,
        denied_by_other,
        beside_shadow,
    });
    vec(step, 1..60)
}

/// A memory store and a Redis store with one clock.
struct Pair {
    runtime: Runtime,
    clock: ManualClock,
    memory: Limiter,
    redis: Limiter,
    /// Keeps the server running.
    _server: RedisServer,
}

impl Pair {
    fn new() -> Self {
        let (server, clock) = (RedisServer::start(), ManualClock::default());
        let redis = RedisStore::builder().clock(clock.clone()).deadline(Duration::from_secs(10)).deny_cache(false);
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            memory: Limiter::new(MemoryStore::new().with_clock(clock.clone())),
            redis: Limiter::new(redis.open(&server.url()).unwrap()),
            clock,
            _server: server,
        }
    }

    /// Sends the check to both stores, which must agree; returns the outcome and the state of the first policy.
    fn check_all(&self, check: &Check) -> Result<(bool, PolicyDecision), TestCaseError> {
        let decide = |limiter: &Limiter| self.runtime.block_on(limiter.check_all(check.clone())).unwrap();
        let (memory, redis) = (decide(&self.memory), decide(&self.redis));
        prop_assert_eq!(format!("{:?}", memory), format!("{:?}", redis));
        Ok((memory.is_allowed(), memory.policies()[0].clone()))
    }
}

/// One decision, with the oracle's view of it.
struct Observed<'a> {
    policy: &'a Policy,
    now_us: u64,
    cost: u64,
    denied_by_other: bool,
    /// Whether the cost fitted before the charge, by the oracle.
    fitted: bool,
    /// Whether the log has dropped no rejection that counts under this policy's limit.
    exact: bool,
    allowed: bool,
    state: PolicyDecision,
}

/// No limit of several on one count is exceeded, and none denies what fits. `naive` has the count after the decision.
fn judge_law_1_and_2(naive: &Oracle, observed: &Observed<'_>) -> Result<(), TestCaseError> {
    prop_assert!(naive.keeps_law_1(), "more was admitted than the limit");
    prop_assert!(
        observed.allowed || observed.denied_by_other || !observed.fitted,
        "denied although the cost fits with every rejection counted"
    );
    let (available, most) = (observed.state.available, naive.admitted().available(observed.policy, observed.now_us));
    prop_assert!(available <= most, "{available} units reported as available, at most {most} are");
    Ok(())
}

/// The decision agrees with the list of charges. `naive` has the count after the decision.
fn judge_law_12(naive: &Oracle, observed: &Observed<'_>) -> Result<(), TestCaseError> {
    let &Observed { policy, now_us, cost, denied_by_other, fitted, exact, allowed, ref state } = observed;
    let wait = |cost| naive.wait(policy, now_us, cost);
    // After a denial, the counted rejection itself may be what exceeds the limit.
    let fits = fitted && (allowed || naive.fits(policy, now_us, cost));
    let retry_after = (!fits && cost <= policy.capacity()).then(|| wait(cost));
    let available = naive.available(policy, now_us);
    prop_assert_eq!(state.reset, wait(policy.capacity()));
    if exact {
        let expected = (fitted && !denied_by_other, !fits, available, retry_after);
        let unfit = state.violated || state.would_deny;
        prop_assert_eq!((allowed, unfit, state.available, state.retry_after), expected);
        prop_assert_eq!(state.next, wait(if available < policy.capacity() { available + 1 } else { 0 }));
    } else {
        // With dropped rejections the decision is never stricter than with all rejections counted.
        prop_assert!(state.available >= available && state.retry_after <= retry_after);
    }
    Ok(())
}

/// Judges a trace on a key of its own. Returns how many decisions were about a log that had dropped rejections.
fn judge(pair: &Pair, key: &str, shared_count: &SharedCount, steps: Vec<Step>) -> Result<u64, TestCaseError> {
    let never = Policy::per_second("never", 1).unwrap();
    let shadow = Policy::per_second("shadow", 1).unwrap().with_shadow(true);
    let (mut naive, mut now_us) = (Oracle::new(shared_count.resolution_us), START_US);
    let mut in_part = 0;
    for Step { advance_us, policy, cost, denied_by_other, beside_shadow } in steps {
        let policy = &shared_count.policies[policy];
        now_us += advance_us;
        pair.clock.set_us(now_us);
        let mut check = Check::new(key, policy, cost);
        if denied_by_other {
            check = check.and(key, &never, 2);
        }
        if beside_shadow {
            check = check.and(key, &shadow, 2);
        }
        let (fitted, exact) = (naive.fits(policy, now_us, cost), naive.remembers_all_for(policy, now_us));
        let (passed, state) = pair.check_all(&check)?;
        // A shadow policy lets the check pass and leaves its own charge out.
        prop_assert!(!state.would_deny || policy.is_shadow() && !state.violated);
        let allowed = passed && !state.would_deny;
        if (1..=policy.capacity()).contains(&cost) && (allowed || policy.denials_counted()) {
            naive.charge(policy, now_us, cost, allowed);
        }
        in_part += u64::from(!exact);
        let seen = Observed { policy, now_us, cost, denied_by_other, fitted, exact, allowed, state };
        judge_law_1_and_2(&naive, &seen)?;
        judge_law_12(&naive, &seen)?;
    }
    Ok(in_part)
}

/// Judges random traces. `least` is the number of decisions in each of them that must be about a log that has dropped
/// rejections.
fn judge_all(cases: u32, traces: impl Strategy<Value = (SharedCount, Vec<Step>)>, least: u64) {
    let (pair, case) = (Pair::new(), Cell::new(0_u64));
    let outcome = TestRunner::new(seed::cases(seed::in_this_run(cases))).run(&traces, |(shared_count, steps)| {
        // Each case has its own key, also while a failing case shrinks.
        case.set(case.get() + 1);
        let in_part = judge(&pair, &case.get().to_string(), &shared_count, steps)?;
        prop_assert!(in_part >= least, "{in_part} decisions about a log that has dropped rejections");
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn law_1_2_and_12_hold_on_random_traces_under_one_limit_and_under_several() {
    let traces =
        shared_count().prop_flat_map(|shared_count| (Just(shared_count.clone()), steps(&shared_count.policies)));
    judge_all(2_400, traces, 0);
}

#[test]
fn law_1_2_and_12_hold_on_logs_that_have_dropped_rejections() {
    judge_all(300, logs_with_dropped_rejections(), 1);
}
