//! The synchronous half of a request: from the request head to its check, with the charges from its keys, policies and
//! costs.

use http::request::Parts;

use super::config::{Config, KeyExtraction};
use super::rules::Rules;
use crate::cost::{RequestCost, Units};
use crate::key::{Key, KeyError, KeyExtractor, KeyFault, MissingKey};
use crate::observe::{Event, ExemptCause, Other, RefusalEvent, RefusalReason, Warning};
use crate::policy::{Policy, PolicySource, known_policies};
use crate::{check::Check, error::ConfigError, failure::FailurePolicy, limiter::Limiter};

/// The next step of a request.
pub(super) enum Prepared {
    /// Forward the exempt request without a check.
    Exempt,
    /// Check the charges. The failure policy applies if the store gives no verdict.
    Check(FailurePolicy),
    /// Refuse the request without a check.
    Refused(Refusal),
}

impl<K: KeyExtractor, R> Config<K, R> {
    /// Adds the charges of a request to `check`, and reports exempt and refused requests.
    ///
    /// `can_hold` says whether the responses of the service can carry a hold.
    pub(super) fn prepare(&self, rules: &Rules, parts: &Parts, check: &mut Check, can_hold: fn() -> bool) -> Prepared {
        let filled = self.fill(rules, parts, check, can_hold);
        let filled = if rules.is_shadow() {
            filled.or_else(|reason| self.pass_in_shadow(rules, parts, &reason))
        } else {
            filled
        };
        filled.unwrap_or_else(|reason| {
            self.limiter.report(&Event::of_refusal(RefusalEvent::new(&reason, rules.observed(parts))));
            Prepared::Refused(reason)
        })
    }

    /// Lets a request of a shadow layer pass that the layer would refuse, unless its address is denied.
    #[cold]
    fn pass_in_shadow(&self, rules: &Rules, parts: &Parts, reason: &RefusalReason) -> Result<Prepared, Refusal> {
        self.refuse_denied(parts)?;
        self.limiter.report(&Event::of_shadow_refusal(RefusalEvent::new(reason, rules.observed(parts))));
        Ok(self.exempt(ExemptCause::Shadow))
    }

    /// Warns, in the first requests, if a layer around this one has charged the same policy and key.
    #[inline]
    pub(super) fn warn_on_double_charge(&self, parts: &mut Parts, check: &Check) {
        if let Some(observer) = self.limiter.listener()
            && !self.stack.is_over()
        {
            self.stack.inspect(parts, &self.limiter, check, observer);
        }
    }

    /// Warns once that nothing is held for a request, whatever its bill says, although the layer settles. Policies that
    /// are known before the first request have been validated. A blocked policy charges nothing.
    #[inline]
    fn warn_on_nothing_to_settle(&self, rules: &Rules, policies: &dyn PolicySource, check: &Check) {
        if !rules.nothing_to_settle.is_due() || known_policies(policies).is_some() {
            return;
        }
        let mut charged = check.charges().iter().map(|charge| &charge.policy).filter(|policy| !policy.is_blocked());
        if let (Some(observer), Some(policy)) = (self.limiter.listener(), charged.next())
            && !check.charges().iter().any(|charge| charge.policy.holds().is_some())
            && rules.nothing_to_settle.claim()
        {
            observer.on_event(&Event::of_warning(Warning::nothing_to_settle(policy.name())));
        }
    }

    /// Warns once that the layer refuses nothing. A layer may stay in shadow mode by mistake.
    #[cold]
    fn warn_on_only_shadow(&self, rules: &Rules, check: &Check) {
        if let (Some(observer), Some(charge)) = (self.limiter.listener(), check.charges().first())
            && rules.only_shadow.claim()
        {
            observer.on_event(&Event::of_warning(Warning::only_shadow(charge.policy.name())));
        }
    }

    /// As [`prepare`](Self::prepare), but returns a refusal without a report.
    fn fill(
        &self,
        rules: &Rules,
        parts: &Parts,
        check: &mut Check,
        can_hold: fn() -> bool,
    ) -> Result<Prepared, Refusal> {
        self.validate(rules).map_err(|mistake| misconfigured(mistake.clone()))?;
        let route = rules.routes.resolve(parts, |one, other| rules.is_cheaper(one, other));
        if let Some(observer) = self.limiter.listener() {
            rules.routes.check_unmatched(route, observer);
        }
        let settings = route.unwrap_or(&rules.layer);
        if settings.exempt {
            self.refuse_denied(parts)?;
            return Ok(self.exempt(ExemptCause::Route));
        }
        let named_costs = [&settings.named_costs, &rules.layer.named_costs];
        let cost = RequestCost::new(parts, rules.plain_cost(settings), named_costs);
        let policies = rules.first_policies(settings);
        let holding = Holding { limiter: &self.limiter, settles: self.settling.is_some(), can_hold };
        let mut charges = Charges::new(check, &cost, rules.is_shadow(), holding);
        let mut exempt = self.charge_or_pass(rules, &self.first, policies, parts, &mut charges)?;
        for (other, policies) in self.others.iter().zip(&rules.others) {
            // If several keys are exempt, a missing key is the reported cause, because it may be a mistake in the
            // setup.
            let cause = self.charge_or_pass(rules, other, &**policies, parts, &mut charges)?;
            exempt = if exempt == Some(ExemptCause::MissingKey) { exempt } else { cause.or(exempt) };
        }
        if let Some(cause) = exempt.filter(|_| charges.is_empty()) {
            return Ok(self.exempt(cause));
        }
        if check.is_shadow() {
            self.warn_on_only_shadow(rules, check);
        }
        if self.settling.is_some() {
            self.warn_on_nothing_to_settle(rules, policies, check);
        }
        Ok(Prepared::Check(rules.failure(settings)))
    }

