//! The tests that every store has to pass. [`suite!`] runs them on a store.

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

/// A limiter over the store under test, and the clock of the store.
pub(crate) struct Fixture {
    pub(crate) limiter: Limiter,
    pub(crate) clock: ManualClock,
    /// Stops when the test ends.
    _server: Box<dyn std::any::Any>,
}

impl Fixture {
    /// `server` is kept until the test ends.
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

/// Generates a module with every test of the suite, from its name and a function that returns a [`Fixture`].
macro_rules! suite {
    ($store:ident, $fixture:path) => {
        suite! { @tests $store, $fixture:
            law_1_the_log_never_admits_more_than_the_limit_in_any_window,
            law_2_a_denied_cost_did_not_fit,
            law_3_a_denied_check_changes_no_count,
            law_3_a_check_of_several_keys_is_charged_whole_or_not_charged,
            law_4_available_passes_and_one_more_does_not,
            law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier,
            law_5_a_rejection_that_is_counted_is_in_the_wait,
            law_11_clones_spend_from_one_budget,
            the_last_denial_bans_for_the_whole_duration_even_if_units_are_available,
            denials_count_for_as_long_as_the_ban_would_last,
            a_ban_holds_for_one_key_under_one_policy,
            only_denials_under_the_policy_itself_count,
            a_ban_by_a_policy_that_counts_rejections_ends_at_the_returned_time,
            a_new_limit_applies_at_once_to_live_counts,
            old_and_new_limits_side_by_side_share_the_count,
            another_window_or_resolution_starts_a_fresh_count,
            another_algorithm_starts_a_fresh_count,
            alternating_windows_do_not_reset_counts,
            law_1_rejections_under_a_lower_limit_remove_no_units_that_a_higher_limit_admitted,
            a_cost_of_0_always_passes_and_charges_nothing,
            law_4_a_peek_reports_whether_a_cost_of_1_would_pass_and_when,
            a_peek_at_a_banned_key_reports_the_end_of_the_ban,
            a_cost_above_the_limit_never_fits_and_has_no_retry_after,
            hostile_keys_are_keys_like_any_other,
            several_charges_for_one_key_and_policy_add_up,
            a_reset_removes_one_key_under_one_policy,
            a_reset_reports_whether_there_was_a_count_or_a_ban,
            every_limit_is_admitted_to_the_last_unit,
            rejected_requests_count_if_the_policy_says_so,
            five_thousand_a_second_and_sub_microsecond_rates_hold,
            an_idle_token_bucket_admits_exactly_its_burst,
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
