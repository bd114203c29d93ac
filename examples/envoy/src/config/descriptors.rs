//! Reads a domain and its descriptors.

use std::sync::Arc;

use super::rate_limit::{self, START};
use super::tree::{Branch, Level};
use super::yaml::{self, Node, Value};
use super::{fields::Fields, metadata, mistake::Mistakes, pattern::Pattern, rule::Rule};
use crate::meters::RuleMeters;

/// The most descriptors of a file: aliases can repeat others.
const MOST: usize = 100_000;

/// What the descriptors of one file share.
struct File<'a> {
    domain: &'a str,
    has_local: bool,
    left: usize,
}

/// Reads a file. Returns its domain, also if some descriptors have mistakes.
pub(super) fn domain(text: &str, has_local: bool, mistakes: &mut Mistakes) -> Option<(String, Level)> {
    let document = match yaml::read(text) {
        Ok(Some(document)) => document,
        Ok(None) => {
            mistakes.add(START, "the file is empty; write domain and descriptors");
            return None;
        }
        Err((place, message)) => {
            mistakes.add(place, message);
            return None;
        }
    };
    let mut fields = Fields::of(&document, "the file", mistakes)?;
    let name = fields.text("domain", mistakes).map(|(_, name)| name).unwrap_or_default();
    if name.is_empty() {
        mistakes.add(document.place, "domain is missing or empty; it is the domain in the filter of Envoy");
    }
    let mut file = File { domain: name, has_local, left: MOST };
    let level = file.level(&mut fields, &[], mistakes);
    fields.end(mistakes);
    (!name.is_empty()).then(|| (name.to_owned(), level))
}

impl File<'_> {
    /// Reads the field `descriptors`. `path` is the name of the descriptor above in metrics.
    fn level(&mut self, fields: &mut Fields<'_>, path: &[(String, String)], mistakes: &mut Mistakes) -> Level {
        let mut level = Level::default();
        let Some(node) = fields.take("descriptors") else { return level };
        let Value::List(items) = &node.value else {
            mistakes.add(node.place, format!("descriptors is {}; write a list", node.kind()));
            return level;
        };
        for item in items {
            if self.left == 0 {
                mistakes.add(item.place, format!("more than {MOST} descriptors"));
                return level;
            }
            self.left -= 1;
            self.descriptor(item, path, &mut level, mistakes);
        }
        level
    }

    fn descriptor(&mut self, node: &Node, path: &[(String, String)], level: &mut Level, mistakes: &mut Mistakes) {
        let Some(mut fields) = Fields::of(node, "a descriptor", mistakes) else { return };
        let key = fields.text("key", mistakes).map(|(_, key)| key).unwrap_or_default();
        if key.is_empty() {
            mistakes.add(node.place, "key is missing or empty");
        }
        let value = fields.text("value", mistakes).map(|(_, value)| value).filter(|value| !value.is_empty());
        let shown = value.map_or_else(|| key.to_owned(), |value| format!("{key}_{value}"));
        let path = [path, &[(key.to_owned(), shown)]].concat();
        let pattern = value.and_then(Pattern::new);
        let shares = fields.truth("share_threshold", mistakes);
        if shares && pattern.is_none() {
            mistakes.add(node.place, "share_threshold needs a value with a *");
        }
        let value_to_metric = fields.truth("value_to_metric", mistakes);
        let rule = self.rule(&mut fields, &path, mistakes);
        let below = self.level(&mut fields, &path, mistakes);
        fields.end(mistakes);
        if key.is_empty() {
            return;
        }
        let branch = Branch { rule: rule.map(Arc::new), below, shares, value_to_metric };
        let values = level.0.entry(key.to_owned()).or_default();
        let is_new = match (value, pattern) {
            (Some(_), Some(pattern)) => {
                let is_new = values.patterns.iter().all(|(other, _)| other.text() != pattern.text());
                values.patterns.push((pattern, branch));
                is_new
            }
            (Some(value), None) => values.exact.insert(value.to_owned(), branch).is_none(),
            (None, _) => values.any.replace(Box::new(branch)).is_none(),
        };
        if !is_new {
            let value = value.map_or_else(String::new, |value| format!(" and value {value}"));
            mistakes.add(node.place, format!("key {key}{value} is here twice"));
        }
    }

    /// The rule of a descriptor; `None` if it has no `rate_limit`, or a wrong one.
    fn rule(&self, fields: &mut Fields<'_>, path: &[(String, String)], mistakes: &mut Mistakes) -> Option<Rule> {
        let place = fields.place;
        let rate_limit = fields.take("rate_limit");
        let [shadow_mode, quota_mode, detailed_metric] =
            ["shadow_mode", "quota_mode", "detailed_metric"].map(|name| fields.truth(name, mistakes));
        let metadata = fields.take("metadata").and_then(|node| metadata::read(node, mistakes));
        if shadow_mode && quota_mode {
            mistakes.add(place, "quota_mode beside shadow_mode, which refuses nothing; remove one of them");
        }
        let (keys, shown): (Vec<_>, Vec<_>) = path.iter().cloned().unzip();
        let policy_name = rate_limit::policy_name(&keys);
        let read = rate_limit::read(rate_limit?, &policy_name, self.has_local, mistakes)?;
        let rate_limit::RateLimit { limit, name, replaces } = read;
        let is_concurrent = limit.as_ref().is_some_and(|limit| limit.settings.is_concurrent);
        if is_concurrent && quota_mode {
            mistakes.add(place, "quota_mode beside concurrent; remove one of them");
        }
        let meters = RuleMeters::of(self.domain, &shown.join("."));
        Some(Rule { limit, name, replaces, shadow_mode, quota_mode, detailed_metric, metadata, meters })
    }
}