    /// Refuses a request whose address is denied for one of the keys.
    fn refuse_denied(&self, parts: &Parts) -> Result<(), Refusal> {
        refuse_denied(&*self.first.extractor, parts)?;
        self.others.iter().try_for_each(|other| refuse_denied(&*other.extractor, parts))
    }

    /// Reports an exempt request.
    fn exempt(&self, cause: ExemptCause) -> Prepared {
        if let Some(observer) = self.limiter.listener() {
            observer.on_event(&Event::other(Other::Exemption(cause)));
        }
        Prepared::Exempt
    }

    /// As [`charge`](Self::charge), but if all policies of the key are known to be shadow policies, nothing refuses the
    /// request except a denied address.
    #[inline]
    fn charge_or_pass<E: KeyExtractor + ?Sized>(
        &self,
        rules: &Rules,
        key: &KeyExtraction<E>,
        policies: &dyn PolicySource,
        parts: &Parts,
        charges: &mut Charges<'_>,
    ) -> Result<Option<ExemptCause>, Refusal> {
        self.charge(rules, key, policies, parts, charges).or_else(|reason| {
            let known = known_policies(policies).filter(|known| !known.list.is_empty());
            if charges.are_shadow() || !known.is_some_and(|known| known.list.iter().all(Policy::is_shadow)) {
                return Err(reason);
            }
            refuse_denied(&*key.extractor, parts)?;
            self.limiter.report(&Event::of_shadow_refusal(RefusalEvent::new(&reason, rules.observed(parts))));
            Ok(Some(ExemptCause::Shadow))
        })
    }

    /// Adds the charges of one key under `policies`. Returns the cause if the request is exempt from these policies.
    fn charge<E: KeyExtractor + ?Sized>(
        &self,
        rules: &Rules,
        key: &KeyExtraction<E>,
        policies: &dyn PolicySource,
        parts: &Parts,
        charges: &mut Charges<'_>,
    ) -> Result<Option<ExemptCause>, Refusal> {
        let extracted = key.extractor.extract(parts);
        let missing = if key.is_optional { MissingKey::Exempt } else { self.missing };
        if let Some(observer) = self.limiter.listener() {
            key.setup_check.inspect(|| key.extractor.origin(), missing, parts, &extracted, observer);
        }
        if !matches!(extracted, Ok(Some(_))) {
            refuse_denied(&*key.extractor, parts)?;
        }
        let key = match extracted {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(Some(ExemptCause::Key)),
            Err(error) => match missing {
                MissingKey::Exempt if error.is_missing() => return Ok(Some(ExemptCause::MissingKey)),
                MissingKey::ShareOneKey if error.is_missing() => Key::reserved(Key::MISSING),
                _ => return Err(unusable(error)),
            },
        };
        match policies.fixed() {
            Some(policies) => charges.add(key, policies),
            None => {
                let policies = policies.policies_in(parts, &key, rules.origin.as_deref());
                if policies.is_unlimited {
                    return Ok(Some(ExemptCause::Unlimited));
                }
                // Those of every request have been judged with the layer.
                policies.iter().try_for_each(Policy::validate).map_err(misconfigured)?;
                match policies.are_alternatives {
                    true => charges.add_first_of(&key, &policies),
                    false => charges.add(key, &policies),
                }
            }
        }
        .map(|()| None)
    }
}

/// Refuses a request that no policy limits if its address is denied, or if a malformed header hides its address.
fn refuse_denied<E: KeyExtractor + ?Sized>(extractor: &E, parts: &Parts) -> Result<(), Refusal> {
    extractor.check_denied(parts).or_else(KeyError::unless_missing).map_err(unusable)
}

/// The refusal of a request whose key cannot be used.
fn unusable(error: KeyError) -> Refusal {
    match error {
        KeyError(KeyFault::Misconfigured(mistake)) => misconfigured(mistake),
        error => RefusalReason::Key(error).into(),
    }
}

