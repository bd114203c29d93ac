//! Verdicts on checks with keys that are banned by hand.

use super::{outgoing::Request, protocol::counts_of_charge};
use crate::{store::ban, verdict::Verdict};

/// The start of the text that is not an error, but has the numbers of a check with banned keys. `lua/FORMAT.md`
/// describes it.
pub(super) const BANNED: &[u8] = b"BANNED";

/// Adds the bans, which end at these times in microseconds, to a verdict without them. Each count of a charge has an
/// end, 0 without a ban.
pub(super) fn add(verdict: &mut Verdict, request: &Request, mut ends_us: &[u64]) {
    for ((charge, _), outcome) in request.charges().zip(&mut verdict.outcomes) {
        let (own, others) = ends_us.split_at(counts_of_charge(charge, request.step));
        ends_us = others;
        let left_us = own[0].saturating_sub(verdict.time_us);
        if left_us > 0 {
            *outcome = ban::by_hand(*outcome, charge.cost, left_us);
            if charge.cost > 0 && !charge.policy.is_shadow() {
                request.outgoing.meets_ban_by_hand();
            }
        }
    }
    verdict.allowed = request.is_allowed_by(&verdict.outcomes);
}
