//! Checks that do not go to the store as they are: their policies have shards or leases.

use std::sync::Arc;

use crate::{
    check::Check,
    limiter::{core::Core, lease, purpose::Purpose, sharded::Asked},
};

/// Judges a check.
pub(super) fn ask(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Asked {
    if check.is_sharded() { lease::judge(core, check, purpose) } else { lease::ask(core, check, purpose) }
}

/// Judges a check whose caller cannot wait.
pub(super) fn try_ask(core: &Arc<Core>, check: &Check, purpose: Purpose) -> Asked {
    if check.is_sharded() { lease::judge(core, check, purpose) } else { lease::try_ask(core, check, purpose) }
}