/// Why a request is refused. Boxed, so that the results of other requests are small.
pub(super) type Refusal = Box<RefusalReason>;

/// Adds the charges of a request to its check.
pub(super) struct Charges<'a> {
    check: &'a mut Check,
    cost: &'a RequestCost<'a>,
    /// Whether all policies act as shadow policies.
    shadow: bool,
    holding: Holding<'a>,
}

/// Which charges of a layer are holds.
pub(super) struct Holding<'a> {
    pub(super) limiter: &'a Limiter,
    /// Whether the layer settles what it holds.
    pub(super) settles: bool,
    /// Whether the responses of the service can carry a hold.
    pub(super) can_hold: fn() -> bool,
}

impl Holding<'_> {
    /// The units that a charge under a policy with holds holds; `None` if it is no hold.
    #[cold]
    fn units(&self, policy: &Policy, cost: Units) -> Result<Option<u64>, ConfigError> {
        if !self.settles && !policy.is_concurrent() {
            return Ok(None);
        }
        // Without a hold, nothing can be settled. So an estimate of 0 that a client has sent must hold a unit, or the
        // request would be free whatever its bill says. A fixed cost of 0 is the decision of the service.
        let least = u64::from(self.settles && cost.is_computed);
        let units = cost.units.max(least);
        if units == 0 {
            return Ok(None);
        }
        if !self.limiter.has_holds() {
            return Err(ConfigError::store_without_holds());
        }
        if !(self.can_hold)() {
            let name = policy.name();
            let message = format!(
                "policy {name:?} has holds until the response body has ended, and the bodies of this service are \
                 not those of axum; call `.with_held_body()` on the layer, which wraps them"
            );
            return Err(ConfigError::new(message).about(name));
        }
        Ok(Some(units))
    }
}

impl<'a> Charges<'a> {
    pub(super) fn new(check: &'a mut Check, cost: &'a RequestCost<'a>, shadow: bool, holding: Holding<'a>) -> Self {
        Self { check, cost, shadow, holding }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.check.charges().is_empty()
    }

    fn are_shadow(&self) -> bool {
        self.shadow
    }

    /// Adds the charges of `key` under `policies`.
    #[inline]
    pub(super) fn add(&mut self, key: Key, policies: &[Policy]) -> Result<(), Refusal> {
        let Some((last, others)) = policies.split_last() else {
            return Err(misconfigured(ConfigError::no_policy()));
        };
        for policy in others {
            self.add_one(key.clone(), policy)?;
        }
        self.add_one(key, last)
    }

    #[inline]
    fn add_one(&mut self, key: Key, policy: &Policy) -> Result<(), Refusal> {
        let policy = if self.shadow { policy.shadow() } else { policy };
        let cost = self.cost.under(policy);
        if is_above_limit(policy, cost) {
            return Err(above_limit(policy, cost));
        }
        self.push(key, policy, cost)
    }

    /// Adds charges of which the first that fits is charged.
    ///
    /// # Errors
    ///
    /// The reason for which the request is refused, such as a cost above all of the limits.
    #[cold]
    fn add_first_of(&mut self, key: &Key, policies: &[Policy]) -> Result<(), Refusal> {
        if policies.len() > 1 && !self.holding.limiter.has_alternatives() {
            return Err(misconfigured(ConfigError::store_without_alternatives()));
        }
        let from = self.check.charges().len();
        let (mut fits, mut refusal) = (false, None);
        for policy in policies {
            let policy = if self.shadow { policy.shadow() } else { policy };
            let cost = self.cost.under(policy);
            match is_above_limit(policy, cost) {
                true => refusal = Some(above_limit(policy, cost)),
                false => fits = true,
            }
            self.push(key.clone(), policy, cost)?;
        }
        match refusal.filter(|_| !fits) {
            Some(refusal) => Err(refusal),
            None => self.check.join_alternatives(from).map_err(misconfigured),
        }
    }

    #[inline]
    fn push(&mut self, key: Key, policy: &Policy, cost: Units) -> Result<(), Refusal> {
        let held = match policy.holds() {
            Some(_) => self.holding.units(policy, cost).map_err(misconfigured)?,
            None => None,
        };
        let units = held.unwrap_or(cost.units);
        self.check.push_distinct(key, policy.clone(), units, held.is_some()).map_err(misconfigured)?;
        if units == 0 {
            self.check.mark_free_request();
        }
        Ok(())
    }
}

fn is_above_limit(policy: &Policy, cost: Units) -> bool {
    cost.units > policy.capacity() && !policy.is_shadow() && !policy.is_blocked()
}

fn above_limit(policy: &Policy, cost: Units) -> Refusal {
    let (policy, limit) = (policy.name().to_owned(), policy.capacity());
    RefusalReason::CostAboveLimit { policy, cost: cost.units, limit }.into()
}

pub(super) fn misconfigured(error: ConfigError) -> Refusal {
    RefusalReason::Misconfigured(error).into()
}
