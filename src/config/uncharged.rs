//! Policies that no request is charged under. Code may charge them, so they are warnings and not mistakes.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
};

use super::{
    costs, coverage,
    entry::{Entry, Named},
};
use crate::observe::Warning;

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
    let exemption = coverage::exempts_everything(&exempt);
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
