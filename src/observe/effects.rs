//! What checks get instead of a verdict, and how often each of it has happened in an outage.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::FailurePolicy;

/// What a request gets instead of a verdict.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FailureEffect {
    /// The caller of the limiter gets the error instead of a decision.
    Error,
    Pass,
    Refusal,
    /// Only shadow policies apply to the check, so it passes under every failure policy.
    Shadow,
    /// Judged by this instance's share of the limit.
    Share,
    /// Refused, because the number of instances is not known yet.
    UnknownShare,
}

impl FailureEffect {
    const ALL: [Self; 6] = [Self::Pass, Self::Refusal, Self::Share, Self::UnknownShare, Self::Shadow, Self::Error];

    /// The effect as a sentence, for the first check of an outage.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Self::Error => "The caller of the limiter gets this error.",
            Self::Pass => "Requests pass without a limit (fail_open).",
            Self::Refusal => "Requests are refused with 503 (fail_closed).",
            Self::Shadow => "Requests pass, because only shadow policies apply to them.",
            Self::Share => "Requests are judged by this instance's share (fail_local).",
            Self::UnknownShare => {
                "Requests are refused with 503 (fail_local): the number of instances is not known yet."
            }
        }
    }

    /// The effect after a number of checks: `225 passed without a limit (fail_open)`.
    fn participle(self) -> &'static str {
        match self {
            Self::Error => "returned as errors to callers of the limiter",
            Self::Pass => "passed without a limit (fail_open)",
            Self::Refusal => "refused with 503 (fail_closed)",
            Self::Shadow => "passed because only shadow policies apply to them",
            Self::Share => "judged by this instance's share (fail_local)",
            Self::UnknownShare => "refused with 503 (fail_local, while the number of instances was not known)",
        }
    }

    /// A bit for each effect.
    fn bit(self) -> u64 {
        1 << self as u64
    }
}

impl From<Option<FailurePolicy>> for FailureEffect {
    fn from(failure: Option<FailurePolicy>) -> Self {
        match failure {
            None => Self::Error,
            Some(FailurePolicy::Closed) => Self::Refusal,
            Some(FailurePolicy::Local) => Self::Share,
            Some(FailurePolicy::Open) => Self::Pass,
        }
    }
}

/// The effects of an outage. The failure policy belongs to a route, so one outage may have several effects.
#[derive(Debug, Default)]
pub(super) struct Effects {
    counts: [AtomicU64; FailureEffect::ALL.len()],
    /// One bit for each effect that a line has named.
    named: AtomicU64,
}

/// The number of checks with each effect.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct EffectCounts([u64; FailureEffect::ALL.len()]);

impl Effects {
    pub(super) fn count(&self, effect: FailureEffect) {
        self.counts[effect as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a line has named an effect.
    pub(super) fn are_named(&self) -> bool {
        self.named.load(Ordering::Relaxed) != 0
    }

    /// Whether `effect` is news: lines have named other effects, but not this one. `true` for one caller only.
    pub(super) fn is_news(&self, effect: FailureEffect) -> bool {
        let is_unnamed = |named: u64| named != 0 && named & effect.bit() == 0;
        is_unnamed(self.named.load(Ordering::Relaxed))
            && is_unnamed(self.named.fetch_or(effect.bit(), Ordering::Relaxed))
    }

    /// The counts so far, which a line is about to name.
    pub(super) fn name(&self) -> EffectCounts {
        let counts = EffectCounts(self.counts.each_ref().map(|count| count.load(Ordering::Relaxed)));
        let bits = counts.present().map(|(effect, _)| effect.bit()).sum();
        self.named.fetch_or(bits, Ordering::Relaxed);
        counts
    }

    /// Takes the counts at the end of the outage.
    pub(super) fn take(&self) -> EffectCounts {
        self.named.store(0, Ordering::Relaxed);
        EffectCounts(self.counts.each_ref().map(|count| count.swap(0, Ordering::Relaxed)))
    }
}

impl EffectCounts {
    /// The number of checks.
    pub(super) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The effect, if there is only one.
    pub(super) fn only(&self) -> Option<FailureEffect> {
        let mut present = self.present();
        present.next().filter(|_| present.next().is_none()).map(|(effect, _)| effect)
    }

    fn present(&self) -> impl Iterator<Item = (FailureEffect, u64)> {
        FailureEffect::ALL.into_iter().map(|effect| (effect, self.0[effect as usize])).filter(|(_, count)| *count > 0)
    }
}

impl From<FailureEffect> for EffectCounts {
    /// One check with this effect.
    fn from(effect: FailureEffect) -> Self {
        let mut counts = Self::default();
        counts.0[effect as usize] = 1;
        counts
    }
}

/// `225 passed without a limit (fail_open), 12 refused with 503 (fail_closed)`.
impl fmt::Display for EffectCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (effect, count)) in self.present().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}{count} {}", effect.participle())?;
        }
        Ok(())
    }
}
