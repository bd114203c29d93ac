//! The decision in the extensions of a request or a response. If several layers check a request, the strictest decision
//! is kept.

use http::Extensions;

use crate::decision::Decision;

/// Inserts `decision`, unless the decision of another layer in `extensions` is stricter. Returns whether there was a
/// decision of another layer.
#[inline]
pub(crate) fn insert_if_strictest(decision: Decision, extensions: &mut Extensions) -> bool {
    let Some(other) = extensions.insert(decision) else { return false };
    if extensions.get::<Decision>().is_some_and(|decision| other.strictness() > decision.strictness()) {
        extensions.insert(other);
    }
    true
}
