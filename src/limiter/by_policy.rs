//! Checks that policies decide without the store. A check that a blocked policy refuses is not sent, and of one that a
//! blocked shadow policy would refuse, the store gets the other charges.

use std::sync::Arc;

use crate::{
    calls::Purpose,
    check::Check,
    limiter::{core::Core, lease},
    store::Answer,
    verdict::Verdict,
};

/// Decides a check of which the store does not get all charges.
pub(super) fn ask(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Answer<Verdict> {
    let Some(others) = check.beside_blocked() else { return Answer::Ready(Ok(check.verdict_of_policies(false))) };
    if others.charges().is_empty() {
        return Answer::Ready(Ok(check.verdict_of_policies(true)));
    }
    match lease::judge(core, &others, purpose) {
        Answer::Ready(result) => Answer::Ready(result.map(|verdict| check.with_blocked(verdict))),
        Answer::Pending(pending) => {
            let check = check.clone();
            Answer::Pending(pending.map(move |verdict| check.with_blocked(verdict)))
        }
    }
}
