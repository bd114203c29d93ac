//! The laws, by number, on a manual clock.

use std::time::Duration;

use tollgate::{Check, Policy};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{decision::Decision, feature::Feature, oracle::micros, random::Random, tested_store::TestedStore};

const WINDOW: Duration = Duration::from_millis(100);
const MICROSECOND: Duration = Duration::from_micros(1);

/// The time, the cost and the decision of each check.
type History = Vec<(u64, u64, Decision)>;

/// Sends checks with random costs at random times.
async fn trace(store: &TestedStore, policy: &Policy, key: &str, seed: u64, steps: usize) -> Result<History, NotPassed> {
    let mut random = Random(seed);
    let mut history = Vec::new();
    for _ in 0..steps {
        // Many checks at the same instant, and some long pauses.
        let step = *random.pick(&[0, 1, 700, 9_000, 60_000]);
        store.clock.advance(Duration::from_micros(random.below(step + 1)));
        let cost = random.cost(policy.limit().min(8));
        let decision = store.check(key, policy, cost).await?;
        history.push((decision.time_us(), cost, decision));
    }
    Ok(history)
}

/// The units admitted in the window that ends at `at`, by the checks before `index`.
fn spent(history: &[(u64, u64, Decision)], index: usize, at: u64) -> u64 {
    let start = at.saturating_sub(micros(WINDOW));
    let inside = history[..index].iter().filter(|(time, _, decision)| decision.is_allowed() && *time > start);
    inside.map(|(_, cost, _)| *cost).sum()
}

pub(super) async fn law_1_the_log_never_admits_more_than_the_limit_in_any_window(store: TestedStore) -> Tested {
    store.requires(Feature::SlidingWindowLog)?;
    for seed in 0..4 {
        let policy = Policy::new("p", 20, WINDOW)?;
        let history = trace(&store, &policy, &seed.to_string(), seed, 150).await?;
        for index in 0..history.len() {
            let spent = spent(&history, index + 1, history[index].0);
            ensure!(spent <= 20, "seed {seed}, check {index}: {spent} units of 20 in one window");
        }
    }
    Ok(())
}

pub(super) async fn law_2_a_denied_cost_did_not_fit(store: TestedStore) -> Tested {
    store.requires(Feature::SlidingWindowLog)?;
    for seed in 0..4 {
        let policy = Policy::new("p", 20, WINDOW)?;
        let history = trace(&store, &policy, &seed.to_string(), seed, 150).await?;
        ensure!(history.iter().any(|(_, _, decision)| !decision.is_allowed()), "seed {seed}: no check was denied");
        for (index, (time, cost, decision)) in history.iter().enumerate() {
            let fitted = spent(&history, index, *time) + *cost <= 20;
            ensure_eq!(decision.is_allowed(), fitted, "seed {seed}, check {index}: allowed");
        }
    }
    Ok(())
}

pub(super) async fn law_3_a_denied_check_changes_no_count(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 10)?.with_algorithm(algorithm);
        let _ = store.check(&key, &policy, 7).await?;
        let before = store.peek(&key, &policy).await?;
        for cost in [4, 10, 11, u64::MAX] {
            ensure!(
                !store.check(&key, &policy, cost).await?.is_allowed(),
                "{key}: {cost} more than 7 of 10 were admitted"
            );
        }
        let after = store.peek(&key, &policy).await?;
        ensure_eq!(format!("{after:?}"), format!("{before:?}"), "{key}: state after the denials");
        ensure!(store.check(&key, &policy, 3).await?.is_allowed(), "{key}: the last 3 of 10 were denied");
    }
    Ok(())
}

pub(super) async fn law_3_every_charge_of_a_check_is_charged(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = |name| Policy::per_minute(name, 10).map(|policy| policy.with_algorithm(algorithm));
        let (p, q) = (policy("p")?, policy("q")?);
        let check = Check::new("a", &p, 1).and("a", &q, 2).and("b", &p, 3).and("b", &q, 4);
        let decision = store.check_all(check).await?;
        let available: Vec<u64> = decision.policies().iter().map(|standing| standing.available).collect();
        ensure_eq!(available, [9, 8, 7, 6], "{algorithm:?}: available after the check");
        for (key, policy, left) in [("a", &p, 9), ("a", &q, 8), ("b", &p, 7), ("b", &q, 6)] {
            let name = policy.name();
            ensure_eq!(store.peek(key, policy).await?.available(), Some(left), "{algorithm:?}: {key:?} under {name:?}");
        }
    }
    Ok(())
}

pub(super) async fn law_3_a_check_of_several_keys_is_charged_whole_or_not_charged(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let key = |name: &str| format!("{name} {algorithm:?}");
        let wide = Policy::per_minute("wide", 100)?.with_algorithm(algorithm);
        let narrow = Policy::per_minute("narrow", 2)?.with_algorithm(algorithm);
        let check = || Check::new(key("a"), &wide, 1).and(key("b"), &narrow, 1);
        for _ in 0..5 {
            let _ = store.check_all(check()).await?;
        }
        ensure_eq!(store.peek(key("a"), &wide).await?.available(), Some(98), "{algorithm:?}: available of 100");
        let denied = store.check_all(check()).await?;
        let violated: Vec<&str> = denied.violated().map(|policy| policy.policy.name()).collect();
        ensure_eq!(violated, ["narrow"], "{algorithm:?}: the policies that do not fit");
        // The order of the charges changes nothing.
        let swapped = Check::new(key("b"), &narrow, 1).and(key("a"), &wide, 1);
        ensure!(
            !store.check_all(swapped).await?.is_allowed(),
            "{algorithm:?}: the charges in another order were admitted"
        );
        ensure_eq!(store.peek(key("a"), &wide).await?.available(), Some(98), "{algorithm:?}: available of 100");
    }
    Ok(())
}

