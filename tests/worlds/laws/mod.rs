//! Laws: what callers may rely on, judged from what they have seen. The numbers are those of the guarantees.
//!
//! A law knows the plan, the calls and what was left in the end. It shares no code with the crate, and never asks how
//! the crate works.

mod amounts;
mod bills;
mod by_hand;
mod calendar;
mod denials;
mod endings;
mod fates;
mod first_of;
mod masters;
mod outages;
mod parts;
mod pauses;
mod queues;
mod responses;
mod retries;
mod room;
mod standing;
mod standings;
mod times;
mod waits;
mod watching;

use crate::plan::{Plan, mode::Mode};
use crate::world::Report;

/// A broken law.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Breach {
    pub(crate) law: &'static str,
    pub(crate) mode: Mode,
    pub(crate) what: String,
}

type Law = fn(&Plan, &Report, Mode) -> Option<String>;

/// All laws, by their names.
const LAWS: [(&str, Law); 53] = [
    ("law-1-never-over", amounts::never_over),
    ("law-1-nobody-exceeds-its-part", amounts::nobody_exceeds_its_part),
    ("law-1-a-former-master-is-left", masters::a_former_master_is_left),
    ("law-1-as-published", amounts::as_published),
    ("law-1-what-is-recorded-counts", by_hand::what_is_recorded_counts),
    ("law-1-no-more-is-given-back-than-was-spent", by_hand::no_more_is_given_back),
    ("law-1-no-more-than-was-asked-for", parts::no_more_than_asked),
    ("law-1-windows-of-a-calendar", calendar::never_over_in_a_window),
    ("law-1-a-ban-holds", standing::a_ban_holds),
    ("law-1-slots-at-once", amounts::slots_at_once),
    ("law-2-no-denial-without-a-reason", denials::no_denial_without_a_reason),
    ("law-2-as-much-as-fits", parts::as_much_as_fits),
    ("law-2-each-window-of-a-calendar-is-whole", calendar::each_window_is_whole),
    ("law-2-the-first-that-has-room", first_of::the_first_that_has_room),
    ("law-2-nobody-is-overtaken", queues::nobody_is_overtaken),
    ("law-2-nobody-is-sent-away-before-room", queues::nobody_is_sent_away_before_room),
    ("law-2-nobody-waits-beside-room", queues::nobody_waits_beside_room),
    ("law-3-all-or-nothing", amounts::all_or_nothing),
    ("law-3-charged-is-admitted", amounts::charged_is_admitted),
    ("law-5-bans-grow-step-by-step", waits::bans_grow_step_by_step),
    ("law-4-available-means-it", standings::available_means_it),
    ("law-5-fields-agree", responses::fields_agree),
    ("law-5-next-and-reset-are-true", standings::next_and_reset_are_true),
    ("law-5-a-pause-is-kept", pauses::a_pause_is_kept),
    ("law-5-retry-after-is-not-too-long", waits::retry_after_is_not_too_long),
    ("law-5-retry-after-is-true", waits::retry_after_is_true),
    ("law-5-retry-after-of-responses-is-true", retries::retry_after_of_responses_is_true),
    ("law-6-connections-are-flat", endings::connections_are_flat),
    ("law-6-every-key-expires", endings::every_key_expires),
    ("law-6-tasks-are-flat", endings::tasks_are_flat),
    ("law-7-refused-requests-are-not-handled", responses::refused_requests_are_not_handled),
    ("law-8-a-move-is-no-outage", times::a_move_is_no_outage),
    ("law-8-no-wait-without-a-reason", times::no_wait_without_a_reason),
    ("law-8-nobody-waits-longer", times::nobody_waits_longer),
    ("law-8-a-requested-failover-is-no-outage", masters::a_requested_failover_is_no_outage),
    ("law-8-a-verdict-after-the-last-fault", times::a_verdict_after_the_last_fault),
    ("law-8-the-first-burst-after-a-quiet-time", times::the_first_burst_has_verdicts),
    ("law-8-changes-by-hand-wait-no-longer", by_hand::changes_wait_no_longer),
    ("law-8-one-at-a-time-waits", outages::one_at_a_time_waits),
    ("law-8-other-masters-are-left-alone", outages::other_masters_are_left_alone),
    ("law-9-a-share-gives-a-verdict", fates::a_share_gives_a_verdict),
    ("law-9-errors-tell-the-fate", fates::errors_tell_the_fate),
    ("law-9-the-failure-policy-decides", responses::the_failure_policy_decides),
    ("law-15-all-is-free-in-the-end", endings::all_is_free),
    ("law-15-all-is-free-soon", endings::all_is_free_soon),
    ("law-15-an-ended-runtime-leaves-nothing", endings::an_ended_runtime_leaves_nothing),
    ("law-15-blocks-expire", endings::blocks_expire),
    ("law-15-close-leaves-nothing", endings::close_leaves_nothing),
    ("law-15-close-settles-blocks", endings::close_settles_blocks),
    ("law-15-others-settle-blocks", endings::others_settle_blocks),
    ("law-15-settled-is-billed", bills::settled_is_billed),
    ("law-16-watching-changes-nothing", watching::watching_changes_nothing),
    ("no-panic", endings::no_panic),
];

/// The laws that a world has broken.
pub(crate) fn judge(plan: &Plan, report: &Report) -> Vec<Breach> {
    let mut breaches = vec![];
    for mode in plan.modes.iter().copied() {
        for (law, judge) in LAWS {
            breaches.extend(judge(plan, report, mode).map(|what| Breach { law, mode, what }));
        }
    }
    breaches
}

impl Breach {
    /// Reads what `Display` has written.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (head, what) = text.split_once(": ")?;
        let (law, mode) = head.split_once(' ')?;
        let (law, _) = LAWS.into_iter().find(|(name, _)| *name == law)?;
        Some(Self { law, mode: mode.parse().ok()?, what: what.to_owned() })
    }
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // In a line, whatever a panic has said.
        write!(f, "{} {}: {}", self.law, self.mode, self.what.replace('\n', " "))
    }
}
