//! What a layer knows, and the synchronous half of a request: from its head to the check that it owes.

use std::{fmt, sync::Arc, time::Duration};

use http::{Response, request::Parts};

use crate::{
    check::Check,
    cost::{Cost, NamedCosts, RequestCost},
    error::ConfigError,
    failure::FailurePolicy,
    headers::Writer,
    key::{Key, KeyError, KeyExtractor, MissingKey},
    limiter::Limiter,
    middleware::{
        route::{RouteTable, Settings},
        setup_checks::{KeySetupCheck, StackSetupCheck},
    },
    observe::{Exempt, ExemptCause, RefusalReason},
    policy::{Policy, PolicySource},
    rejection::{Denial, ProblemJson, Reason, Rejection},
};

/// Everything that one layer, its services and their futures share.
pub(crate) struct Config<K, R> {
    pub(crate) limiter: Limiter,
    pub(crate) subject: Subject<K>,
    pub(crate) others: Vec<Subject<dyn KeyExtractor>>,
    pub(crate) cost: Cost,
    pub(crate) named_costs: NamedCosts,
    pub(crate) failure: FailurePolicy,
    pub(crate) missing: MissingKey,
    pub(crate) routes: RouteTable,
    pub(super) stack: Arc<StackSetupCheck>,
    pub(crate) rejection: Arc<R>,
    pub(crate) writer: Writer,
    pub(crate) outage_retry_after: Duration,
}

/// Who is charged, and under what.
pub(crate) struct Subject<K: ?Sized> {
    pub(crate) extractor: Arc<K>,
    pub(crate) policies: Arc<dyn PolicySource>,
    setup_check: Arc<KeySetupCheck>,
}

impl<K> Subject<K> {
    pub(crate) fn new(key: K, policies: impl PolicySource) -> Self {
        Self { extractor: Arc::new(key), policies: Arc::new(policies), setup_check: Arc::default() }
    }
}

impl Subject<dyn KeyExtractor> {
    pub(crate) fn any(key: impl KeyExtractor, policies: impl PolicySource) -> Self {
        let Subject { extractor, policies, setup_check } = Subject::new(key, policies);
        Self { extractor, policies, setup_check }
    }
}

/// What is to be done with a request.
pub(crate) enum Step {
    /// Nothing limits it.
    Pass,
    /// It owes something; the policy is for the case that the store cannot answer.
    Check(FailurePolicy),
    /// It cannot be judged.
    Refuse(RefusalReason),
}

impl<K> Config<K, ProblemJson> {
    pub(crate) fn new(limiter: Limiter, policies: impl PolicySource, key: K) -> Self {
        Self {
            limiter,
            subject: Subject::new(key, policies),
            others: Vec::new(),
            cost: Cost::ONE,
            named_costs: NamedCosts::default(),
            failure: FailurePolicy::default(),
            missing: MissingKey::default(),
            routes: RouteTable::default(),
            stack: Arc::default(),
            rejection: Arc::new(ProblemJson::default()),
            writer: Writer::default(),
            outage_retry_after: Denial::OUTAGE_RETRY_AFTER,
        }
    }
}

impl<K, R> Config<K, R> {
    pub(crate) fn with_rejection<T>(self, rejection: T) -> Config<K, T> {
        Config {
            limiter: self.limiter,
            subject: self.subject,
            others: self.others,
            cost: self.cost,
            named_costs: self.named_costs,
            failure: self.failure,
            missing: self.missing,
            routes: self.routes,
            stack: self.stack,
            rejection: Arc::new(rejection),
            writer: self.writer,
            outage_retry_after: self.outage_retry_after,
        }
    }