pub(super) async fn law_4_available_passes_and_one_more_does_not(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        for seed in 0..20 {
            let key = format!("{algorithm:?} {seed}");
            let policy = Policy::new("p", 20, WINDOW)?.with_algorithm(algorithm);
            let history = trace(&store, &policy, &key, seed, 12).await?;
            let available = history.last().and_then(|(_, _, last)| last.available()).unwrap_or_default();
            ensure_eq!(store.peek(&key, &policy).await?.available(), Some(available), "{key}: available to a peek");
            if available < 20 {
                let more = store.check(&key, &policy, available + 1).await?;
                ensure!(!more.is_allowed(), "{key}: {available} units are available, and one more was admitted");
            }
            let all = store.check(&key, &policy, available).await?;
            ensure!(all.is_allowed(), "{key}: {available} units are available, and a cost of {available} was denied");
            ensure_eq!(store.peek(&key, &policy).await?.available(), Some(0), "{key}: available afterwards");
        }
    }
    Ok(())
}

pub(super) async fn law_4_a_peek_reports_whether_a_cost_of_1_would_pass_and_when(store: TestedStore) -> Tested {
    let can_count_rejected = store.requires(Feature::CountRejected).is_ok();
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 3)?.with_algorithm(algorithm).with_denials_counted(can_count_rejected);
        store.clock.advance(Duration::from_secs(7));
        ensure!(store.peek(&key, &policy).await?.is_allowed(), "{key}: a peek at a fresh count is denied");
        let _ = store.check(&key, &policy, 2).await?;
        ensure!(store.peek(&key, &policy).await?.is_allowed(), "{key}: a peek at 2 of 3 is denied");
        let _ = store.check(&key, &policy, 1).await?;
        for _ in 0..5 {
            // A peek is not counted as a rejection.
            let peek = store.peek(&key, &policy).await?;
            let seen = (peek.is_allowed(), peek.available(), peek.violated().count());
            ensure_eq!(seen, (false, Some(0), 1), "{key}: allowed, available, violated policies of a peek");
        }
        let wait = store.peek(&key, &policy).await?.retry_after().unwrap_or_default();
        store.clock.advance(wait.saturating_sub(MICROSECOND));
        ensure!(!store.peek(&key, &policy).await?.is_allowed(), "{key}: a peek passes 1 us early");
        store.clock.advance(MICROSECOND);
        ensure!(store.peek(&key, &policy).await?.is_allowed(), "{key}: a peek is denied after its wait");
        ensure!(store.check(&key, &policy, 1).await?.is_allowed(), "{key}: denied although a peek passes");
    }
    Ok(())
}

pub(super) async fn law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier(
    store: TestedStore,
) -> Tested {
    let mut denials = 0;
    for algorithm in store.algorithms()? {
        for seed in 0..20 {
            let key = format!("{algorithm:?} {seed}");
            let policy = Policy::new("p", 20, WINDOW)?.with_algorithm(algorithm);
            let history = trace(&store, &policy, &key, seed, 40).await?;
            let Some((_, cost, last)) = history.last() else { continue };
            let Some(wait) = last.retry_after() else { continue };
            denials += 1;
            store.clock.advance(wait.saturating_sub(MICROSECOND));
            let early = store.check(&key, &policy, *cost).await?;
            ensure_eq!((early.is_allowed(), early.retry_after()), (false, Some(MICROSECOND)), "{key}: 1 us early");
            store.clock.advance(MICROSECOND);
            ensure!(store.check(&key, &policy, *cost).await?.is_allowed(), "{key}: denied at retry_after");
        }
    }
    ensure!(denials > 5, "the traces ended in {denials} denials only");
    Ok(())
}

/// One policy denies the check, and the counted denial fills another policy.
pub(super) async fn law_5_a_rejection_that_is_counted_is_in_the_wait(store: TestedStore) -> Tested {
    store.requires(Feature::CountRejected)?;
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let narrow = Policy::per_second("narrow", 1)?.with_algorithm(algorithm);
        let counting = Policy::per_minute("counting", 2)?.with_algorithm(algorithm).with_denials_counted(true);
        let check = Check::new(&key, &narrow, 1).and(&key, &counting, 1);
        ensure!(store.check_all(check.clone()).await?.is_allowed(), "{key}: the first check was denied");
        let denied = store.check_all(check.clone()).await?;
        ensure_eq!(denied.violated().count(), 2, "{key}: violated policies in {denied:?}");
        store.clock.advance(denied.retry_after().unwrap_or_default().saturating_sub(MICROSECOND));
        ensure_eq!(store.peek(&key, &counting).await?.available(), Some(0), "{key}: available 1 us early");
        store.clock.advance(MICROSECOND);
        ensure!(store.check_all(check).await?.is_allowed(), "{key}: denied at retry_after");
    }

    if store.requires(Feature::SlidingWindowLog).is_err() {
        return Ok(());
    }
    // Six units, a second apart, and a counted denial of four: two units must leave before a cost of four fits.
    let (counting, never) =
        (Policy::per_minute("log", 12)?.with_denials_counted(true), Policy::per_minute("never", 1)?);
    for _ in 0..6 {
        ensure!(store.check("log", &counting, 1).await?.is_allowed());
        store.clock.advance(Duration::from_secs(1));
    }
    let check = Check::new("log", &counting, 4).and("log", &never, 2);
    let denied = store.check_all(check).await?;
    let standing = &denied.policies()[0];
    let expected = (2, Some(Duration::from_secs(55)));
    ensure_eq!((standing.available, standing.retry_after), expected, "available, retry_after");
    Ok(())
}
