//! Reads `rate_limit`.

use std::{sync::Arc, time::Duration};

use tollgate::FailurePolicy;

use super::fields::Fields;
use super::mistake::{Mistakes, Place};
use super::rule::{Limit, Settings, UNITS};
use super::yaml::{Node, Value};

/// What `rate_limit` says.
pub(super) struct RateLimit {
    /// `None`: unlimited.
    pub(super) limit: Option<Limit>,
    pub(super) name: Option<String>,
    pub(super) replaces: Vec<String>,
}

/// Reads the map. `policy_name` is the name of the policy if the limit has none that fields of responses can have;
/// `has_local`: whether the service has a local fallback.
pub(super) fn read(node: &Node, policy_name: &str, has_local: bool, mistakes: &mut Mistakes) -> Option<RateLimit> {
    let before = mistakes.0.len();
    let mut fields = Fields::of(node, "rate_limit", mistakes)?;
    let name = name(&mut fields, "name", mistakes);
    let replaces = replaces(&mut fields, name.as_deref(), mistakes);
    let is_unlimited = fields.truth("unlimited", mistakes);
    let limit = if is_unlimited { None } else { limit(&mut fields, policy_name, &name, has_local, mistakes) };
    if is_unlimited {
        for field in ["unit", "requests_per_unit", "window", "concurrent"] {
            if let Some(node) = fields.take(field) {
                mistakes.add(node.place, format!("{field} beside unlimited; remove one of them"));
            }
        }
    }
    fields.end(mistakes);
    (mistakes.0.len() == before && (is_unlimited || limit.is_some())).then_some(RateLimit { limit, name, replaces })
}

fn limit(
    fields: &mut Fields<'_>,
    policy_name: &str,
    name: &Option<String>,
    has_local: bool,
    mistakes: &mut Mistakes,
) -> Option<Limit> {
    let before = mistakes.0.len();
    let place = fields.place;
    let concurrent = fields.number("concurrent", u64::from(u32::MAX), mistakes);
    let window = window(fields, concurrent.is_some(), mistakes);
    let units = fields.number("requests_per_unit", u64::from(u32::MAX), mistakes);
    let algorithm = fields.word("algorithm", "log, counter, fixed, token-bucket", mistakes);
    let burst = fields.number("burst", u64::from(u32::MAX), mistakes);
    let resolution = fields.duration("resolution", mistakes);
    let lease = fields.number("lease", u64::from(u32::MAX), mistakes);
    let record = fields.truth("record", mistakes);
    let hold_ttl = fields.duration("hold_ttl", mistakes);
    let on_store_failure = on_store_failure(fields, has_local, mistakes);
    let units = match (concurrent, units) {
        (Some(_), Some(_)) => {
            mistakes.add(place, "requests_per_unit beside concurrent; remove one of them");
            return None;
        }
        (Some(0), None) => {
            mistakes.add(place, "concurrent: 0 admits nothing; write 1 or more");
            return None;
        }
        (Some(slots), None) => slots,
        (None, Some(units)) => units,
        (None, None) if mistakes.0.len() > before => return None,
        (None, None) => {
            mistakes.add(place, "requests_per_unit is missing; 0 refuses everything, unlimited: true nothing");
            return None;
        }
    };
    let is_concurrent = concurrent.is_some();
    if is_concurrent && (algorithm.is_some() || burst.is_some() || resolution.is_some() || lease.is_some() || record) {
        mistakes.add(place, "concurrent has no other field than hold_ttl, name, replaces and on_store_failure");
    }
    if record && hold_ttl.is_some() {
        mistakes.add(place, "record beside hold_ttl; a settlement charges what was spent, so remove record");
    }
    if mistakes.0.len() > before {
        return None;
    }
    let settings = Settings {
        policy_name: name.clone().filter(|name| is_token(name)).unwrap_or_else(|| policy_name.to_owned()),
        shown_name: name.clone().unwrap_or_default(),
        algorithm: algorithm.unwrap_or_default(),
        burst,
        resolution,
        lease,
        hold_ttl,
        is_concurrent,
        record,
        on_store_failure,
    };
    let limit = Limit::new(units, window?, &Arc::new(settings));
    limit.map_err(|error| mistakes.add(place, error.to_string())).ok()
}

