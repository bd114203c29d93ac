//! The synchronous half of a request: from the request head to its check.

use http::request::Parts;

use super::config::{Config, KeyedPolicies};
use crate::{
    check::Check,
    cost::RequestCost,
    error::ConfigError,
    failure::FailurePolicy,
    key::{Key, KeyError, KeyExtractor, MissingKey},
    observe::{Exempt, ExemptCause, RefusalReason},
    policy::{Policy, PolicySource},
};

/// The next step of a request.
pub(super) enum Prepared {
    /// Forward the exempt request without a check.
    Exempt,
    /// Check the charges. The failure policy applies if the store gives no verdict.
    Check(FailurePolicy),
    /// Refuse the request without a check.
    Refused(RefusalReason),
}

impl<K: KeyExtractor, R> Config<K, R> {
    /// Adds the charges of a request to `check`, and reports exempt and refused requests.
    pub(super) fn prepare(&self, parts: &Parts, check: &mut Check) -> Prepared {
        self.fill(parts, check).unwrap_or_else(|reason| {
            self.limiter.report_refusal(&reason);
            Prepared::Refused(reason)
        })
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

    /// As [`prepare`](Self::prepare), but returns a refusal without a report.
    fn fill(&self, parts: &Parts, check: &mut Check) -> Result<Prepared, RefusalReason> {
        let route = self.routes.resolve(parts);
        if let Some(observer) = self.limiter.listener() {
            self.routes.check_unmatched(route, observer);
        }
        if route.is_some_and(|route| route.exempt) {
            refuse_denied(&*self.first.extractor, parts)?;
            self.others.iter().try_for_each(|other| refuse_denied(&*other.extractor, parts))?;
            return Ok(self.exempt(ExemptCause::Route));
        }
        let cost = route.and_then(|route| route.cost.as_ref()).unwrap_or(&self.cost);
        let cost = RequestCost::new(parts, cost, route.map(|route| &route.named_costs), &self.named_costs);
        let policies = route.and_then(|route| route.policies.as_deref());
        let mut exempt = self.charge(&self.first, policies, parts, check, &cost)?;
        for other in &self.others {
            // If several keys are exempt, a missing key is the reported cause, because it may be a mistake in the
            // setup.
            let cause = self.charge(other, None, parts, check, &cost)?;
            exempt = if exempt == Some(ExemptCause::MissingKey) { exempt } else { cause.or(exempt) };
        }
        if let Some(cause) = exempt.filter(|_| check.charges().is_empty()) {
            return Ok(self.exempt(cause));
        }
        Ok(Prepared::Check(route.and_then(|route| route.failure).unwrap_or(self.failure)))
    }

    /// Reports an exempt request.
    fn exempt(&self, cause: ExemptCause) -> Prepared {
        if let Some(observer) = self.limiter.listener() {
            observer.on_exempt(&Exempt::new(cause));
        }
        Prepared::Exempt
    }

    /// Adds the charges of one key to `check`. `policies` are the policies of the route, which replace the policies of
    /// the key. Returns the cause if the request is exempt from the policies of this key.
    fn charge<E: KeyExtractor + ?Sized>(
        &self,
        keyed: &KeyedPolicies<E>,
        policies: Option<&dyn PolicySource>,
        parts: &Parts,
        check: &mut Check,
        cost: &RequestCost<'_>,
    ) -> Result<Option<ExemptCause>, RefusalReason> {
        let extracted = keyed.extractor.extract(parts);
        let missing = match &extracted {
            Err(error) if error.is_missing() => keyed.extractor.missing_key(parts).unwrap_or(self.missing),
            _ => self.missing,
        };
        if let Some(observer) = self.limiter.listener() {
            keyed.setup_check.inspect(|| keyed.extractor.origin(), missing, parts, &extracted, observer);
        }
        if !matches!(extracted, Ok(Some(_))) {
            refuse_denied(&*keyed.extractor, parts)?;
        }
        let key = match extracted {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(Some(ExemptCause::Key)),
            Err(error) => match missing {
                MissingKey::Exempt if error.is_missing() => return Ok(Some(ExemptCause::MissingKey)),
                MissingKey::ShareOneBucket if error.is_missing() => Key::reserved(Key::MISSING),
                _ => return Err(RefusalReason::Key(error)),
            },
        };
        let source = policies.unwrap_or(&*keyed.policies);
        match source.fixed() {
            Some(policies) => add_charges(check, key, policies, cost),
            None => {
                let policies = source.policies(parts, &key);
                add_charges(check, key, &policies.0, cost)
            }
        }
        .map(|()| None)
    }
}

/// Refuses a request that no policy limits if its address is denied, or if a malformed header hides its address.
fn refuse_denied<E: KeyExtractor + ?Sized>(extractor: &E, parts: &Parts) -> Result<(), RefusalReason> {
    extractor.check_denied(parts).or_else(KeyError::unless_missing).map_err(RefusalReason::Key)
}

#[inline]
fn add_charges(check: &mut Check, key: Key, policies: &[Policy], cost: &RequestCost<'_>) -> Result<(), RefusalReason> {
    let Some((last, others)) = policies.split_last() else {
        return Err(RefusalReason::Misconfigured(ConfigError::NoPolicy));
    };
    for policy in others {
        add_charge(check, key.clone(), policy, cost)?;
    }
    add_charge(check, key, last, cost)
}

#[inline]
fn add_charge(check: &mut Check, key: Key, policy: &Policy, cost: &RequestCost<'_>) -> Result<(), RefusalReason> {
    let cost = cost.under(policy);
    if cost > policy.capacity() {
        let (policy, limit) = (policy.name().to_owned(), policy.capacity());
        return Err(RefusalReason::CostAboveLimit { policy, cost, limit });
    }
    check.push_distinct(key, policy.clone(), cost).map_err(RefusalReason::Misconfigured)
}