    /// Finds, before the first request, what could never pass or would count in one place.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let layer = Settings::default();
        for settings in std::iter::once(&layer).chain(self.routes.all()) {
            if settings.exempt {
                continue;
            }
            if settings.failure.unwrap_or(self.failure) == FailurePolicy::Local && !self.limiter.has_fallback() {
                return Err(ConfigError::LocalWithoutFallback);
            }
            let known = || self.sources(settings).filter_map(PolicySource::fixed);
            if known().any(<[Policy]>::is_empty) {
                return Err(ConfigError::NoPolicy);
            }
            let policies: Vec<&Policy> = known().flatten().collect();
            for (index, policy) in policies.iter().enumerate() {
                if policies[..index].iter().any(|other| other.name().eq_ignore_ascii_case(policy.name())) {
                    return Err(ConfigError::DuplicatePolicy { policy: policy.name().to_owned() });
                }
                let named = settings.named_costs.get(policy).or_else(|| self.named_costs.get(policy));
                if let Some(cost) = named.or(settings.cost.as_ref()).unwrap_or(&self.cost).fixed() {
                    policy.check_cost(cost)?;
                }
            }
        }
        Ok(())
    }

    /// Checks that requests with `settings` are counted under a policy called `policy`. Where policies are chosen per
    /// request, any name may be one of theirs.
    pub(crate) fn require_policy(&self, policy: &str, settings: &Settings) -> Result<(), ConfigError> {
        let Some(known) = self.sources(settings).map(PolicySource::fixed).collect::<Option<Vec<_>>>() else {
            return Ok(());
        };
        let known: Vec<&str> = known.into_iter().flatten().map(Policy::name).collect();
        if known.iter().any(|known| known.eq_ignore_ascii_case(policy)) {
            return Ok(());
        }
        let known = known.into_iter().map(str::to_owned).collect();
        Err(ConfigError::UnknownPolicy { policy: policy.to_owned(), known })
    }

    /// Where the policies of requests with `settings` come from: the first key's, then those of the others.
    fn sources<'a>(&'a self, settings: &'a Settings) -> impl Iterator<Item = &'a dyn PolicySource> {
        let first = settings.policies.as_deref().unwrap_or(&*self.subject.policies);
        std::iter::once(first).chain(self.others.iter().map(|subject| &*subject.policies))
    }

    /// Builds the response to a refused request.
    pub(crate) fn refuse<B>(&self, parts: &Parts, mut denial: Denial) -> Response<B>
    where
        R: Rejection<B>,
    {
        if let Reason::StoreUnavailable = denial.reason() {
            denial.set_retry_after(self.outage_retry_after);
        }
        denial.respond(&*self.rejection, &self.writer, parts)
    }
}

impl<K: KeyExtractor, R> Config<K, R> {
    /// Reads all that `check` needs from the request's head; the borrow ends here.
    pub(crate) fn begin(&self, parts: &Parts, check: &mut Check) -> Step {
        self.fill(parts, check).unwrap_or_else(|reason| {
            self.limiter.report_refusal(&reason);
            Step::Refuse(reason)
        })
    }

    /// Looks, in the first requests, for layers around this one that have charged the same.
    #[inline]
    pub(crate) fn warn_on_double_charge(&self, parts: &mut Parts, check: &Check) {
        if let Some(observer) = self.limiter.listener()
            && !self.stack.is_over()
        {
            self.stack.inspect(parts, &self.limiter, check, observer);
        }
    }

    fn fill(&self, parts: &Parts, check: &mut Check) -> Result<Step, RefusalReason> {
        let route = self.routes.resolve(parts);
        if let Some(observer) = self.limiter.listener() {
            self.routes.check_unmatched(route, observer);
        }
        if route.is_some_and(|route| route.exempt) {
            refuse_denied(&*self.subject.extractor, parts)?;
            self.others.iter().try_for_each(|subject| refuse_denied(&*subject.extractor, parts))?;
            return Ok(self.exempt(ExemptCause::Route));
        }
        let cost = route.and_then(|route| route.cost.as_ref()).unwrap_or(&self.cost);
        let cost = RequestCost::new(parts, cost, route.map(|route| &route.named_costs), &self.named_costs);
        let policies = route.and_then(|route| route.policies.as_deref());
        let mut exempt = self.charge(&self.subject, policies, parts, check, &cost)?;
        for subject in &self.others {
            // A missing key is reported rather than other causes: it may be an oversight.
            let other = self.charge(subject, None, parts, check, &cost)?;
            exempt = if exempt == Some(ExemptCause::MissingKey) { exempt } else { other.or(exempt) };
        }
        if let Some(cause) = exempt.filter(|_| check.charges().is_empty()) {
            return Ok(self.exempt(cause));
        }
        Ok(Step::Check(route.and_then(|route| route.failure).unwrap_or(self.failure)))
    }

    fn exempt(&self, cause: ExemptCause) -> Step {
        if let Some(observer) = self.limiter.listener() {
            observer.on_exempt(&Exempt::new(cause));
        }
        Step::Pass
    }

