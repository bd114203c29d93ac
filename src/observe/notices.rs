//! What a limiter reports by itself: that limits are not enforced, and warnings about its setup.

use std::{fmt, time::Duration};

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};
use crate::observe::log_line::{FailureMessage, Topic, write_line};
use crate::observe::outage::{Causes, Length, Outage};
use crate::observe::{Event, EventKind, FailureEffect, LimitsChange, Observer, Other, Throttle};

/// Writes the reports of one limiter and its clones.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// Whether an observer writes the same reports as `tracing` events.
    traced: bool,
    outage: Outage,
    causes: Causes,
    overload: Throttle,
    /// Spaces lines about failures that concern only one check.
    single: Throttle,
    refusal: Throttle,
    plan_lookup: Throttle,
    plan_fallback: Throttle,
}

/// Time between two lines of one kind, in microseconds.
const PAUSE_US: u64 = 60_000_000;

impl Notices {
    pub(crate) fn new(traced: bool) -> Self {
        Self { traced, ..Self::default() }
    }

    fn write(&self, topic: Topic, text: impl fmt::Display) {
        write_line(topic, text, self.traced);
    }

    /// Reports a check without a verdict, if a line is due.
    #[cold]
    pub(crate) fn failed(&self, error: &Error, effect: FailureEffect) {
        let now_us = SystemClock.now_us();
        let is_due = |cause: &Throttle| cause.claim(now_us, PAUSE_US).is_some();
        match error.kind() {
            ErrorKind::Overloaded if !is_due(&self.overload) => {}
            ErrorKind::BadKey | ErrorKind::InvalidCall if !is_due(&self.single) => {}
            ErrorKind::Overloaded | ErrorKind::BadKey | ErrorKind::InvalidCall => {
                self.write(Topic::Store, FailureMessage::new(error, effect));
            }
            ErrorKind::Deadline | ErrorKind::StoreMisconfigured | ErrorKind::Unavailable => {
                self.in_outage(error, effect, now_us);
            }
        }
    }

    fn in_outage(&self, error: &Error, effect: FailureEffect, now_us: u64) {
        let length = self.outage.failed(effect, now_us);
        let (_, is_news) = self.causes.note(error);
        let length = length.or_else(|| if is_news { self.outage.so_far(now_us) } else { None });
        if let Some((length, cause)) = length.and_then(|length| Some((length, self.causes.report()?))) {
            let text = FailureMessage::new(&cause, length.effects);
            match length.us {
                0 => self.write(Topic::Store, text),
                _ => self.write(Topic::Store, format_args!("{text} This has lasted for {length}.")),
            }
        }
    }

    /// Whether an answer of the store may end an outage.
    #[inline]
    pub(crate) fn awaits_answer(&self) -> bool {
        self.outage.is_on()
    }

    /// Reports the end of an outage, if the answer of the store ends one.
    #[cold]
    pub(crate) fn answered(&self) {
        if let Some(length) = self.outage.answered(SystemClock.now_us()) {
            self.causes.end_outage();
            self.write(Topic::Store, format_args!("Limits are enforced again after {length}: {}.", length.effects));
        }
    }
}

impl Observer for Notices {
    fn on_event(&self, event: &Event<'_>) {
        let is_due = |kind: &Throttle| kind.claim(SystemClock.now_us(), PAUSE_US).is_some();
        match &event.0 {
            EventKind::Refusal(refusal) if refusal.is_misconfiguration() && is_due(&self.refusal) => self.write(
                Topic::Refusal,
                format_args!("Requests are refused because the service is set up wrongly: {refusal}"),
            ),
            EventKind::WouldRefuse(refusal) if refusal.is_misconfiguration() && is_due(&self.refusal) => self.write(
                Topic::Refusal,
                format_args!(
                    "Requests pass without a limit, and would be refused without shadow mode, because the service is \
                     set up wrongly: {refusal}"
                ),
            ),
            EventKind::Warning(warning) if warning.is_notice() => self.write(Topic::Setup, warning),
            EventKind::Other(Other::PlanLookup(lookup)) if !lookup.outcome.is_answer() && is_due(&self.plan_lookup) => {
                self.write(Topic::Plans, lookup);
            }
            EventKind::Other(Other::PlanFallback(fallback)) => {
                if let Some(advice) = fallback.advice()
                    && is_due(&self.plan_fallback)
                {
                    self.write(Topic::Plans, advice);
                }
            }
            // The caller of `replace` has the error of a refusal. A file has no caller.
            EventKind::Other(Other::LimitsChange(
                change @ (LimitsChange::Refused { file: Some(_), .. } | LimitsChange::Unreadable { .. }),
            )) => self.write(Topic::Limits, change),
            _ => {}
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Duration::from_millis(self.us.div_ceil(1_000));
        let failed = self.effects.sum();
        let checks = if failed == 1 { "check" } else { "checks" };
        write!(f, "{time:?} in which {failed} {checks} had no verdict")
    }
}
