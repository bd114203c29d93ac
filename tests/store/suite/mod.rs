//! One suite for every store: [`suite!`] mounts each test of it on a store.

mod bans;
mod changes;
mod input;
mod laws;

pub(crate) mod tests {
    pub(crate) use super::{bans::*, changes::*, input::*, laws::*};
}

use tollgate::{Algorithm, Decision, Limiter, ManualClock, Policy, store::Store};

pub(crate) const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog, Algorithm::TokenBucket];

/// A store to test, and its clock.
pub(crate) struct Fixture {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
    /// Ends with the test.
    _server: Box<dyn std::any::Any>,
}

impl Fixture {
    /// `server` is dropped at the end of the test.
    pub(crate) fn new(store: impl Store, clock: ManualClock, server: impl std::any::Any) -> Self {
        Self { limiter: Limiter::new(store), clock, _server: Box::new(server) }
    }

    pub(crate) async fn check(&self, key: &str, policy: &Policy, cost: u32) -> Decision {
        self.limiter.check(key, policy, cost).await.unwrap()
    }

    pub(crate) async fn peek(&self, key: &str, policy: &Policy) -> Decision {
        self.limiter.peek(key, policy).await.unwrap()
    }
}

/// Mounts every test of the suite on a store: the name of a module, and a function that returns a [`Fixture`].
macro_rules! suite {
    ($store:ident, $fixture:path) => {
        suite! { @tests $store, $fixture:
            law_1_the_log_never_admits_more_than_the_limit_in_any_window,
            law_2_a_denied_cost_did_not_fit,
            law_3_a_denied_check_changes_no_count,
            law_3_a_check_of_several_keys_is_paid_whole_or_not_at_all,
            law_4_available_passes_and_one_more_does_not,
            law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier,
            law_5_a_rejection_that_is_counted_is_in_the_wait,
            law_11_clones_spend_from_one_budget,
            the_last_denial_bans_for_the_whole_duration_whatever_is_available,
            denials_count_for_as_long_as_the_ban_would_last,
            a_ban_is_one_keys_under_one_policy,
            only_denials_under_the_policy_itself_count,
            a_ban_by_a_policy_that_counts_rejections_ends_when_it_was_said_to,
            a_new_limit_holds_at_once_for_what_is_counted,
            old_and_new_limits_side_by_side_share_the_count,
            another_window_or_resolution_starts_a_fresh_count,
            another_algorithm_starts_a_fresh_count,
            alternating_windows_do_not_reset_counts,
            law_1_rejections_under_a_lower_limit_forget_nothing_that_a_higher_one_admitted,
            cost_0_passes_and_charges_nothing_whatever_is_spent,
            law_4_a_peek_tells_whether_a_cost_of_1_would_pass_and_when,
            a_peek_at_a_banned_key_tells_the_end_of_the_ban,
            a_cost_above_the_limit_never_fits_and_has_no_retry_after,
            hostile_keys_are_keys_like_any_other,
            several_charges_for_one_key_and_policy_add_up,
            reset_forgets_one_key_under_one_policy,
            reset_tells_whether_there_was_a_count_or_a_ban_to_forget,
            a_full_window_at_every_limit_is_admitted_to_the_unit,
            rejected_requests_count_if_the_policy_says_so,
            five_thousand_a_second_and_sub_microsecond_rates_hold,
            an_idle_bucket_admits_its_burst_exactly,
        }
    };
    (@tests $store:ident, $fixture:path: $($test:ident),+ $(,)?) => {
        mod $store {
            $(
                #[tokio::test]
                async fn $test() {
                    $crate::store::suite::tests::$test($fixture()).await;
                }
            )+
        }
    };
}
pub(crate) use suite;
