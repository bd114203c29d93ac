//! What the costs and policies of a file do not fit: policies that no request is charged under, which code may charge,
//! so they are warnings and not mistakes; exemptions of every path; and costs above the capacity of their policies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::{collections::HashSet, sync::Arc};

use http::{Method, Request, Uri};

use super::entry::{Entry, Named};
use super::mistake::{Mistakes, Place, advice};
use super::{fields, section::Read};
use crate::middleware::{Route, RouteTable};
use crate::{observe::Warning, policy::Policy};

/// The warnings about a file, and whether they have been reported. Clones of the limits report them once.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings {
    all: Vec<Warning>,
    are_reported: Arc<AtomicBool>,
}

impl Warnings {
    pub(super) fn new(all: Vec<Warning>) -> Self {
        Self { all, are_reported: Arc::default() }
    }

    pub(super) fn all(&self) -> &[Warning] {
        &self.all
    }

    /// The warnings, for the first caller only.
    pub(super) fn unreported(&self) -> &[Warning] {
        if self.are_reported.swap(true, Ordering::Relaxed) { &[] } else { &self.all }
    }
}

/// Two files with the same warnings are equal, whether or not one has been reported.
impl PartialEq for Warnings {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

/// Finds the policies that no request is charged under, and that the file does not leave to code.
pub(super) fn find(
    known: &[Named],
    in_code: &HashSet<String>,
    default: &Entry<'_>,
    routes: &[(String, Entry<'_>)],
) -> Vec<Warning> {
    let exempt: Vec<&str> = routes.iter().filter(|(_, route)| route.is_exempt).map(|(name, _)| name.as_str()).collect();
    let exemption = exempts_everything(&exempt);
    let mut charged = HashSet::new();
    let limited = routes.iter().map(|(_, route)| route).filter(|route| !route.is_exempt);
    for route in limited {
        charged.extend(charges(route, Some(default)));
    }
    let of_default: HashSet<&str> = charges(default, None).collect();
    let warning = |(name, _): &Named| {
        let is_of_default = of_default.contains(name.as_str());
        let is_charged = charged.contains(name.as_str()) || is_of_default && exemption.is_none();
        let exempt = exemption.filter(|_| is_of_default);
        (!is_charged && !in_code.contains(name)).then(|| Warning::uncharged_policy(name, exempt))
    };
    known.iter().filter_map(warning).collect()
}

/// The names of the policies that an entry charges.
fn charges<'a>(entry: &'a Entry<'_>, default: Option<&'a Entry<'_>>) -> impl Iterator<Item = &'a str> {
    let own = if entry.policies.is_absent() { default } else { None }.unwrap_or(entry);
    let names = own.policies.as_ref().into_iter().flatten().map(|(name, _)| name.as_str());
    names.filter(move |name| effective(entry, default, name).is_none_or(|(cost, _)| cost > 0))
}

/// The methods of the table, without those that inherit from GET, and without TRACE: hardly a server answers it, so a
/// file that leaves nothing else to be limited limits nothing.
const METHODS: [Method; 6] = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS];

/// The first exempt route with `{*rest}` if the exempt routes cover every path, with every method but TRACE. All
/// `routes` are exempt and valid.
pub(super) fn exempts_everything<'a>(routes: &[&'a str]) -> Option<&'a str> {
    let widest = routes.iter().find(|route| route.contains("{*"))?;
    let mut table = RouteTable::default();
    for route in routes {
        table.insert(route, Route::exempt().into_settings()).ok()?;
    }
    // A segment that is no text of any route, so that only parameters cover it. A path with more segments than any
    // route is covered by `{*rest}` alone.
    let longest = routes.iter().map(|route| route.len()).max().unwrap_or(0);
    let first =
        ('a'..='z').find(|first| !routes.iter().any(|route| route.contains(&format!("/{first}")))).unwrap_or('~');
    let segment = format!("/{first}{}", "-".repeat(longest));
    let deepest = routes.iter().map(|route| route.matches('/').count()).max().unwrap_or(0) + 1;
    let covered = |depth: usize, method: &Method| {
        let path = if depth == 0 { "/".to_owned() } else { segment.repeat(depth) };
        let mut parts = Request::new(()).into_parts().0;
        parts.method = method.clone();
        parts.uri = path.parse::<Uri>().ok()?;
        table.resolve(&parts, |_, _| false).map(|settings| settings.exempt)
    };
    let all = (0..=deepest).all(|depth| METHODS.iter().all(|method| covered(depth, method) == Some(true)));
    all.then_some(widest)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_that_leave_no_request_are_found() {
        let by_method: Vec<String> = METHODS.iter().map(|method| format!("{method} /{{*rest}}")).collect();
        let by_method: Vec<&str> = by_method.iter().map(String::as_str).collect();
        let all: [&[&str]; 4] = [&["/{*rest}"], &["/healthz", "/{*all}"], &["/", "/{first}/{*rest}"], &by_method];
        for routes in all {
            assert!(exempts_everything(routes).is_some_and(|route| route.contains("{*")), "{routes:?}");
        }
        let some: [&[&str]; 6] =
            [&[], &["/"], &["/{id}"], &["/static/{*rest}"], &["/{first}/{*rest}"], &by_method[1..]];
        for routes in some {
            assert_eq!(exempts_everything(routes), None, "{routes:?}");
        }
        let up_to_two_segments = ["/", "/{a}", "/{a}/{b}", "/static/{*rest}"];
        assert_eq!(exempts_everything(&up_to_two_segments), None);
    }
}
