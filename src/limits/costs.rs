//! Compares the costs of a file with the capacities of its policies.

use super::{
    entry::{Entry, Named},
    fields,
    mistake::{Mistakes, Place},
    section::Read,
    suggest::advice,
};
use crate::policy::Policy;

/// Adds the mistakes in the costs of the default.
pub(super) fn check_default(default: &Entry<'_>, mistakes: &mut Mistakes) {
    if let Read::Value(policies) = &default.policies {
        check(default, None, policies, mistakes);
    }
}

/// Adds the mistakes in the costs of a route.
pub(super) fn check_route(route: &Entry<'_>, default: &Entry<'_>, mistakes: &mut Mistakes) {
    let policies = if route.policies.is_absent() { &default.policies } else { &route.policies };
    if let (Read::Value(policies), false) = (policies, route.is_exempt) {
        check(route, Some(default), policies, mistakes);
    }
}

fn check(entry: &Entry<'_>, default: Option<&Entry<'_>>, policies: &[&Named], mistakes: &mut Mistakes) {
    for (name, _) in &entry.costs {
        if !policies.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            let known = policies.iter().map(|(known, _)| known.as_str());
            let message = || format!("the request is charged under no policy of this name; {}", advice(name, known));
            mistakes.add_with(entry.place.at(fields::COSTS.name).at(name), message);
        }
    }
    let mut too_high: Vec<Place> = Vec::new();
    let mut charges_nothing = true;
    let has_enforced = policies.iter().any(|(_, policy)| policy.as_ref().is_some_and(|policy| !policy.is_shadow()));
    for (name, policy) in policies {
        let Some((cost, place)) = effective(entry, default, name) else {
            charges_nothing = false;
            continue;
        };
        // A shadow policy refuses nothing, so it limits no request that an enforced policy does not limit.
        let is_limit = !has_enforced || policy.as_ref().is_none_or(|policy| !policy.is_shadow());
        charges_nothing &= cost == 0 || !is_limit;
        let (Some(policy), Some(place)) = (policy, place) else { continue };
        if policy.check_cost(cost).is_err() && !too_high.contains(&place) {
            mistakes.add(place.clone(), above(cost, policy));
            too_high.push(place);
        }
    }
    // Costs that the default alone chooses are mistakes of the default.
    let chosen =
        [(!entry.costs.is_empty()).then_some(&fields::COSTS), has(&entry.policies).then_some(&fields::CHARGED)];
    if let (true, Some(field)) = (charges_nothing, chosen.into_iter().flatten().next()) {
        let message = "every cost is 0, so nothing would be limited; give at least one policy a cost of 1 or more";
        mistakes.add(entry.place.at(field.name), message);
    }
}

/// The cost under a policy, and the place that chooses it; no place if the default alone does. `None` if the cost
/// cannot be read.
pub(super) fn effective(entry: &Entry<'_>, default: Option<&Entry<'_>>, name: &str) -> Option<(u64, Option<Place>)> {
    let plain = |entry: &Entry<'_>| entry.place.at(fields::COST.name);
    let policies = || has(&entry.policies).then(|| entry.place.at(fields::CHARGED.name));
    if let Some((written, cost)) = entry.cost_of(name) {
        return Some((*cost, Some(entry.place.at(fields::COSTS.name).at(written))));
    }
    if let Some((_, cost)) = default.and_then(|default| default.cost_of(name)) {
        return Some((*cost, policies()));
    }
    match (&entry.cost, default.map(|default| &default.cost)) {
        (Read::Value(cost), _) => Some((*cost, Some(plain(entry)))),
        (Read::Absent, Some(Read::Value(cost))) => Some((*cost, policies())),
        (Read::Absent, Some(Read::Absent) | None) => Some((1, policies())),
        (Read::Wrong, _) | (Read::Absent, Some(Read::Wrong)) => None,
    }
}

fn has<T>(read: &Read<T>) -> bool {
    !read.is_absent()
}

fn above(cost: u64, policy: &Policy) -> String {
    let (capacity, name) = (policy.capacity(), policy.name());
    match (policy.shards(), policy.burst()) {
        (1, Some(_)) => format!("{cost} is above the burst {capacity} of policy {name:?}"),
        (1, None) => format!("{cost} is above the limit {capacity} of policy {name:?}"),
        (shards, _) => {
            format!("{cost} is above the {capacity} units of the smallest of {shards} shards of policy {name:?}")
        }
    }
}
