//! Costs: how many units a request is charged.

use std::{fmt, sync::Arc};

use http::request::Parts;

use crate::policy::Policy;

/// The cost of a request in units: a number, or a closure that computes one from each request.
#[derive(Clone)]
pub(crate) struct Cost(CostKind);

#[derive(Clone)]
enum CostKind {
    Computed(Arc<dyn Fn(&Parts) -> u64 + Send + Sync>),
    Fixed(u64),
}

impl Cost {
    pub(crate) const ONE: Self = Self::of_each(1);

    /// The same cost for each request.
    pub(crate) const fn of_each(units: u64) -> Self {
        Self(CostKind::Fixed(units))
    }

    pub(crate) fn computed(cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self(CostKind::Computed(Arc::new(cost)))
    }

    pub(crate) fn of(&self, parts: &Parts) -> Units {
        match &self.0 {
            CostKind::Computed(cost) => Units { units: cost(parts), is_computed: true },
            CostKind::Fixed(cost) => Units { units: *cost, is_computed: false },
        }
    }

    /// The cost, if it is the same for every request.
    pub(crate) fn fixed(&self) -> Option<u64> {
        match self.0 {
            CostKind::Computed(_) => None,
            CostKind::Fixed(cost) => Some(cost),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CostKind::Computed(_) => f.write_str("computed"),
            CostKind::Fixed(cost) => cost.fmt(f),
        }
    }
}

/// Costs of a layer or a route for single policies, by policy name. They replace the plain cost of the layer or route.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedCosts(Vec<(String, Cost)>);

impl NamedCosts {
    pub(crate) const NONE: Self = Self(Vec::new());

    /// The cost for this policy. Ignores the case of its name, as a check does when it compares two policies. A policy
    /// that is counted under another name has the cost of its own name, because a file of limits knows no other one.
    pub(crate) fn get(&self, policy: &Policy) -> Option<&Cost> {
        let of = |name: &str| self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, cost)| cost);
        policy.listed_as().and_then(of).or_else(|| of(policy.name()))
    }

    /// Sets the cost for the policy of this name, and replaces an earlier cost.
    pub(crate) fn set(&mut self, name: &str, cost: Cost) {
        self.0.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.0.push((name.to_owned(), cost));
    }

    /// These costs, and those of `base` under policies that have none here.
    #[cfg(feature = "serde")]
    pub(crate) fn over(self, mut base: Self) -> Self {
        self.0.into_iter().for_each(|(name, cost)| base.set(&name, cost));
        base
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// The units of a request under one policy.
#[derive(Clone, Copy)]
pub(crate) struct Units {
    pub(crate) units: u64,
    /// Whether a closure has returned them, which reads what the client has sent.
    pub(crate) is_computed: bool,
}

/// The cost of one request under each policy.
pub(crate) struct RequestCost<'a> {
    parts: &'a Parts,
    plain: Units,
    /// The named costs of the route, then those of the layer. `None` if neither has named costs, the usual case.
    named: Option<[&'a NamedCosts; 2]>,
}

impl<'a> RequestCost<'a> {
    pub(crate) fn new(parts: &'a Parts, plain: &Cost, named: [&'a NamedCosts; 2]) -> Self {
        let is_plain = named.into_iter().all(NamedCosts::is_empty);
        Self { parts, plain: plain.of(parts), named: (!is_plain).then_some(named) }
    }

    /// The cost under a policy: its named cost, or else the plain cost.
    #[inline]
    pub(crate) fn under(&self, policy: &Policy) -> Units {
        let named = self.named.and_then(|costs| costs.into_iter().find_map(|costs| costs.get(policy)));
        named.map_or(self.plain, |cost| cost.of(self.parts))
    }
}
