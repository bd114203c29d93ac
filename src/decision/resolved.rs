//! What a failure policy makes of an error.

use crate::decision::Decision;

/// What a failure policy makes of an error: a decision, or the answer to a hold. Not exported, because only this crate
/// implements it.
pub trait Resolved {
    /// The answer of a store that was not asked or gave no verdict.
    fn without_store(decision: Decision) -> Self;
}

impl Resolved for Decision {
    #[inline]
    fn without_store(decision: Decision) -> Self {
        decision
    }
}
