//! The laws, by number, on a manual clock.

use std::time::Duration;

use tollgate::{Check, Decision, Policy};

use super::{ALGORITHMS, Fixture};
use crate::support::random::Random;

const WINDOW: Duration = Duration::from_millis(100);

/// Sends checks with random costs at random times, and returns the time, the cost and the decision of each.
async fn trace(fixture: &Fixture, policy: &Policy, key: &str, seed: u64, steps: usize) -> Vec<(u64, u32, Decision)> {
    let mut random = Random(seed);
    let mut history = Vec::new();
    for _ in 0..steps {
        // Many checks at the same instant, and some long pauses.
        let step = [0, 1, 700, 9_000, 60_000][random.below(5) as usize];
        fixture.clock.advance(Duration::from_micros(random.below(step + 1)));
        let cost = random.cost(policy.limit().min(8));
        let decision = fixture.check(key, policy, cost).await;
        history.push((crate::support::time_us(&decision).unwrap(), cost, decision));
    }
    history
}

/// The units admitted in the window that ends at `at`, by the checks before `index`.
fn spent(history: &[(u64, u32, Decision)], index: usize, at: u64, window: Duration) -> u64 {
    let start = at.saturating_sub(u64::try_from(window.as_micros()).unwrap());
    let inside = history[..index].iter().filter(|(time, _, decision)| decision.is_allowed() && *time > start);
    inside.map(|(_, cost, _)| u64::from(*cost)).sum()
}

pub(crate) async fn law_1_the_log_never_admits_more_than_the_limit_in_any_window(fixture: Fixture) {
    for seed in 0..4 {
        let policy = Policy::new("p", 20, WINDOW).unwrap();
        let history = trace(&fixture, &policy, &seed.to_string(), seed, 150).await;
        for index in 0..history.len() {
            assert!(spent(&history, index + 1, history[index].0, WINDOW) <= 20, "seed {seed}, request {index}");
        }
    }
}

pub(crate) async fn law_2_a_denied_cost_did_not_fit(fixture: Fixture) {
    for seed in 0..4 {
        let policy = Policy::new("p", 20, WINDOW).unwrap();
        let history = trace(&fixture, &policy, &seed.to_string(), seed, 150).await;
        assert!(history.iter().any(|(_, _, decision)| !decision.is_allowed()));
        for (index, (time, cost, decision)) in history.iter().enumerate() {
            let fitted = spent(&history, index, *time, WINDOW) + u64::from(*cost) <= 20;
            assert_eq!(decision.is_allowed(), fitted, "seed {seed}, request {index}");
        }
    }
}

pub(crate) async fn law_3_a_denied_check_changes_no_count(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm);
        fixture.check(&key, &policy, 7).await;
        let before = fixture.peek(&key, &policy).await;
        for cost in [4, 10, 11, u32::MAX] {
            assert!(!fixture.check(&key, &policy, cost).await.is_allowed());
        }
        let after = fixture.peek(&key, &policy).await;
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
        assert!(fixture.check(&key, &policy, 3).await.is_allowed());
    }
}

pub(crate) async fn law_3_a_check_of_several_keys_is_charged_whole_or_not_charged(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let key = |name: &str| format!("{name} {algorithm:?}");
        let wide = Policy::per_minute("wide", 100).unwrap().with_algorithm(algorithm);
        let narrow = Policy::per_minute("narrow", 2).unwrap().with_algorithm(algorithm);
        let check = || Check::new(key("a"), &wide, 1).and(key("b"), &narrow, 1).unwrap();
        for _ in 0..5 {
            fixture.limiter.check_all(check()).await.unwrap();
        }
        assert_eq!(fixture.peek(&key("a"), &wide).await.available(), Some(98));
        let denied = fixture.limiter.check_all(check()).await.unwrap();
        let violated: Vec<&str> = denied.violated().map(|policy| policy.policy.name()).collect();
        assert_eq!(violated, ["narrow"]);
        // The order of the charges changes nothing.
        let swapped = Check::new(key("b"), &narrow, 1).and(key("a"), &wide, 1).unwrap();
        assert!(!fixture.limiter.check_all(swapped).await.unwrap().is_allowed());
        assert_eq!(fixture.peek(&key("a"), &wide).await.available(), Some(98));
    }
}

