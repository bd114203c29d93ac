//! Which of two policies a caller pays from.

use super::amounts;
use super::denials::{Taken, reach_of};
use crate::keys::{ALTERNATIVE, KEYS};
use crate::plan::{Plan, mode::Mode};
use crate::{history::Call, world::Report};

/// The second policy is charged only while the first one had no room, and a caller is denied only while neither had.
pub(super) fn the_first_that_has_room(plan: &Plan, report: &Report, mode: Mode) -> Option<String> {
    let (limit, reach) = reach_of(report, mode).filter(|_| mode == Mode::FirstOf)?;
    for key in 0..KEYS {
        // Those whose fate is unknown may have been charged to either.
        let either: Vec<&Call> = amounts::of_key(report, mode, key).collect();
        let unknown = either.iter().copied().filter(|call| call.charged() == 0);
        let second: Vec<&Call> = amounts::of_key(report, mode, ALTERNATIVE + key).chain(unknown).collect();
        let [of_first, of_second] = [&either, &second].map(|calls| Taken::of(plan, report, calls, reach));
        let denied = either.iter().filter(|call| call.is_denied());
        let later = second.iter().filter(|call| call.charged() > 0);
        for call in later.chain(denied) {
            let (asked, answered, cost) = (call.asked, call.answered, call.cost);
            let spent = of_first.between(asked, answered);
            if spent + cost <= limit {
                let outcome = &call.outcome;
                return Some(format!(
                    "key {key}: {cost} units at {asked} to {answered} ms: {outcome:?}, when at most {spent} of {limit} \
                     of the first policy were taken"
                ));
            }
            let spent = of_second.between(asked, answered);
            if call.is_denied() && spent + cost <= limit {
                return Some(format!(
                    "key {key}: {cost} units were denied at {asked} to {answered} ms, when at most {spent} of {limit} \
                     of the second policy were taken"
                ));
            }
        }
    }
    None
}
