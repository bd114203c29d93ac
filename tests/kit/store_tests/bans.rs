//! Bans: a key that is denied too often is denied for the duration of the ban.

use std::time::Duration;

use tollgate::{Algorithm, Check, Policy};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

const BAN: Duration = Duration::from_secs(600);
const MICROSECOND: Duration = Duration::from_micros(1);

/// A limit of two a minute; the third denial bans.
fn strict(algorithm: Algorithm) -> Result<Policy, NotPassed> {
    Ok(Policy::per_minute("p", 2)?.with_algorithm(algorithm).ban_after(3, BAN))
}

/// The same under the first algorithm that the store has.
fn strict_by_default(store: &TestedStore) -> Result<Policy, NotPassed> {
    Ok(store.per_minute("p", 2)?.ban_after(3, BAN))
}

/// The end of the ban that a peek reports.
async fn ban(store: &TestedStore, key: &str, policy: &Policy) -> Result<Option<Duration>, NotPassed> {
    Ok(store.peek(key, policy).await?.policies()[0].ban)
}

/// Spends the whole limit of two and continues until the key has been denied `denials` times.
async fn deny(store: &TestedStore, key: &str, policy: &Policy, denials: u64) -> Tested {
    let mut denied = 0;
    for _ in 0..policy.limit() + denials {
        denied += u64::from(denied < denials && !store.check(key, policy, 1).await?.is_allowed());
    }
    ensure_eq!(denied, denials, "denials of {key:?}");
    Ok(())
}

pub(super) async fn the_last_denial_bans_for_the_whole_duration_even_if_units_are_available(
    store: TestedStore,
) -> Tested {
    store.requires(Feature::Bans)?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), strict(algorithm)?);
        deny(&store, &key, &policy, 2).await?;
        ensure_eq!(ban(&store, &key, &policy).await?, None, "{key}: ban after two of three denials");
        store.clock.advance(Duration::from_secs(1));
        let last = store.check(&key, &policy, 1).await?;
        ensure_eq!((last.policies()[0].ban, last.retry_after()), (Some(BAN), Some(BAN)), "{key}: ban, retry_after");
        // The policy's own window has passed many times.
        for passed in [1_000_000, 59_000_000, 539_999_999] {
            store.clock.advance(Duration::from_micros(passed));
            let refused = store.check(&key, &policy, 1).await?;
            let standing = &refused.policies()[0];
            ensure!(standing.violated && standing.available == 0, "{key}: units during the ban: {refused:?}");
            ensure!(standing.ban.is_some() && standing.ban == standing.retry_after, "{key}: the wait: {refused:?}");
        }
        let peek = store.peek(&key, &policy).await?;
        let (is_allowed, standing) = (peek.is_allowed(), &peek.policies()[0]);
        ensure_eq!((is_allowed, peek.available()), (false, Some(0)), "{key}: allowed, available 1 us before the end");
        ensure_eq!((standing.ban, standing.next), (Some(MICROSECOND), MICROSECOND), "{key}: ban, next");
        // Law 5: the ban ends then and not a microsecond earlier. Denials during the ban were not charged.
        let early = store.check(&key, &policy, 1).await?;
        ensure_eq!(early.retry_after(), Some(MICROSECOND), "{key}: retry_after");
        store.clock.advance(MICROSECOND);
        let after = store.check(&key, &policy, 2).await?;
        ensure!(after.is_allowed() && after.policies()[0].ban.is_none(), "{key}: at the end of the ban: {after:?}");
        // Denials from before the ban no longer count. The limit is spent already.
        for _ in 0..2 {
            ensure!(!store.check(&key, &policy, 1).await?.is_allowed(), "{key}: three of two were admitted");
        }
        ensure_eq!(ban(&store, &key, &policy).await?, None, "{key}: ban after two denials since the last ban");
    }
    Ok(())
}