/// The window: `unit` times `unit_multiplier`, or `window`.
fn window(fields: &mut Fields<'_>, is_concurrent: bool, mistakes: &mut Mistakes) -> Option<Duration> {
    let place = fields.place;
    let unit = fields.text("unit", mistakes);
    let times = fields.number("unit_multiplier", u64::from(u32::MAX), mistakes);
    let window = fields.duration("window", mistakes);
    if is_concurrent {
        if unit.is_some() || window.is_some() || times.is_some() {
            mistakes.add(place, "concurrent has no window; remove unit, unit_multiplier and window");
        }
        return Some(Duration::from_secs(1));
    }
    match (unit, window) {
        (Some((place, _)), Some(_)) => mistakes.add(place, "unit beside window; remove one of them"),
        (None, Some(_)) if times.is_some() => mistakes.add(place, "unit_multiplier needs a unit"),
        (None, Some(window)) => return Some(window),
        (None, None) => mistakes.add(place, "unit is missing; write second, minute, hour, day, week, month or year"),
        (Some((place, word)), None) => match UNITS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word)) {
            Some(_) if times == Some(0) => mistakes.add(place, "unit_multiplier is 0; write 1 or more"),
            Some((_, _, seconds)) => return Some(Duration::from_secs(seconds.saturating_mul(times.unwrap_or(1)))),
            None => {
                let message = format!("unit is {word:?}; write second, minute, hour, day, week, month or year");
                mistakes.add(place, message);
            }
        },
    }
    None
}

/// Defaults to closed: the service answers UNAVAILABLE, and the setting `failure_mode_deny` of Envoy decides.
fn on_store_failure(fields: &mut Fields<'_>, has_local: bool, mistakes: &mut Mistakes) -> FailurePolicy {
    let place = fields.place;
    let policy = fields.word("on_store_failure", "open, closed, local", mistakes).unwrap_or(FailurePolicy::Closed);
    if policy == FailurePolicy::Local && !has_local {
        mistakes
            .add(place, "on_store_failure: local needs the number of instances; start the service with --instances");
    }
    policy
}

fn name(fields: &mut Fields<'_>, field: &'static str, mistakes: &mut Mistakes) -> Option<String> {
    let (place, name) = fields.text(field, mistakes)?;
    if name.is_empty() {
        mistakes.add(place, "the name is empty");
    }
    Some(name.to_owned())
}

fn replaces(fields: &mut Fields<'_>, own: Option<&str>, mistakes: &mut Mistakes) -> Vec<String> {
    let Some(node) = fields.take("replaces") else { return Vec::new() };
    let Value::List(items) = &node.value else {
        mistakes.add(node.place, format!("replaces is {}; write a list of names", node.kind()));
        return Vec::new();
    };
    let mut read = |item: &Node| {
        let mut fields = Fields::of(item, "an entry of replaces", mistakes)?;
        let name = name(&mut fields, "name", mistakes);
        match &name {
            None => mistakes.add(item.place, "an entry of replaces without a name"),
            Some(name) if own == Some(name) => mistakes.add(item.place, "a limit cannot replace itself"),
            Some(_) => {}
        }
        fields.end(mistakes);
        name
    };
    items.iter().filter_map(|item| read(item)).collect()
}

/// Whether fields of responses can have the name, as `Policy::new` wants it.
fn is_token(name: &str) -> bool {
    tollgate::Policy::blocked(name).is_ok()
}

/// The name of a policy from the keys of a path: letters, digits, dots and dashes, at most 64.
pub(super) fn policy_name(path: &[String]) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '-' };
    let name: String = path.join(".").chars().map(keep).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("r.{name}") };
    name.chars().take(64).collect()
}

/// Where a mistake of a whole file is.
pub(super) const START: Place = Place { line: 1, column: 1 };
