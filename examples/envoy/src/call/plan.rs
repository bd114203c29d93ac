//! What a call asks for: each of its descriptors as a charge, a question, a settlement or nothing.

use std::{sync::Arc, time::Duration};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry};
use envoy_types::pb::envoy::{service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit};
use tollgate::{Check, FailurePolicy, Key, Policy};
use tonic::Status;

use super::role::Role;
use crate::config::rule::{Limit, Rule, Settings, UNITS};
use crate::config::{Config, Found};
use crate::holds::Settlement;

/// A call, ready to be judged.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// One for each descriptor, in order.
    pub(crate) parts: Vec<Part>,
    pub(crate) charges: Vec<Charged>,
}

/// What one descriptor asks for.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) ask: Ask,
    pub(crate) rule: Option<Arc<Rule>>,
    /// The rule's name in metrics, if it has values of the request.
    pub(crate) detail: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Ask {
    /// No rule, or one that another rule of the call replaces.
    Nothing,
    Unlimited,
    /// The charge of this number. Several descriptors may share one.
    Charge {
        number: usize,
        units: u64,
    },
    /// As `Charge`, and the units are held under this name.
    Hold {
        number: usize,
        units: u64,
        name: Key,
    },
    /// Ends a hold.
    Settle {
        name: Key,
        settlement: Settlement,
    },
    /// Gives units back.
    Credit {
        key: Key,
        limit: Limit,
        units: u64,
    },
    /// The setup is wrong, so nothing passes, unless the rule is in shadow mode.
    Refuse {
        limit: Limit,
        is_shadow: bool,
        advice: &'static str,
    },
}

/// Units that have to fit.
#[derive(Debug)]
pub(crate) struct Charged {
    pub(crate) key: Key,
    pub(crate) limit: Limit,
    pub(crate) kind: Kind,
    /// 0: whether a unit would fit, and nothing is charged.
    pub(crate) units: u64,
    pub(crate) is_held: bool,
}

/// Whether a charge that does not fit refuses the call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Enforced,
    Shadow,
    /// The call is refused if no charge of this kind fits.
    Quota,
}

/// The most entries of a descriptor.
const MOST_ENTRIES: usize = 64;

impl Plan {
    pub(crate) fn new(config: &Config, request: &RateLimitRequest) -> Result<Self, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request;
        if domain.is_empty() {
            return Err(Status::invalid_argument("the domain is empty; set it in the filter"));
        }
        if descriptors.is_empty() {
            return Err(Status::invalid_argument("the call has no descriptor"));
        }
        if descriptors.len() > Check::MAX_CHARGES {
            let message = format!("{} descriptors; a call has at most {}", descriptors.len(), Check::MAX_CHARGES);
            return Err(Status::invalid_argument(message));
        }
        if let Some(descriptor) = descriptors.iter().find(|descriptor| descriptor.entries.len() > MOST_ENTRIES) {
            let message = format!("{} entries; a descriptor has at most {MOST_ENTRIES}", descriptor.entries.len());
            return Err(Status::invalid_argument(message));
        }
        let mut plan = Self::default();
        let found: Vec<_> = descriptors.iter().map(|descriptor| find(config, domain, descriptor)).collect();
        let replaced = |rule: &Rule| {
            let others = found.iter().filter_map(|(found, _)| Some(&found.as_ref()?.rule.replaces));
            rule.name.as_ref().is_some_and(|name| others.flatten().any(|other| other == name))
        };
        for (descriptor, (found, role)) in descriptors.iter().zip(&found) {
            let hits = match descriptor.hits_addend {
                Some(hits) => hits.value,
                None => (*hits_addend).max(1).into(),
            };
            let overridden = overridden(config, domain, descriptor, found.as_ref())?;
            let rule = found.as_ref().map(|found| Arc::clone(found.rule));
            let detail = found.as_ref().and_then(|found| found.detail.clone());
            let ask = match (role, found, overridden) {
                // By its name alone: the rule may have changed since the hold was made.
                (Role::Settle(id), ..) => settle(domain, descriptor, id),
                (_, _, Some((key, limit))) => plan.ask(key, limit, Kind::Enforced, (domain, descriptor, *role), hits),
                (_, None, None) => Ask::Nothing,
                (_, Some(found), None) if replaced(found.rule) => Ask::Nothing,
                (_, Some(found), None) => match &found.rule.limit {
                    None => Ask::Unlimited,
                    Some(limit) => {
                        let kind = match **found.rule {
                            Rule { shadow_mode: true, .. } => Kind::Shadow,
                            Rule { quota_mode: true, .. } => Kind::Quota,
                            _ => Kind::Enforced,
                        };
                        plan.ask(found.key.clone(), limit.clone(), kind, (domain, descriptor, *role), hits)
                    }
                },
            };
            plan.parts.push(Part { ask, rule, detail });
        }
        Ok(plan)
    }

    fn ask(
        &mut self,
        key: Key,
        limit: Limit,
        kind: Kind,
        (domain, descriptor, role): (&str, &RateLimitDescriptor, Role<'_>),
        hits: u64,
    ) -> Ask {
        // No more fits in any case, and no sum overflows.
        let units = hits.min(Policy::MAX_LIMIT + 1);
        let is_concurrent = limit.settings.is_concurrent;
        let has_holds = limit.settings.hold_ttl.is_some() || is_concurrent;
        let is_shadow = kind == Kind::Shadow;
        match role {
            Role::Both => Ask::Refuse { limit, is_shadow, advice: "a descriptor has both a hold and a settle entry" },
            _ if descriptor.is_negative_hits && (is_concurrent || limit.policy.limit() == 0) => Ask::Nothing,
            _ if descriptor.is_negative_hits => Ask::Credit { key, limit, units },
            Role::Hold(id) if has_holds => {
                let units = units.max(1);
                let number = self.charge(key, limit, kind, units, true);
                Ask::Hold { number, units, name: hold_name(domain, &descriptor.entries, id) }
            }
            _ if is_concurrent && units > 0 => {
                Ask::Refuse { limit, is_shadow, advice: "a concurrency limit needs a descriptor with a hold entry" }
            }
            _ => {
                let units = if matches!(role, Role::Hold(_)) { units.max(1) } else { units };
                Ask::Charge { number: self.charge(key, limit, kind, units, false), units }
            }
        }
    }

    /// Adds a charge, or its units to those of the same count.
    fn charge(&mut self, key: Key, limit: Limit, kind: Kind, units: u64, is_held: bool) -> usize {
        let same = |charged: &Charged| charged.key == key && charged.limit.policy == limit.policy;
        if let Some(number) = self.charges.iter().position(same) {
            let charged = &mut self.charges[number];
            charged.units = charged.units.saturating_add(units);
            charged.is_held |= is_held;
            return number;
        }
        self.charges.push(Charged { key, limit, kind, units, is_held });
        self.charges.len() - 1
    }

    /// What happens if the store gives no verdict: the strictest of the policies of all rules that may refuse.
    pub(crate) fn on_store_failure(&self) -> FailurePolicy {
        let refusing = self.charges.iter().filter(|charged| charged.kind != Kind::Shadow);
        let policies = refusing.map(|charged| charged.limit.settings.on_store_failure);
        policies.fold(FailurePolicy::Open, |one, other| match (one, other) {
            (FailurePolicy::Open, other) | (other, FailurePolicy::Open) => other,
            (FailurePolicy::Local, other) | (other, FailurePolicy::Local) => other,
            _ => FailurePolicy::Closed,
        })
    }
}

