//! The decision in the extensions of a request or a response. If several layers check a request, the strictest decision
//! is kept.

use http::Extensions;

use crate::decision::Decision;

/// Inserts `decision`, unless the decision of another layer in `extensions` is stricter.
pub(crate) fn insert_if_strictest(decision: Decision, extensions: &mut Extensions) {
    let strictness = decision.strictness();
    if let Some(other) = extensions.insert(decision)
        && other.strictness() > strictness
    {
        extensions.insert(other);
    }
}
