//! The same traffic under other algorithms, in memory: what each would have answered.

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};
use tollgate::{
    Algorithm, Check, Limiter, MemoryStore, Policy,
    observe::{Event, Fingerprint},
};

use crate::page::record;

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
    /// Charges the check of a decision under each algorithm. Empty if there is nothing to compare: units that are held
    /// are settled later, and a concurrency limit has no window.
    pub(super) fn judge(&mut self, event: &Event<'_>) -> Vec<Value> {
        let has_decision = event.decision().is_some();
        let is_comparable = |policy: &Policy| policy.window().is_some() && policy.holds().is_none();
        if !has_decision || !event.charges().all(|(_, policy, _)| is_comparable(policy)) {
            return Vec::new();
        }
        let judged = COMPARED.into_iter().enumerate();
        judged.filter_map(|(index, algorithm)| self.judge_by(index, algorithm, event)).collect()
    }

    fn judge_by(&mut self, index: usize, algorithm: Algorithm, event: &Event<'_>) -> Option<Value> {
        let mut check: Option<Check> = None;
        for (key, policy, cost) in event.charges() {
            let policy = &self.policies_beside(policy)?[index];
            let key = Fingerprint::from(key).to_string();
            check = Some(match check {
                None => Check::new(key, policy, cost),
                Some(check) => check.and(key, policy, cost),
            });
        }
        let decision = self.limiter.try_check_all(check?).ok()?;
        Some(json!({
            "algorithm": record::algorithm(algorithm),
            "allowed": decision.is_allowed(),
            "available": decision.available(),
            "retry_after": decision.retry_after().map(|wait| wait.as_secs_f64()),
        }))
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
