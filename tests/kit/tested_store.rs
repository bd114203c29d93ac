//! The store under test as the tests of the suite see it. Every verdict is checked for its form.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate::store::{Answer, Charge, CountChange, HoldChange, SettleAnswer, Verdict};
use tollgate::{Algorithm, Check, Error, Key, ManualClock, Policy, decision::Source};

use crate::failure::{NotPassed, Tested, ensure};
use crate::fixture::{Fixture, Part};
use crate::{decision::Decision, feature::Feature};

/// The call that the store received last, for the message about a store that does not answer.
pub(super) type LastCall = Arc<Mutex<String>>;

/// A store, its clock, and the features that it lacks. Clones share the store.
#[derive(Clone)]
pub(super) struct TestedStore {
    fixture: Arc<Fixture>,
    without: Arc<[Feature]>,
    last_call: LastCall,
    pub(super) clock: ManualClock,
}

impl TestedStore {
    pub(super) fn new(fixture: Fixture, without: Arc<[Feature]>, last_call: LastCall) -> Self {
        let clock = fixture.clock.clone();
        Self { fixture: Arc::new(fixture), without, last_call, clock }
    }

    /// Skips the test if the store lacks the feature.
    pub(super) fn requires(&self, feature: Feature) -> Tested {
        if self.without.contains(&feature) {
            return Err(NotPassed::Skipped(format!("it needs Feature::{feature:?}")));
        }
        Ok(())
    }

    /// Skips the test if the store lacks holds by declaration, and fails it if only `Store::has_holds` says so.
    pub(super) fn requires_holds(&self) -> Tested {
        self.requires(Feature::Holds)?;
        ensure!(
            self.fixture.store.has_holds(),
            "not tried, because Store::has_holds is false; return true if the store has holds, or skip the test with \
             `StoreSuite::without(Feature::Holds)`"
        );
        Ok(())
    }

    /// Skips the test if `Store::has_alternatives` is false.
    pub(super) fn requires_alternatives(&self) -> Tested {
        match self.fixture.store.has_alternatives() {
            true => Ok(()),
            false => Err(NotPassed::Skipped("it needs Store::has_alternatives".to_owned())),
        }
    }

    /// The algorithms that the store has, the default first. Skips the test if there is none.
    pub(super) fn algorithms(&self) -> Result<Vec<Algorithm>, NotPassed> {
        self.algorithms_of(&Feature::ALGORITHMS.map(|(feature, _)| feature))
    }

    /// The algorithms among these that the store has. Skips the test if there is none.
    pub(super) fn algorithms_of(&self, features: &[Feature]) -> Result<Vec<Algorithm>, NotPassed> {
        let has = |feature: &Feature| features.contains(feature) && !self.without.contains(feature);
        let found: Vec<_> =
            Feature::ALGORITHMS.iter().filter(|(feature, _)| has(feature)).map(|(_, algorithm)| *algorithm).collect();
        if found.is_empty() {
            return Err(NotPassed::Skipped(format!("it needs one of {features:?}")));
        }
        Ok(found)
    }

    /// A policy of `limit` units a minute under the first algorithm that the store has, for tests that hold under any.
    pub(super) fn per_minute(&self, name: &str, limit: u64) -> Result<Policy, NotPassed> {
        let first = self.algorithms()?.into_iter().next().unwrap_or_default();
        Ok(Policy::per_minute(name, limit)?.with_algorithm(first))
    }

