//! The settings of a layer.

use std::{fmt, sync::Arc, time::Duration};

use http::{Response, request::Parts};

use super::holding::Settling;
use super::rules::{Rules, RulesSource};
use super::setup_checks::{KeySetupCheck, StackSetupCheck};
use crate::key::{KeyExtractor, MissingKey};
use crate::rejection::{Denial, ProblemJson, Reason, Rejection};
use crate::{error::ConfigError, headers::OUTAGE_RETRY_AFTER, limiter::Limiter};

/// The settings that a layer shares with its services and their futures.
pub(crate) struct Config<K, R> {
    pub(super) limiter: Limiter,
    pub(super) rules: RulesSource,
    pub(super) first: KeyExtraction<K>,
    /// The further keys, in the order of their policies in the rules.
    pub(super) others: Vec<KeyExtraction<dyn KeyExtractor>>,
    pub(super) missing: MissingKey,
    pub(super) stack: Arc<StackSetupCheck>,
    pub(super) rejection: Arc<R>,
    pub(super) outage_retry_after: Duration,
    /// Whether responses to allowed requests get the decision.
    pub(super) decision_in_response: bool,
    /// Decides how holds end; `None` if the layer makes no holds but the slots of concurrency limits.
    pub(super) settling: Option<Settling>,
}

/// A key extractor, and the check of its first keys.
pub(super) struct KeyExtraction<K: ?Sized> {
    pub(super) extractor: Arc<K>,
    /// Whether a request without the key is exempt from its policies, whatever the setting of the layer is.
    pub(super) is_optional: bool,
    pub(super) setup_check: Arc<KeySetupCheck>,
}

impl KeyExtraction<dyn KeyExtractor> {
    pub(super) fn of(key: impl KeyExtractor, is_optional: bool) -> Self {
        Self { extractor: Arc::new(key), is_optional, setup_check: Arc::default() }
    }
}

impl<K> Config<K, ProblemJson> {
    pub(super) fn new(limiter: Limiter, rules: RulesSource, key: K) -> Self {
        Self {
            limiter,
            rules,
            first: KeyExtraction { extractor: Arc::new(key), is_optional: false, setup_check: Arc::default() },
            others: Vec::new(),
            missing: MissingKey::default(),
            stack: Arc::default(),
            rejection: Arc::new(ProblemJson::default()),
            outage_retry_after: OUTAGE_RETRY_AFTER,
            decision_in_response: false,
            settling: None,
        }
    }
}

impl<K: KeyExtractor, R> Config<K, R> {
    /// Checks everything that can be checked without a request: once for these rules.
    #[inline]
    pub(super) fn validate<'a>(&self, rules: &'a Rules) -> Result<(), &'a ConfigError> {
        rules.judged.get(|| {
            self.first.extractor.validate()?;
            self.others.iter().try_for_each(|other| other.extractor.validate())?;
            rules.validate(&self.limiter)
        })
    }
}

impl<K, R> Config<K, R> {
    pub(super) fn with_rejection<T>(self, rejection: T) -> Config<K, T> {
        Config {
            limiter: self.limiter,
            rules: self.rules,
            first: self.first,
            others: self.others,
            missing: self.missing,
            stack: self.stack,
            rejection: Arc::new(rejection),
            outage_retry_after: self.outage_retry_after,
            decision_in_response: self.decision_in_response,
            settling: self.settling,
        }
    }

    /// Builds the response to a refused request.
    pub(super) fn refuse<B>(&self, rules: &Rules, parts: &Parts, mut denial: Denial) -> Response<B>
    where
        R: Rejection<B>,
    {
        if denial.reason() == Reason::StoreUnavailable {
            denial.set_retry_after(self.outage_retry_after);
        }
        denial.respond(&*self.rejection, rules.writer(), parts)
    }
}

impl<K, R> Clone for Config<K, R> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            rules: self.rules.clone(),
            first: self.first.clone(),
            others: self.others.clone(),
            missing: self.missing,
            stack: Arc::clone(&self.stack),
            rejection: Arc::clone(&self.rejection),
            outage_retry_after: self.outage_retry_after,
            decision_in_response: self.decision_in_response,
            settling: self.settling.clone(),
        }
    }
}

impl<K: ?Sized> Clone for KeyExtraction<K> {
    fn clone(&self) -> Self {
        let Self { extractor, is_optional, setup_check } = self;
        Self { extractor: Arc::clone(extractor), is_optional: *is_optional, setup_check: Arc::clone(setup_check) }
    }
}

impl<K, R> fmt::Debug for Config<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter, rules, others, missing, outage_retry_after, decision_in_response, settling, .. } = self;
        f.debug_struct("Config")
            .field("limiter", limiter)
            .field("rules", rules)
            .field("other_keys", &others.len())
            .field("missing", missing)
            .field("outage_retry_after", outage_retry_after)
            .field("decision_in_response", decision_in_response)
            .field("settles", &settling.is_some())
            .finish_non_exhaustive()
    }
}
