//! Bans: a key that is denied too often is denied for the duration of the ban.

use std::time::Duration;

use tollgate::{Algorithm, Check, Policy};

use super::{ALGORITHMS, Fixture};

const BAN: Duration = Duration::from_secs(600);

/// A limit of two a minute; the third denial bans.
fn strict(algorithm: Algorithm) -> Policy {
    Policy::per_minute("p", 2).unwrap().with_algorithm(algorithm).ban_after(3, BAN).unwrap()
}

/// Spends the whole limit and continues until the key has been denied `denials` times.
async fn deny(fixture: &Fixture, key: &str, policy: &Policy, denials: u32) {
    while fixture.check(key, policy, 1).await.is_allowed() {}
    for _ in 1..denials {
        assert!(!fixture.check(key, policy, 1).await.is_allowed());
    }
}

pub(crate) async fn the_last_denial_bans_for_the_whole_duration_even_if_units_are_available(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let (key, policy) = (format!("{algorithm:?}"), strict(algorithm));
        deny(&fixture, &key, &policy, 2).await;
        let peek = fixture.peek(&key, &policy).await;
        assert!(peek.policies()[0].ban.is_none(), "{algorithm:?}");
        fixture.clock.advance(Duration::from_secs(1));
        let last = fixture.check(&key, &policy, 1).await;
        assert!(last.policies()[0].ban == Some(BAN) && last.retry_after() == Some(BAN), "{last:?}");
        // The policy's own window has passed many times.
        for passed in [1, 59, 540] {
            fixture.clock.advance(Duration::from_secs(passed) - Duration::from_micros(u64::from(passed == 540)));
            let refused = fixture.check(&key, &policy, 1).await;
            let [standing] = refused.policies() else { panic!("{refused:?}") };
            assert!(
                standing.ban == standing.retry_after
                    && standing.ban.is_some()
                    && standing.violated
                    && standing.available == 0,
                "{refused:?}"
            );
        }
        let peek = fixture.peek(&key, &policy).await;
        assert_eq!(
            (peek.is_allowed(), peek.available(), peek.policies()[0].ban),
            (false, Some(0), Some(Duration::from_micros(1)))
        );
        assert_eq!(peek.policies()[0].next, Duration::from_micros(1));
        // Law 5: the ban ends then and not a microsecond earlier. Denials during the ban were not charged.
        assert_eq!(fixture.check(&key, &policy, 1).await.retry_after(), Some(Duration::from_micros(1)));
        fixture.clock.advance(Duration::from_micros(1));
        let after = fixture.check(&key, &policy, 2).await;
        assert!(after.is_allowed() && after.policies()[0].ban.is_none(), "{algorithm:?}: {after:?}");
        // Denials from before the ban no longer count.
        deny(&fixture, &key, &policy, 2).await;
        assert!(fixture.peek(&key, &policy).await.policies()[0].ban.is_none(), "{algorithm:?}");
    }
}

pub(crate) async fn denials_count_for_as_long_as_the_ban_would_last(fixture: Fixture) {
    let policy = strict(Algorithm::SlidingWindowLog);
    for _ in 0..20 {
        // Two denials within the duration of a ban, where three would ban.
        deny(&fixture, "k", &policy, 1).await;
        fixture.clock.advance(BAN / 2 + Duration::from_secs(1));
    }
    assert!(fixture.check("k", &policy, 1).await.is_allowed());
}

pub(crate) async fn a_ban_holds_for_one_key_under_one_policy(fixture: Fixture) {
    let policy = strict(Algorithm::SlidingWindowLog);
    deny(&fixture, "k", &policy, 3).await;
    assert!(!fixture.check("k", &policy, 1).await.is_allowed());
    assert!(fixture.check("other", &policy, 1).await.is_allowed());
    let (another, same) = (Policy::per_minute("another", 2).unwrap(), Policy::per_minute("p", 2).unwrap());
    assert!(fixture.check("k", &another, 1).await.is_allowed());
    fixture.clock.advance(Duration::from_secs(60));
    assert!(fixture.check("k", &same, 1).await.is_allowed(), "the same count under a policy without a ban");
    fixture.limiter.reset("k", &policy).await.unwrap();
    assert_eq!(fixture.peek("k", &policy).await.available(), Some(2), "a reset lifts the ban");
}

pub(crate) async fn only_denials_under_the_policy_itself_count(fixture: Fixture) {
    let policy = strict(Algorithm::SlidingWindowLog);
    let spent = Policy::per_minute("spent", 1).unwrap();
    let check = |cost| Check::new("k", &policy, cost).and("all", &spent, 1).unwrap();
    fixture.check("all", &spent, 1).await;
    for _ in 0..5 {
        // A denial by the other policy, a cost above the limit and a peek do not count as denials.
        assert!(!fixture.limiter.check_all(check(1)).await.unwrap().is_allowed());
        assert!(!fixture.check("k", &policy, 3).await.is_allowed());
        fixture.peek("k", &policy).await;
    }
    assert_eq!(fixture.peek("k", &policy).await.available(), Some(2));
    // Law 3: a ban denies the whole check.
    deny(&fixture, "k", &policy, 3).await;
    fixture.clock.advance(Duration::from_secs(60));
    let refused = fixture.limiter.check_all(check(1)).await.unwrap();
    assert_eq!(refused.violated().map(|standing| standing.policy.name()).collect::<Vec<_>>(), ["p"]);
    assert_eq!(fixture.peek("all", &spent).await.available(), Some(1));
}

pub(crate) async fn a_ban_by_a_policy_that_counts_rejections_ends_at_the_returned_time(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let (key, policy) = (format!("{algorithm:?}"), strict(algorithm).with_count_rejected(true));
        deny(&fixture, &key, &policy, 3).await;
        let ban = fixture.peek(&key, &policy).await.policies()[0].ban.unwrap();
        fixture.clock.advance(ban - Duration::from_secs(5));
        for _ in 0..5 {
            assert_eq!(
                fixture.check(&key, &policy, 1).await.retry_after(),
                Some(Duration::from_secs(5)),
                "{algorithm:?}"
            );
        }
        fixture.clock.advance(Duration::from_secs(5));
        assert!(fixture.check(&key, &policy, 1).await.is_allowed(), "{algorithm:?}");
    }
}