/// The end of a hold. If there is none, because its rule had no holds, the estimate was charged.
fn settle(domain: &str, descriptor: &RateLimitDescriptor, id: &str) -> Ask {
    let settlement = match (descriptor.hits_addend, descriptor.is_negative_hits) {
        (None, _) => Settlement::Whole,
        (Some(hits), true) => Settlement::GiveBack(hits.value),
        (Some(hits), false) => Settlement::Spent(hits.value.min(Policy::MAX_LIMIT + 1)),
    };
    Ask::Settle { name: hold_name(domain, &descriptor.entries, id), settlement }
}

/// The rule of a descriptor: of all its entries, or of those beside `hold` and `settle`.
fn find<'a>(config: &'a Config, domain: &str, descriptor: &'a RateLimitDescriptor) -> (Option<Found<'a>>, Role<'a>) {
    let entries: Vec<&Entry> = descriptor.entries.iter().collect();
    let found = config.find(domain, &entries);
    let role = Role::of(&entries);
    if found.is_some() || matches!(role, Role::None) {
        return (found, Role::None);
    }
    let others: Vec<&Entry> = entries.into_iter().filter(|entry| !Role::is_name(&entry.key)).collect();
    (config.find(domain, &others), role)
}

/// The count and the limit of a descriptor with a limit of its own. Another limit is another count.
fn overridden(
    config: &Config,
    domain: &str,
    descriptor: &RateLimitDescriptor,
    found: Option<&Found<'_>>,
) -> Result<Option<(Key, Limit)>, Status> {
    let Some(limit) = descriptor.limit.filter(|_| config.has_domain(domain)) else { return Ok(None) };
    let unit = RateLimitUnit::try_from(limit.unit).unwrap_or(RateLimitUnit::Unknown);
    let seconds = UNITS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(unit.as_str_name()));
    let Some((_, _, seconds)) = seconds else {
        return Err(Status::invalid_argument("the limit of a descriptor has no known unit"));
    };
    let mine = || {
        let on_store_failure = FailurePolicy::Closed;
        let settings = Settings { policy_name: "override".to_owned(), on_store_failure, ..Settings::default() };
        Limit::new(0, Duration::from_secs(1), &Arc::new(settings))
    };
    let base = match found.and_then(|found| found.rule.limit.clone()) {
        Some(limit) => Ok(limit),
        None => mine(),
    };
    let limit_of = |base: Limit| base.with_units(limit.requests_per_unit, Duration::from_secs(*seconds));
    let new = base.and_then(limit_of).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let key = match found {
        Some(found) => found.key.clone(),
        None => hold_name(domain, &descriptor.entries, ""),
    };
    let own = Key::join([Key::from(limit.requests_per_unit), Key::from(limit.unit)]);
    Ok(Some((Key::join([key, own]), new)))
}

/// The name of a hold: the domain and all other entries as they are, so that no tenant names the hold of another.
fn hold_name(domain: &str, entries: &[Entry], id: &str) -> Key {
    let others = entries.iter().filter(|entry| !Role::is_name(&entry.key));
    let parts = others.flat_map(|entry| [Key::from(entry.key.as_str()), Key::from(entry.value.as_str())]);
    Key::join([Key::from(domain), Key::join(parts), Key::from(id)])
}
