//! The tests of the suite, by subject. Each is a function whose name is the sentence that it proves.

mod agreement;
mod bans;
mod by_hand;
mod calendar;
mod changes;
mod concurrency;
mod counts;
mod first_of;
mod holds;
mod input;
mod largest;
mod laws;
mod outage;
mod parts;
mod resets;
mod sending;
mod shadow;
mod window;

use std::{future::Future, pin::Pin};

use crate::{failure::Tested, tested_store::TestedStore};

/// One test: its name, and the function that tests a fresh store.
pub(super) struct StoreTest {
    pub(super) name: &'static str,
    pub(super) run: fn(TestedStore) -> Pin<Box<dyn Future<Output = Tested>>>,
}

macro_rules! tests {
    ($($module:ident: $($name:ident),+;)+) => {
        &[$($(StoreTest { name: stringify!($name), run: |store| Box::pin($module::$name(store)) }),+),+]
    };
}

/// All tests, in the order in which they run: the plain ones first.
pub(super) const ALL: &[StoreTest] = tests! {
    counts:
        the_whole_cost_is_charged,
        every_limit_is_admitted_to_the_last_unit,
        a_peek_charges_nothing,
        a_cost_of_0_always_passes_and_charges_nothing,
        a_cost_above_the_limit_never_fits_and_has_no_retry_after,
        the_verdict_has_the_time_of_the_clock,
        keys_and_policies_have_counts_of_their_own,
        law_6_peeks_and_denials_keep_no_key,
        law_6_keys_whose_counts_are_over_are_dropped;
    window:
        a_charge_leaves_the_window_at_its_end_and_not_earlier,
        a_fixed_window_ends_at_a_multiple_of_its_length,
        a_sliding_window_counter_fades_the_previous_window,
        a_token_bucket_refills_evenly_up_to_its_burst,
        a_resolution_rounds_the_time_of_a_charge_up,
        an_idle_token_bucket_admits_exactly_its_burst,
        five_thousand_a_second_and_sub_microsecond_rates_hold;
    laws:
        law_1_the_log_never_admits_more_than_the_limit_in_any_window,
        law_2_a_denied_cost_did_not_fit,
        law_3_a_denied_check_changes_no_count,
        law_3_every_charge_of_a_check_is_charged,
        law_3_a_check_of_several_keys_is_charged_whole_or_not_charged,
        law_4_available_passes_and_one_more_does_not,
        law_4_a_peek_reports_whether_a_cost_of_1_would_pass_and_when,
        law_5_the_same_cost_passes_at_retry_after_and_not_a_microsecond_earlier,
        law_5_a_rejection_that_is_counted_is_in_the_wait;
    concurrency:
        law_1_parallel_checks_of_one_key_admit_the_limit_and_no_more,
        law_3_parallel_checks_of_several_keys_are_charged_whole;
    sending:
        law_9_an_answer_that_is_never_polled_charges_nothing,
        law_9_an_answer_that_is_dropped_charges_once_at_most;
    outage:
        a_failure_is_an_error_and_the_store_recovers,
        law_9_a_check_that_failed_is_charged_once_at_most;
    input:
        hostile_keys_are_keys_like_any_other,
        several_charges_for_one_key_and_policy_add_up;
    resets:
        a_reset_removes_one_key_under_one_policy,
        a_reset_reports_whether_there_was_a_count;
    counts:
        rejected_requests_count_if_the_policy_says_so;
    changes:
        a_new_limit_applies_at_once_to_live_counts,
        old_and_new_limits_side_by_side_share_the_count,
        another_window_or_resolution_starts_a_fresh_count,
        another_algorithm_starts_a_fresh_count,
        alternating_windows_do_not_reset_counts,
        law_1_rejections_under_a_lower_limit_remove_no_units_that_a_higher_limit_admitted;
    bans:
        the_last_denial_bans_for_the_whole_duration_even_if_units_are_available,
        denials_count_for_as_long_as_the_ban_would_last,
        a_ban_holds_for_one_key_under_one_policy,
        only_denials_under_the_policy_itself_count,
        a_ban_by_a_policy_that_counts_rejections_ends_at_the_returned_time,
        a_peek_at_a_banned_key_reports_the_end_of_the_ban;
    resets:
        a_reset_lifts_a_ban_and_reports_it;
    shadow:
        law_1_2_3_and_12_checks_with_shadow_charges_agree_with_lists_of_charges,
        law_2_an_enforced_policy_beside_a_shadow_policy_admits_what_it_admits_alone,
        law_3_a_denied_check_charges_no_shadow_policy,
        law_12_a_shadow_policy_counts_as_if_it_were_enforced,
        a_shadow_policy_that_is_enforced_denies_at_once_what_it_has_counted,
        a_cost_above_the_limit_of_a_shadow_policy_refuses_nothing,
        a_peek_at_a_spent_shadow_policy_is_allowed_and_says_that_it_would_deny;
    holds:
        an_open_hold_counts_in_full_until_it_is_settled,
        a_settlement_above_the_hold_is_charged_in_full,
        a_hold_is_settled_once_however_often_it_is_sent,
        a_hold_ends_at_its_time_to_live_charged_or_released,
        a_renewed_hold_lives_for_another_time_to_live,
        law_3_a_denied_check_holds_nothing,
        slots_are_held_at_once_and_never_charged,
        a_reset_ends_open_holds;
    first_of:
        law_3_of_alternatives_the_first_with_room_is_charged_whole;
    by_hand:
        a_ban_by_hand_refuses_until_its_end_and_changes_no_count,
        a_ban_that_is_ended_by_hand_leaves_the_count_as_it_was,
        law_3_a_check_with_a_banned_charge_charges_nothing,
        a_shadow_policy_reports_a_ban_and_refuses_nothing,
        law_2_beside_a_banned_shadow_policy_an_enforced_policy_counts_what_it_counts_alone,
        law_15_beside_a_ban_that_denies_nothing_lost_slots_are_free_at_their_time_to_live,
        an_unban_ends_a_ban_by_denials,
        recorded_units_are_charged_whether_or_not_they_fit,
        credited_units_come_back_up_to_what_was_charged,
        credited_units_of_a_log_are_the_youngest,
        law_1_a_window_admits_no_more_than_the_limit_and_what_was_given_back_in_it,
        open_holds_stay_during_a_ban_and_are_settled;
    parts:
        a_peek_at_costs_says_when_they_pass_and_charges_nothing,
        law_3_a_peek_at_several_costs_charges_none_and_counts_no_denial,
        as_many_units_are_charged_as_fit,
        a_charge_of_as_much_as_fits_counts_one_denial_if_nothing_fits,
        open_holds_leave_less_room_for_parts;
    agreement:
        law_12_random_traces_agree_with_the_oracle,
        law_12_random_traces_with_changes_by_hand_agree_with_the_oracle,
        law_12_random_traces_with_peeks_and_partial_charges_agree_with_the_oracle;
    calendar:
        a_calendar_window_ends_at_its_boundary_and_not_earlier,
        law_12_random_traces_under_calendars_agree_with_the_oracle;
    largest:
        law_12_charges_up_to_the_largest_limit_agree_with_the_oracle,
        law_12_changes_by_hand_up_to_the_largest_limit_agree_with_the_oracle,
        holds_up_to_the_largest_limit_are_exact;
};