    /// Charges one subject, under the route's policies if it has some, unless the request is exempt from it.
    fn charge<E: KeyExtractor + ?Sized>(
        &self,
        subject: &Subject<E>,
        policies: Option<&dyn PolicySource>,
        parts: &Parts,
        check: &mut Check,
        cost: &RequestCost<'_>,
    ) -> Result<Option<ExemptCause>, RefusalReason> {
        let extracted = subject.extractor.extract(parts);
        let missing = match &extracted {
            Err(error) if error.is_missing() => subject.extractor.missing_key(parts).unwrap_or(self.missing),
            _ => self.missing,
        };
        if let Some(observer) = self.limiter.listener() {
            subject.setup_check.inspect(|| subject.extractor.origin(), missing, parts, &extracted, observer);
        }
        if !matches!(extracted, Ok(Some(_))) {
            refuse_denied(&*subject.extractor, parts)?;
        }
        let key = match (extracted, missing) {
            (Ok(Some(key)), _) => key,
            (Ok(None), _) => return Ok(Some(ExemptCause::Key)),
            (Err(error), MissingKey::Exempt) if error.is_missing() => return Ok(Some(ExemptCause::MissingKey)),
            (Err(error), MissingKey::ShareOneBucket) if error.is_missing() => Key::reserved(Key::MISSING),
            (Err(error), _) => return Err(RefusalReason::Key(error)),
        };
        let source = policies.unwrap_or(&*subject.policies);
        match source.fixed() {
            Some(policies) => owe(check, key, policies, cost),
            None => {
                let policies = source.policies(parts, &key);
                owe(check, key, &policies.0, cost)
            }
        }
        .map(|()| None)
    }
}

/// Refuses a request whose key was not looked for, or not found, if it must not pass in any case. One that hides whose
/// it is must not either.
fn refuse_denied<E: KeyExtractor + ?Sized>(extractor: &E, parts: &Parts) -> Result<(), RefusalReason> {
    extractor.check_denied(parts).or_else(KeyError::unless_missing).map_err(RefusalReason::Key)
}

#[inline]
fn owe(check: &mut Check, key: Key, policies: &[Policy], cost: &RequestCost<'_>) -> Result<(), RefusalReason> {
    let Some((last, others)) = policies.split_last() else {
        return Err(RefusalReason::Misconfigured(ConfigError::NoPolicy));
    };
    for policy in others {
        owe_one(check, key.clone(), policy, cost)?;
    }
    owe_one(check, key, last, cost)
}

#[inline]
fn owe_one(check: &mut Check, key: Key, policy: &Policy, cost: &RequestCost<'_>) -> Result<(), RefusalReason> {
    let cost = cost.under(policy);
    if cost > policy.capacity() {
        let (policy, limit) = (policy.name().to_owned(), policy.capacity());
        return Err(RefusalReason::CostAboveLimit { policy, cost, limit });
    }
    check.push_distinct(key, policy.clone(), cost).map_err(RefusalReason::Misconfigured)
}

impl<K, R> Clone for Config<K, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            subject: self.subject.clone(),
            others: self.others.clone(),
            cost: self.cost.clone(),
            named_costs: self.named_costs.clone(),
            failure: self.failure,
            missing: self.missing,
            routes: self.routes.clone(),
            stack: Arc::clone(&self.stack),
            rejection: Arc::clone(&self.rejection),
            writer: self.writer,
            outage_retry_after: self.outage_retry_after,
        }
    }
}

impl<K: ?Sized> Clone for Subject<K> {
    fn clone(&self) -> Self {
        let Self { extractor, policies, setup_check } = self;
        Self { extractor: Arc::clone(extractor), policies: Arc::clone(policies), setup_check: Arc::clone(setup_check) }
    }
}

impl<K, R> fmt::Debug for Config<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limiter,
            subject,
            others,
            cost,
            named_costs,
            failure,
            missing,
            routes,
            writer,
            outage_retry_after,
            ..
        } = self;
        f.debug_struct("Config")
            .field("limiter", limiter)
            .field("policies", &subject.policies.fixed())
            .field("other_subjects", &others.len())
            .field("cost", cost)
            .field("named_costs", named_costs)
            .field("failure", failure)
            .field("missing", missing)
            .field("routes", routes)
            .field("writer", writer)
            .field("outage_retry_after", outage_retry_after)
            .finish_non_exhaustive()
    }
}
