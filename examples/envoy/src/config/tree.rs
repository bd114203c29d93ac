//! The descriptors of a domain, and which of them the entries of a request match.

use std::{collections::HashMap, sync::Arc};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate::Key;

use super::{pattern::Pattern, rule::Rule};

/// One level: the descriptors by key.
#[derive(Debug, Default)]
pub(super) struct Level(pub(super) HashMap<String, Values>);

/// The descriptors of one key. A value wins over a pattern, which wins over the key alone.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) exact: HashMap<String, Branch>,
    /// In the order of the file, of which the first that matches wins.
    pub(super) patterns: Vec<(Pattern, Branch)>,
    pub(super) any: Option<Box<Branch>>,
}

/// One descriptor of the configuration.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) rule: Option<Arc<Rule>>,
    pub(super) below: Level,
    /// Whether all values of the pattern spend one count.
    pub(super) shares: bool,
    /// Whether metrics have the value.
    pub(super) value_to_metric: bool,
}

/// A rule that a descriptor matches.
#[derive(Clone, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) rule: &'a Arc<Rule>,
    /// Who is charged: the domain and the entries.
    pub(crate) key: Key,
    /// The rule's name in metrics if it has values of the request.
    pub(crate) detail: Option<String>,
}

impl Level {
    /// The rule for exactly these entries. A level that matches is not left again: a deeper one that does not match
    /// means no rule, as in the reference.
    pub(super) fn find<'a>(&'a self, domain: &str, entries: &[&Entry]) -> Option<Found<'a>> {
        let mut level = self;
        let mut parts = Vec::with_capacity(1 + 2 * entries.len());
        parts.push(Key::from(domain));
        let mut path: Vec<(&Entry, Step<'_>)> = Vec::with_capacity(entries.len());
        let mut last = None;
        for entry in entries {
            let step = level.0.get(&entry.key)?.step(&entry.value)?;
            parts.push(Key::from(entry.key.as_str()));
            // A joined key is none that a value can have.
            parts.push(match step.pattern.filter(|_| step.branch.shares) {
                Some(pattern) => Key::join([Key::from(pattern.text())]),
                None => Key::from(entry.value.as_str()),
            });
            path.push((entry, step));
            (last, level) = (step.branch.rule.as_ref(), &step.branch.below);
        }
        let rule = last?;
        let shows = rule.detailed_metric || path.iter().any(|(_, step)| step.branch.value_to_metric);
        let detail = shows.then(|| detail(rule, &path));
        Some(Found { rule, key: Key::join(parts), detail })
    }
}

impl Level {
    /// These entries in the order of the levels that lead to a rule: the first order that does.
    pub(super) fn in_order<'b>(&self, entries: &'b [Entry]) -> Option<Vec<&'b Entry>> {
        let mut ordered: Vec<&Entry> = entries.iter().collect();
        self.order(&mut ordered).then_some(ordered)
    }

    /// Puts the entries into this order. Tries each of them as the first one, so at most eight are wise.
    fn order(&self, entries: &mut [&Entry]) -> bool {
        for at in 0..entries.len() {
            entries.swap(0, at);
            let [first, others @ ..] = &mut *entries else { return false };
            if let Some(Step { branch, .. }) = self.0.get(&first.key).and_then(|values| values.step(&first.value)) {
                let is_rule = others.is_empty() && branch.rule.is_some();
                if is_rule || branch.below.order(others) {
                    return true;
                }
            }
            entries.swap(0, at);
        }
        false
    }
}

/// The descriptor that one entry matches.
#[derive(Clone, Copy)]
struct Step<'a> {
    branch: &'a Branch,
    pattern: Option<&'a Pattern>,
    is_exact: bool,
}

impl Values {
    fn step(&self, value: &str) -> Option<Step<'_>> {
        if let Some(branch) = self.exact.get(value) {
            return Some(Step { branch, pattern: None, is_exact: true });
        }
        let matching = self.patterns.iter().find(|(pattern, _)| pattern.matches(value));
        if let Some((pattern, branch)) = matching {
            return Some(Step { branch, pattern: Some(pattern), is_exact: false });
        }
        self.any.as_deref().map(|branch| Step { branch, pattern: None, is_exact: false })
    }
}

/// The name of a path with the values that metrics are to have. A shared pattern stays a pattern.
fn detail(rule: &Rule, path: &[(&Entry, Step<'_>)]) -> String {
    let part = |(entry, step): &(&Entry, Step<'_>)| {
        let shared = step.pattern.filter(|_| step.branch.shares);
        match (shared, step.pattern) {
            (Some(pattern), _) => format!("{}_{}", entry.key, pattern.text()),
            _ if step.is_exact || step.branch.value_to_metric || rule.detailed_metric => {
                format!("{}_{}", entry.key, entry.value)
            }
            (None, Some(pattern)) => format!("{}_{}", entry.key, pattern.text()),
            (None, None) => entry.key.clone(),
        }
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}
