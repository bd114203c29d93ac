//! The decision that a request's or a response's extensions hold where several layers check one request.

use http::Extensions;

use crate::decision::Decision;

/// Puts `decision` into `extensions`, unless that of another layer there is stricter.
pub(crate) fn insert_if_strictest(decision: Decision, extensions: &mut Extensions) {
    let strictness = decision.strictness();
    if let Some(other) = extensions.insert(decision)
        && other.strictness() > strictness
    {
        extensions.insert(other);
    }
}
