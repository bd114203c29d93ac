//! rate-limiter-flexible: the login endpoint of its wiki. Ten consecutive failures of a user at an address block the
//! pair for an hour, a hundred failures in a day the address for a day.

use std::time::Duration;

use tollgate::{Key, Limiter, Policy};

use crate::support::app::limiter_and_clock;

const HOUR: Duration = Duration::from_secs(3_600);

struct Login {
    limiter: Limiter,
    by_address: Policy,
    by_pair: Policy,
}

impl Login {
    fn new(limiter: Limiter) -> Self {
        let by_address = Policy::per_day("login_fail_ip_per_day", 100).unwrap().ban_after(1, 24 * HOUR);
        let by_pair = Policy::new("login_fail_consecutive_username_and_ip", 10, 90 * 24 * HOUR).unwrap();
        Self { limiter, by_address, by_pair: by_pair.ban_after(1, HOUR) }
    }

    /// The status of an attempt, and the wait of a block.
    async fn attempt(&self, user: &str, address: &str, is_right: bool) -> (u16, Option<Duration>) {
        let keys = [Key::from(address), Key::join([Key::from(user), Key::from(address)])];
        let policies = [&self.by_address, &self.by_pair];
        // `get(key)` of both: is one of them blocked?
        for (key, policy) in keys.iter().zip(policies) {
            let seen = self.limiter.peek(key, policy).await.unwrap();
            if let Some(ban) = seen.policies()[0].ban {
                return (429, Some(ban));
            }
        }
        if is_right {
            self.limiter.reset(&keys[1], &self.by_pair).await.unwrap(); // `delete(key)`
            return (200, None);
        }
        for (key, policy) in keys.iter().zip(policies) {
            let decision = self.limiter.check(key, policy, 1).await.unwrap(); // `consume(key)`
            if !decision.is_allowed() {
                return (429, decision.policies()[0].ban);
            }
        }
        (400, None)
    }
}

#[tokio::test]
async fn flexible_login_blocks_the_pair_for_an_hour_after_ten_failures_and_forgets_them_by_a_success() {
    let (limiter, clock) = limiter_and_clock();
    let login = Login::new(limiter);
    for _ in 0..2 {
        for _ in 0..10 {
            assert_eq!(login.attempt("ann", "10.1.1.1", false).await, (400, None));
        }
        assert_eq!(login.attempt("ann", "10.1.1.1", true).await, (200, None));
    }
    for _ in 0..10 {
        assert_eq!(login.attempt("ann", "10.1.1.1", false).await, (400, None));
    }
    assert_eq!(login.attempt("ann", "10.1.1.1", false).await, (429, Some(HOUR)));
    assert_eq!(login.attempt("ann", "10.1.1.1", true).await, (429, Some(HOUR)), "the right password, too");
    assert_eq!(login.attempt("ann", "10.1.1.2", true).await, (200, None));

    // What differs: the count outlives the block, so that the next failure begins another one.
    clock.advance(HOUR);
    assert_eq!(login.attempt("ann", "10.1.1.1", false).await, (429, Some(HOUR)));
    clock.advance(HOUR);
    assert_eq!(login.attempt("ann", "10.1.1.1", true).await, (200, None));
    assert_eq!(login.attempt("ann", "10.1.1.1", false).await, (400, None), "a success forgets the failures");
}
