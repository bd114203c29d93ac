//! What a request is going to do: drawn by its caller, and played by its handler and its body.

use crate::plan::mode::{Mode, TTL};
use crate::random::Rng;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Panics {
    Never,
    AtOnce,
    AfterTheWork,
    /// The closure that settles.
    Settling,
    InTheBody,
}

/// How the handler wants the holds of its request to end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Settles {
    AtEnd,
    Charge(u64),
    Keep,
    Release,
}

/// Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) is_exempt: bool,
    pub(crate) is_head: bool,
    /// How long the handler waits before it answers, and for how long it keeps its thread.
    pub(crate) works: u64,
    pub(crate) blocks: u64,
    pub(crate) panics: Panics,
    /// The cost on the bill before the work, and whether each frame of the body adds a unit.
    pub(crate) bill: Option<u64>,
    pub(crate) counts_frames: bool,
    pub(crate) settles: Settles,
    pub(crate) frames: u64,
    pub(crate) frame_every: u64,
    /// After how many frames the client has enough.
    pub(crate) reads: u64,
    /// For how long work goes on that the handler has left to a task.
    pub(crate) goes_on: Option<u64>,
}

impl Script {
    /// An answer at once, that is read to its end.
    pub(crate) fn plain() -> Self {
        Self {
            is_exempt: false,
            is_head: false,
            works: 0,
            blocks: 0,
            panics: Panics::Never,
            bill: None,
            counts_frames: false,
            settles: Settles::AtEnd,
            frames: 0,
            frame_every: 0,
            reads: 0,
            goes_on: None,
        }
    }

    /// With `may_stand_still`, a handler may keep its thread for longer than the time-to-live of slots.
    pub(crate) fn draw(mode: Mode, may_stand_still: bool, rng: &mut Rng) -> Self {
        let (is_settled, is_held) = (mode.is_settled(), mode.is_holds());
        let is_slow = is_held && rng.chance(4);
        let frames = if rng.chance(50) { 1 + rng.below(5) } else { 0 };
        let panics = match rng.below(40) {
            0 | 1 => Panics::AtOnce,
            2 => Panics::AfterTheWork,
            3 if is_settled => Panics::Settling,
            4 if frames > 0 => Panics::InTheBody,
            _ => Panics::Never,
        };
        let settles = match rng.below(10) {
            0 => Settles::Charge(rng.below(6)),
            1 => Settles::Keep,
            2 => Settles::Release,
            _ => Settles::AtEnd,
        };
        let longest = if is_slow { TTL + 800 } else { 40 };
        Self {
            is_exempt: rng.chance(3),
            is_head: rng.chance(3),
            works: if rng.chance(40) { 0 } else { rng.below(longest) },
            blocks: match rng.below(200) {
                0 if may_stand_still => TTL + 300,
                1..=6 => 1 + rng.below(20),
                _ => 0,
            },
            panics,
            bill: (is_settled && rng.chance(60)).then(|| rng.below(6)),
            counts_frames: is_settled && rng.chance(50),
            settles,
            frames,
            frame_every: if is_slow { rng.below(700) } else { rng.below(12) },
            reads: if rng.chance(15) { rng.below(frames + 1) } else { u64::MAX },
            goes_on: (is_held && rng.chance(8)).then(|| rng.below(60)),
        }
    }
}