pub(super) async fn denials_count_for_as_long_as_the_ban_would_last(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    let policy = strict_by_default(&store)?;
    for _ in 0..20 {
        // Two denials within the duration of a ban, where three would ban.
        deny(&store, "k", &policy, 1).await?;
        store.clock.advance(BAN / 2 + Duration::from_secs(1));
    }
    ensure!(store.check("k", &policy, 1).await?.is_allowed(), "denials banned although they were far apart");
    Ok(())
}

pub(super) async fn a_ban_holds_for_one_key_under_one_policy(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    let policy = strict_by_default(&store)?;
    deny(&store, "k", &policy, 3).await?;
    ensure!(!store.check("k", &policy, 1).await?.is_allowed(), "the ban does not hold");
    ensure!(store.check("other", &policy, 1).await?.is_allowed(), "another key is banned");
    let (another, same) = (store.per_minute("another", 2)?, store.per_minute("p", 2)?);
    ensure!(store.check("k", &another, 1).await?.is_allowed(), "the key is banned under another policy");
    store.clock.advance(Duration::from_secs(60));
    ensure!(store.check("k", &same, 1).await?.is_allowed(), "a policy without a ban, with the same count, bans");
    Ok(())
}

pub(super) async fn only_denials_under_the_policy_itself_count(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    let (policy, spent) = (strict_by_default(&store)?, store.per_minute("spent", 1)?);
    let both = Check::new("k", &policy, 1).and("all", &spent, 1);
    let _ = store.check("all", &spent, 1).await?;
    for _ in 0..5 {
        // A denial by the other policy, a cost above the limit and a peek do not count as denials.
        ensure!(!store.check_all(both.clone()).await?.is_allowed(), "a spent policy let the check pass");
        ensure!(!store.check("k", &policy, 3).await?.is_allowed(), "three of two were admitted");
        let _ = store.peek("k", &policy).await?;
    }
    ensure_eq!(store.peek("k", &policy).await?.available(), Some(2), "available without a denial");
    // Law 3: a ban denies the whole check.
    deny(&store, "k", &policy, 3).await?;
    store.clock.advance(Duration::from_secs(60));
    let refused = store.check_all(both).await?;
    let violated: Vec<&str> = refused.violated().map(|standing| standing.policy.name()).collect();
    ensure_eq!(violated, ["p"], "the policies that do not fit");
    ensure_eq!(store.peek("all", &spent).await?.available(), Some(1), "available under the other policy");
    Ok(())
}

pub(super) async fn a_ban_by_a_policy_that_counts_rejections_ends_at_the_returned_time(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    store.requires(Feature::CountRejected)?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), strict(algorithm)?.with_denials_counted(true));
        deny(&store, &key, &policy, 3).await?;
        let five_seconds = Duration::from_secs(5);
        let wait = ban(&store, &key, &policy).await?.unwrap_or_default();
        store.clock.advance(wait.saturating_sub(five_seconds));
        for _ in 0..5 {
            let refused = store.check(&key, &policy, 1).await?;
            ensure_eq!(refused.retry_after(), Some(five_seconds), "{key}: retry_after 5 s before the end");
        }
        store.clock.advance(five_seconds);
        ensure!(store.check(&key, &policy, 1).await?.is_allowed(), "{key}: denied at the end of the ban");
    }
    Ok(())
}

pub(super) async fn a_peek_at_a_banned_key_reports_the_end_of_the_ban(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    let policy = store.per_minute("p", 1)?.ban_after(2, BAN);
    let _ = store.check("k", &policy, 1).await?;
    for _ in 0..5 {
        let _ = store.peek("k", &policy).await?;
        ensure_eq!(ban(&store, "k", &policy).await?, None, "ban after peeks, which are no denials");
    }
    for _ in 0..2 {
        let _ = store.check("k", &policy, 1).await?;
    }
    store.clock.advance(Duration::from_secs(120));
    let peek = store.peek("k", &policy).await?;
    let left = Some(BAN - Duration::from_secs(120));
    ensure_eq!((peek.is_allowed(), peek.retry_after()), (false, left), "allowed, retry_after of a peek");
    store.clock.advance(BAN);
    ensure!(store.peek("k", &policy).await?.is_allowed(), "the ban has no end");
    Ok(())
}
