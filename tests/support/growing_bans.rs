//! Bans that grow, on any store.

use std::time::Duration;

use tollgate::{Limiter, ManualClock, Policy};

use crate::support::ALGORITHMS;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MICROSECOND: Duration = Duration::from_micros(1);

/// Asks until the key is banned. Returns the length of the ban, which the denial that begins it and all others name.
/// No wait ends before it.
async fn banned(limiter: &Limiter, key: &str, policy: &Policy) -> Duration {
    for _ in 0..20 {
        let decision = limiter.check(key, policy, 1).await.unwrap();
        let Some(ban) = decision.policies()[0].ban else { continue };
        assert!(!decision.is_allowed() && decision.retry_after() >= Some(ban));
        assert_eq!(decision.available(), Some(0));
        for _ in 0..2 {
            let again = limiter.check(key, policy, 1).await.unwrap();
            assert!(again.retry_after() == decision.retry_after() && again.policies()[0].ban == Some(ban));
            let peek = limiter.peek(key, policy).await.unwrap();
            let standing = &peek.policies()[0];
            assert!(!peek.is_allowed() && standing.ban == Some(ban) && standing.next >= ban && standing.reset >= ban);
        }
        return ban;
    }
    panic!("twenty checks led to no ban of {key}");
}

/// Goes to the end of a ban, and asserts that it ends then and not earlier.
async fn serve(limiter: &Limiter, clock: &ManualClock, key: &str, policy: &Policy, ban: Duration) {
    for (passed, left) in [(ban / 3, ban - ban / 3), (ban - ban / 3 - MICROSECOND, MICROSECOND)] {
        clock.advance(passed);
        let denied = limiter.check(key, policy, 1).await.unwrap();
        assert_eq!((denied.retry_after(), denied.policies()[0].ban), (Some(left), Some(left)));
    }
    clock.advance(MICROSECOND);
    assert!(limiter.check(key, policy, 1).await.unwrap().is_allowed(), "the ban of {ban:?} has ended");
}

/// Each ban is twice as long as the last, up to the longest; a key that was quiet for long enough begins anew.
pub(crate) async fn bans_grow(limiter: &Limiter, clock: &ManualClock) {
    for algorithm in ALGORITHMS {
        let policy = Policy::new(format!("{algorithm:?}"), 2, 10 * SECOND).unwrap().with_algorithm(algorithm);
        let policy = policy.ban_after(2, MINUTE).growing_to(7 * MINUTE).validated().unwrap();
        for minutes in [1, 2, 4, 7, 7] {
            assert_eq!(banned(limiter, "k", &policy).await, minutes * MINUTE, "{algorithm:?}");
            serve(limiter, clock, "k", &policy, minutes * MINUTE).await;
        }
        clock.advance(7 * MINUTE - MICROSECOND);
        assert_eq!(banned(limiter, "k", &policy).await, 7 * MINUTE, "{algorithm:?}: not quiet for long enough");
        serve(limiter, clock, "k", &policy, 7 * MINUTE).await;
        clock.advance(7 * MINUTE);
        assert_eq!(banned(limiter, "k", &policy).await, MINUTE, "{algorithm:?}: forgotten");
        serve(limiter, clock, "k", &policy, MINUTE).await;
    }
}

/// The last ban is remembered for the window of the policy at least, and forgotten by hand.
pub(crate) async fn last_bans_are_forgotten(limiter: &Limiter, clock: &ManualClock) {
    let policy = Policy::per_hour("forgotten", 2).unwrap().ban_after(1, SECOND).growing_to(MINUTE);
    let next = async || {
        let ban = banned(limiter, "k", &policy).await;
        clock.advance(ban);
        ban
    };
    let hour = Duration::from_secs(3_600);
    assert_eq!(next().await, SECOND);
    clock.advance(hour - MICROSECOND);
    assert_eq!(next().await, 2 * SECOND);
    clock.advance(hour);
    assert_eq!(next().await, SECOND);
    assert_eq!(next().await, 2 * SECOND);
    assert!(limiter.reset("k", &policy).await.unwrap());
    assert_eq!(next().await, SECOND);
    assert_eq!(next().await, 2 * SECOND);
    assert_eq!(banned(limiter, "k", &policy).await, 4 * SECOND);
    assert!(limiter.unban("k", &policy).await.unwrap(), "a ban has ended");
    assert!(!limiter.unban("k", &policy).await.unwrap());
    assert_eq!(next().await, SECOND, "and is forgotten");
    // Without a ban, and by an instance that does not know that bans grow.
    assert_eq!(next().await, 2 * SECOND);
    let plain = Policy::per_hour("forgotten", 2).unwrap().ban_after(1, SECOND);
    assert!(!limiter.unban("k", &plain).await.unwrap());
    assert_eq!(next().await, SECOND);
}

/// Two instances, of which one does not know that bans grow, keep to each other's bans.
pub(crate) async fn both_settings_side_by_side(limiter: &Limiter, clock: &ManualClock) {
    let plain = Policy::per_minute("both", 2).unwrap().ban_after(2, MINUTE);
    let growing = plain.clone().growing_to(10 * MINUTE);
    for (begins, other, minutes) in [
        (&plain, &growing, 1),
        (&growing, &plain, 1),
        (&growing, &plain, 2),
        (&plain, &growing, 1),
        (&growing, &plain, 4),
    ] {
        let ban = banned(limiter, "k", begins).await;
        assert_eq!(ban, minutes * MINUTE);
        clock.advance(ban - MICROSECOND);
        for policy in [other, begins] {
            let denied = limiter.check("k", policy, 1).await.unwrap();
            assert_eq!(denied.policies()[0].ban, Some(MICROSECOND));
        }
        clock.advance(MICROSECOND);
        assert!(limiter.check("k", other, 1).await.unwrap().is_allowed());
    }
}

/// Two policies of one check ban, each by its own denials. A check that meets a ban that grows counts none.
pub(crate) async fn two_policies_ban_at_once(limiter: &Limiter, clock: &ManualClock) {
    let of = |name: &str, limit| Policy::per_hour(name, limit).unwrap();
    let first = of("first", 2).ban_after(1, MINUTE).growing_to(10 * MINUTE);
    let second = of("second", 2).ban_after(3, MINUTE).growing_to(10 * MINUTE);
    let check = async || {
        let check = tollgate::Check::new("k", &first, 1).and("k", &second, 1);
        let decision = limiter.check_all(check).await.unwrap();
        (decision.is_allowed(), [0, 1].map(|number| decision.policies()[number].ban))
    };
    assert!(check().await.0 && check().await.0);
    let of_first = |left: Duration| (false, [Some(left), None]);
    assert_eq!(check().await, of_first(MINUTE), "one denial of both");
    assert_eq!(check().await, of_first(MINUTE), "not counted");
    clock.advance(MINUTE);
    assert_eq!(check().await, of_first(2 * MINUTE), "the first denial of the second has left");
    clock.advance(2 * MINUTE);
    for _ in 0..3 {
        assert!(!limiter.check("k", &second, 1).await.unwrap().is_allowed());
    }
    assert_eq!(check().await, (false, [None, Some(MINUTE)]), "counted by no policy");
    clock.advance(MINUTE);
    assert_eq!(check().await, of_first(4 * MINUTE));
    clock.advance(Duration::from_secs(3_600));
}
