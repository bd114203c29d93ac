//! What a file of limits leaves unlimited: policies that no request is charged under, which code may charge, so they
//! are warnings and not mistakes; and exemptions of every path.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Method, Request, Uri};

use super::{
    costs,
    entry::{Entry, Named},
};
use crate::{
    middleware::{Route, RouteTable},
    observe::Warning,
};

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
    names.filter(move |name| costs::effective(entry, default, name).is_none_or(|(cost, _)| cost > 0))
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
    }
}
