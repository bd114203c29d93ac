//! The judge: what was admitted, and the bound that the documentation proves.

use std::{fmt, time::Duration};

use tollgate::decision::Source;

use super::plan::{Kind, Plan};

/// What was admitted to a caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub(super) instance: usize,
    pub(super) asked: Duration,
    pub(super) answered: Duration,
    /// The order of the answers.
    pub(super) number: u64,
    pub(super) units: u64,
    pub(super) source: Source,
}

/// A window and what it has seen.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) from: Duration,
    pub(super) units: u64,
    pub(super) bound: u64,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, units, bound } = self;
        write!(f, "{units} units of at most {bound} in the window from {from:?}")
    }
}

/// Two windows of a run.
#[derive(Debug)]
pub(super) struct Judged {
    /// The one that is above its bound by most, or nearest to it.
    pub(super) worst: Seen,
    /// The one with most units, of those that an outage concerns.
    pub(super) fullest: Seen,
    /// Whether blocks were spent.
    pub(super) has_blocks: bool,
}

/// Looks at all windows. A window sees what was asked and answered within it.
pub(super) fn judge(kind: &Kind, plan: &Plan, mut history: Vec<Admitted>) -> Judged {
    let window = plan.window;
    let has_blocks = history.iter().any(|admitted| admitted.source == Source::Lease);
    history.sort_by_key(|admitted| (admitted.asked, admitted.answered));
    let mut worst = Seen { from: Duration::ZERO, units: 0, bound: kind.limit };
    let mut fullest = worst.clone();
    let (mut first, mut end, mut at_most) = (0, 0, 0);
    while let Some(from) = history.get(first).map(|admitted| admitted.asked) {
        while let Some(admitted) = history.get(end).filter(|admitted| admitted.asked < from + window) {
            at_most += admitted.units;
            end += 1;
        }
        // Others are within every bound.
        if at_most > fullest.units.min(kind.limit) {
            let inside = history[first..end].iter().filter(|admitted| admitted.answered < from + window);
            let seen = look(kind, from, inside);
            let excess = |seen: &Seen| seen.units as i64 - seen.bound as i64;
            if excess(&seen) > excess(&worst) {
                worst = seen.clone();
            }
            if seen.units > fullest.units && plan.has_outage(from, from + window) {
                fullest = seen;
            }
        }
        while history.get(first).is_some_and(|admitted| admitted.asked == from) {
            at_most -= history[first].units;
            first += 1;
        }
    }
    Judged { worst, fullest, has_blocks }
}

/// What a window has seen of one instance.
#[derive(Clone, Copy, Default)]
struct OfInstance {
    by_store: u64,
    /// What the store had admitted when the share admitted something for the last time.
    before: Option<u64>,
}

fn look<'a>(kind: &Kind, from: Duration, inside: impl Iterator<Item = &'a Admitted>) -> Seen {
    let share = kind.limit.div_ceil(kind.instances.into());
    let mut instances = vec![OfInstance::default(); kind.instances as usize];
    let mut units = 0;
    let mut inside: Vec<&Admitted> = inside.collect();
    inside.sort_by_key(|admitted| admitted.number);
    for admitted in inside {
        units += admitted.units;
        let instance = &mut instances[admitted.instance];
        match admitted.source {
            Source::Local => instance.before = Some(instance.by_store),
            _ => instance.by_store += admitted.units,
        }
    }
    let more = |instance: &OfInstance| instance.before.map_or(0, |before| share.saturating_sub(before));
    let more = if kind.instances == 1 { 0 } else { instances.iter().map(more).sum() };
    Seen { from, units, bound: kind.limit + more }
}
