//! The same traffic under other algorithms, in memory: what each would have answered.

use std::{collections::HashMap, time::Duration};

use tollgate::observe::{Event, Fingerprint};
use tollgate::{Algorithm, Check, Key, Limiter, MemoryStore, Policy};

use crate::page::history::is_replayable;
use crate::page::record::{self, Beside};

const COMPARED: [Algorithm; 3] = [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];

pub(super) struct Comparison {
    limiter: Limiter,
    /// For each policy of the server, the same limit under each algorithm.
    policies: HashMap<String, [Policy; COMPARED.len()]>,
}

impl Default for Comparison {
    fn default() -> Self {
        Self { limiter: Limiter::new(MemoryStore::new()), policies: HashMap::new() }
    }
}

impl Comparison {
    /// Charges the check of a decision under each algorithm; `keys` are those of its charges. Empty if there is nothing
    /// to compare.
    pub(super) fn judge(&mut self, event: &Event<'_>, keys: &[Fingerprint]) -> Vec<Beside> {
        let has_decision = event.decision().is_some();
        if !has_decision || !event.charges().all(|(_, policy, _)| is_replayable(policy)) {
            return Vec::new();
        }
        let judged = COMPARED.into_iter().enumerate();
        judged.filter_map(|(index, algorithm)| self.judge_by(index, algorithm, event, keys)).collect()
    }

    fn judge_by(
        &mut self,
        index: usize,
        algorithm: Algorithm,
        event: &Event<'_>,
        keys: &[Fingerprint],
    ) -> Option<Beside> {
        let mut check: Option<Check> = None;
        for ((_, policy, cost), key) in event.charges().zip(keys) {
            let policy = &self.policies_beside(policy)?[index];
            check = Some(match check {
                None => Check::new(Key::from(*key), policy, cost),
                Some(check) => check.and(Key::from(*key), policy, cost),
            });
        }
        let decision = self.limiter.try_check_all(check?).ok()?;
        Some(Beside { algorithm, is_allowed: decision.is_allowed(), retry_after: decision.retry_after() })
    }

    /// The policies in place of `policy`, made anew after a change of its limit.
    fn policies_beside(&mut self, policy: &Policy) -> Option<&[Policy; COMPARED.len()]> {
        let window = policy.window()?;
        let is_current =
            |made: &[Policy; COMPARED.len()]| (made[0].limit(), made[0].window()) == (policy.limit(), Some(window));
        if !self.policies.get(policy.name()).is_some_and(is_current) {
            let made = COMPARED.map(|algorithm| beside(policy, window, algorithm));
            let [Some(log), Some(counter), Some(fixed)] = made else { return None };
            self.policies.insert(policy.name().to_owned(), [log, counter, fixed]);
        }
        self.policies.get(policy.name())
    }
}

fn beside(policy: &Policy, window: Duration, algorithm: Algorithm) -> Option<Policy> {
    let name = format!("{}-{}", policy.name(), record::algorithm(algorithm));
    let beside = Policy::new(name, policy.limit(), window).ok()?;
    Some(beside.with_algorithm(algorithm).with_denials_counted(policy.denials_counted()))
}