    /// The decision on one charge.
    pub(super) async fn check(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Result<Decision, NotPassed> {
        self.check_all(Check::new(key, policy, cost)).await
    }

    /// The decision on a check.
    pub(super) async fn check_all(&self, check: Check) -> Result<Decision, NotPassed> {
        let verdict = self.verdict(&check).await?;
        ensure_form(&check, &verdict)?;
        Ok(Decision::new(&check, &verdict))
    }

    /// The decision on a cost of 1 that is not charged.
    pub(super) async fn peek(&self, key: impl Into<Key>, policy: &Policy) -> Result<Decision, NotPassed> {
        Ok(self.check(key, policy, 0).await?.of_peek())
    }

    /// The decision on a check that is not charged.
    pub(super) async fn peek_at(&self, check: Check) -> Result<Decision, NotPassed> {
        self.note(format!("peek at {check:?}"));
        let verdict = match self.fixture.store.peek(&check) {
            Answer::Ready(verdict) => verdict?,
            Answer::Pending(verdict) => verdict.await?,
        };
        ensure_form(&check, &verdict)?;
        Ok(Decision::new(&check, &verdict))
    }

    /// Charges as much as fits. Returns the units, and the decision on a check of as many, or of 1 if there are none.
    pub(super) async fn charge_up_to(
        &self,
        key: impl Into<Key>,
        policy: &Policy,
        units: u64,
    ) -> Result<(u64, Decision), NotPassed> {
        self.note(format!("charge of up to {units} under {:?}", policy.name()));
        let key = key.into();
        let check = Check::new(key.clone(), policy, units);
        let (verdict, charged) = match self.fixture.store.charge_up_to(&check.charges()[0]) {
            Answer::Ready(charged) => charged?,
            Answer::Pending(charged) => charged.await?,
        };
        let check = Check::new(key, policy, charged.max(1));
        ensure_form(&check, &verdict)?;
        ensure!(charged <= units, "{charged} units were charged, and up to {units} were asked for");
        Ok((charged, Decision::new(&check, &verdict)))
    }

    /// The verdict on a check as the store returns it, or its error.
    pub(super) async fn verdict(&self, check: &Check) -> Result<Verdict, Error> {
        match self.send(check) {
            Answer::Ready(verdict) => verdict,
            Answer::Pending(verdict) => verdict.await,
        }
    }

    /// Sends a check, and returns the answer before it is polled.
    pub(super) fn send(&self, check: &Check) -> Answer<Verdict> {
        let charges = check.charges().iter().map(|charge| format!("{} under {:?}", charge.cost, charge.policy.name()));
        self.note(format!("check of {}", charges.collect::<Vec<_>>().join(" and ")));
        self.fixture.store.check(check)
    }

    /// Holds units, which must fit.
    pub(super) async fn hold(&self, key: impl Into<Key>, policy: &Policy, cost: u64) -> Result<Charge, NotPassed> {
        let check = Check::hold(key, policy, cost);
        let hold = check.charges().iter().find(|charge| charge.hold.is_some()).cloned();
        let decision = self.check_all(check).await?;
        match hold {
            Some(hold) if decision.is_allowed() => Ok(hold),
            _ => Err(NotPassed::Failed(format!("a hold of {cost} units was denied: {decision:?}"))),
        }
    }

    /// Changes a hold.
    pub(super) async fn change_hold(&self, hold: &Charge, change: HoldChange) -> Result<SettleAnswer, NotPassed> {
        self.note(format!("{change:?} of a hold under {:?}", hold.policy.name()));
        Ok(match self.fixture.store.change_hold(hold, change) {
            Answer::Ready(settlement) => settlement?,
            Answer::Pending(settlement) => settlement.await?,
        })
    }

    /// Forgets a count. Returns whether there was one.
    pub(super) async fn reset(&self, key: impl Into<Key>, policy: &Policy) -> Result<bool, NotPassed> {
        self.note(format!("reset under {:?}", policy.name()));
        Ok(match self.fixture.store.reset(&key.into(), policy) {
            Answer::Ready(found) => found?,
            Answer::Pending(found) => found.await?,
        })
    }

    /// Changes a count by hand.
    pub(super) async fn change_count(&self, key: &str, policy: &Policy, change: CountChange) -> Result<u64, NotPassed> {
        self.note(format!("{change:?} under {:?}", policy.name()));
        Ok(match self.fixture.store.change_count(&key.into(), policy, change) {
            Answer::Ready(changed) => changed?,
            Answer::Pending(changed) => changed.await?,
        })
    }

    /// How long a limiter would wait for an answer.
    pub(super) fn deadline(&self) -> Duration {
        self.fixture.store.deadline()
    }

    /// Makes the store's back end fail or recover. Skips the test if the fixture leaves outages out.
    pub(super) fn set_outage(&self, is_down: bool) -> Tested {
        let outage = part(&self.fixture.outage, "with_outage", "without_outage")?;
        outage(is_down);
        Ok(())
    }

    /// The number of keys that the store keeps. Skips the test if the fixture leaves the count out.
    pub(super) fn count_of_keys(&self) -> Result<usize, NotPassed> {
        let count = part(&self.fixture.count_of_keys, "with_count_of_keys", "without_count_of_keys")?;
        Ok(count())
    }

    fn note(&self, call: String) {
        *self.last_call.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }
}

/// A part of the fixture. A test that needs a missing part has failed: a law that was not tried is not kept.
fn part<'a, T>(part: &'a Part<T>, with: &str, without: &str) -> Result<&'a T, NotPassed> {
    match part {
        Part::Given(part) => Ok(part),
        Part::LeftOut(reason) => Err(NotPassed::Skipped(format!("Fixture::{without}: {reason}"))),
        Part::Missing => Err(NotPassed::Failed(format!(
            "not tried, because the fixture lacks `{with}`; add it, or skip the test with `{without}(\"the reason\")`"
        ))),
    }
}

/// Fails the test if the verdict contradicts itself.
fn ensure_form(check: &Check, verdict: &Verdict) -> Tested {
    let (charges, outcomes) = (check.charges(), &verdict.outcomes);
    ensure!(charges.len() == outcomes.len(), "{} outcomes for {} charges", outcomes.len(), charges.len());
    // Of alternatives, one has to fit.
    let mut passes = false;
    let all_fit = charges.iter().zip(outcomes).all(|(charge, outcome)| {
        passes |= outcome.fits || charge.policy.is_shadow();
        charge.has_alternative() || std::mem::take(&mut passes)
    });
    ensure!(
        verdict.allowed == all_fit,
        "`allowed` must be true if every charge of an enforced policy fits, and only then: {verdict:?}"
    );
    let is_judged = matches!(verdict.source, Source::Store | Source::DenyCache);
    ensure!(is_judged, "the source of a verdict must be Source::Store or Source::DenyCache: {verdict:?}");
    for (charge, outcome) in charges.iter().zip(outcomes) {
        let capacity = charge.policy.capacity();
        let can_pass_later = !outcome.fits && charge.cost <= capacity;
        ensure!(
            outcome.retry_after_us.is_some() == can_pass_later,
            "`retry_after_us` must be set if the cost does not fit now but can fit later, and only then: {outcome:?}"
        );
        ensure!(outcome.available <= capacity, "more units are available than the capacity, {capacity}: {outcome:?}");
    }
    Ok(())
}