pub(crate) async fn law_4_available_passes_and_one_more_does_not(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        for seed in 0..20 {
            let key = format!("{algorithm:?} {seed}");
            let policy = Policy::new("p", 20, WINDOW).unwrap().with_algorithm(algorithm);
            let history = trace(&fixture, &policy, &key, seed, 12).await;
            let available = history.last().unwrap().2.available().unwrap();
            assert_eq!(fixture.peek(&key, &policy).await.available(), Some(available));
            if available < 20 {
                assert!(!fixture.check(&key, &policy, available + 1).await.is_allowed(), "{key}");
            }
            assert!(fixture.check(&key, &policy, available).await.is_allowed(), "{key}");
            assert_eq!(fixture.peek(&key, &policy).await.available(), Some(0), "{key}");
        }
    }
}

pub(crate) async fn law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier(fixture: Fixture) {
    let mut denials = 0;
    for algorithm in ALGORITHMS {
        for seed in 0..20 {
            let key = format!("{algorithm:?} {seed}");
            let policy = Policy::new("p", 20, WINDOW).unwrap().with_algorithm(algorithm);
            let history = trace(&fixture, &policy, &key, seed, 40).await;
            let (_, cost, last) = history.last().unwrap();
            let Some(wait) = last.retry_after() else { continue };
            denials += 1;
            fixture.clock.advance(wait - Duration::from_micros(1));
            let early = fixture.check(&key, &policy, *cost).await;
            assert_eq!((early.is_allowed(), early.retry_after()), (false, Some(Duration::from_micros(1))), "{key}");
            fixture.clock.advance(Duration::from_micros(1));
            assert!(fixture.check(&key, &policy, *cost).await.is_allowed(), "{key}");
        }
    }
    assert!(denials > 20, "{denials}");
}

/// One policy denies the check, and the counted rejection fills another policy.
pub(crate) async fn law_5_a_rejection_that_is_counted_is_in_the_wait(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let key = format!("{algorithm:?}");
        let narrow = Policy::per_second("narrow", 1).unwrap();
        let counting = Policy::per_minute("counting", 2).unwrap().with_algorithm(algorithm).with_count_rejected(true);
        let decide = || {
            let check = Check::new(&key, &narrow, 1).and(&key, &counting, 1).unwrap();
            async { fixture.limiter.check_all(check).await.unwrap() }
        };
        assert!(decide().await.is_allowed());
        let denied = decide().await;
        assert_eq!(denied.violated().count(), 2, "{denied:?}");
        fixture.clock.advance(denied.retry_after().unwrap() - Duration::from_micros(1));
        let early = fixture.peek(&key, &counting).await;
        assert_eq!(early.available(), Some(0), "{algorithm:?}");
        fixture.clock.advance(Duration::from_micros(1));
        assert!(decide().await.is_allowed(), "{algorithm:?}");
    }

    // Six units, a second apart, and a counted rejection of four: two units must leave before a cost of four fits.
    let (counting, never) =
        (Policy::per_minute("log", 12).unwrap().with_count_rejected(true), Policy::per_minute("never", 1).unwrap());
    for _ in 0..6 {
        assert!(fixture.check("log", &counting, 1).await.is_allowed());
        fixture.clock.advance(Duration::from_secs(1));
    }
    let check = Check::new("log", &counting, 4).and("log", &never, 2).unwrap();
    let denied = fixture.limiter.check_all(check).await.unwrap();
    assert_eq!((denied.policies()[0].available, denied.policies()[0].retry_after), (2, Some(Duration::from_secs(55))));
}

pub(crate) async fn law_11_clones_spend_from_one_budget(fixture: Fixture) {
    let policy = Policy::per_minute("p", 10).unwrap();
    let clones: Vec<_> = (0..5).map(|_| fixture.limiter.clone()).collect();
    let mut admitted = 0;
    for limiter in clones.iter().cycle().take(50) {
        admitted += u32::from(limiter.check("k", &policy, 1).await.unwrap().is_allowed());
    }
    assert_eq!(admitted, 10);
}
