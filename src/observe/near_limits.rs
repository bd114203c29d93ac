//! Reports each key that comes near a limit once a window.

use std::hash::BuildHasher;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::decision::{Decision, PolicyDecision};
use crate::observe::{Event, EventKind, NearLimit, ObservedKey, Observer};
use crate::{clock::micros, key::Key, policy::Policy, runtime::random::RandomState, verdict::Source};

/// The keys that were reported in their current windows. Clones of a limiter share the table.
///
/// The table is made at the first report. It is bounded: where it is full, the key whose window ends first makes room.
#[derive(Default)]
pub(crate) struct NearLimits {
    table: OnceLock<Box<[Mutex<Set>]>>,
    hasher: RandomState,
}

/// Reported keys whose hashes have the same remainder.
type Set = [Reported; WAYS];

/// A key that was reported under a policy.
#[derive(Clone, Copy, Default)]
struct Reported {
    /// The hash of the key and the policy.
    hash: u64,
    /// The end of the window, in microseconds by the store's clock; 0 if the place is free.
    until_us: u64,
}

const SETS: usize = 2_048;
const WAYS: usize = 8;

impl NearLimits {
    /// Reports each policy whose near limit the charges of an allowed check have reached. `keys` are the keys of the
    /// charges, in order.
    pub(crate) fn report<'a>(&self, observer: &dyn Observer, keys: impl Iterator<Item = &'a Key>, decision: &Decision) {
        let (true, Some(now_us)) = (decision.is_allowed(), decision.time_us()) else { return };
        let crossing = match decision.source() {
            Source::Store => spent_at_crossing,
            // Units that other processes have spent are seen with the next block, and no check may show the crossing.
            Source::Lease => spent_when_near,
            _ => return,
        };
        for (key, standing) in keys.zip(decision.policies()) {
            let Some(spent) = crossing(standing) else { continue };
            let policy = &standing.policy;
            // A fixed window may end earlier, and a bucket may be full earlier.
            let silent = standing.reset.min(policy.window_length());
            if self.claim(key, policy, now_us, now_us.saturating_add(micros(silent))) {
                let near = NearLimit { policy, key: ObservedKey(key), spent };
                observer.on_event(&Event(EventKind::NearLimit(near)));
            }
        }
    }

    /// Whether the key is to be reported under `policy`: it was not reported in the current window, which ends at
    /// `until_us`.
    fn claim(&self, key: &Key, policy: &Policy, now_us: u64, until_us: u64) -> bool {
        let hash = self.hasher.hash_one((key, policy.name_hash()));
        let window_us = micros(policy.window_length());
        let table = self.table.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let index = usize::try_from(hash % SETS as u64).unwrap_or(0);
        // Entries are replaced as a whole, so a poisoned lock is usable.
        let mut set = table[index].lock().unwrap_or_else(PoisonError::into_inner);
        // An end that is further away than a window is from before the store's clock was set back.
        let is_live = |entry: &Reported| (now_us + 1..=now_us.saturating_add(window_us)).contains(&entry.until_us);
        let known = set.iter().position(|entry| entry.hash == hash);
        if known.is_some_and(|at| is_live(&set[at])) {
            return false;
        }
        let first = || set.iter().enumerate().min_by_key(|(_, entry)| entry.until_us).map(|(at, _)| at);
        if let Some(at) = known.or_else(first) {
            set[at] = Reported { hash, until_us };
        }
        true
    }
}

/// What was spent after a charge that has taken it to the policy's near limit, or `None`.
fn spent_at_crossing(standing: &PolicyDecision) -> Option<u64> {
    let spent = spent_when_near(standing)?;
    (spent.saturating_sub(standing.cost) < standing.policy.near_units()).then_some(spent)
}

/// What was spent after a charge, if that is at the policy's near limit or above.
fn spent_when_near(standing: &PolicyDecision) -> Option<u64> {
    let PolicyDecision { policy, cost, available, would_deny, .. } = standing;
    let spent = policy.capacity().saturating_sub(*available);
    (spent >= policy.near_units() && *cost > 0 && !would_deny).then_some(spent)
}
