//! Alternatives: charges of which the first that fits is charged.

use crate::check::{Charge, Check, place::Place};
use crate::policy::{Policy, validate_alternatives, validate_beside_alternatives};
use crate::{error::ConfigError, key::Key};

impl Check {
    /// Creates a check of which the first policy that has room is charged, the whole `cost`, and the others nothing: an
    /// included quota, then credits.
    ///
    /// The check is denied if no policy has room, with the shortest wait of all. The decision has one entry for all of
    /// these policies: the one that was charged, or on a denial the one with the shortest wait. Rejections that a
    /// policy [counts](Policy::with_denials_counted), and denials that lead to a [ban](Policy::ban_after), are counted
    /// only if all of them deny. A policy that bans the key has no room.
    ///
    /// With a cost of 0 nothing is charged, and the decision names the policy that a cost of 1 would be charged to.
    ///
    /// It is a mistake if there is no policy, if only some of them are [shadow policies](Policy::with_shadow), if the
    /// key is charged under one of them already, or if a policy of the check has a [lease](Policy::with_lease) or
    /// [shards](Policy::with_shards). Otherwise as [`and`](Self::and).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Check, Limiter, MemoryStore, Policy};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new());
    /// let (included, credits) =
    ///     (Policy::per_day("included", 10)?, Policy::per_day("credits", 100)?);
    /// for charged in ["included", "included", "credits"] {
    ///     let check = Check::first_of("user:17", [&included, &credits], 4);
    ///     let decision = limiter.check_all(check).await?;
    ///     assert_eq!(decision.policies()[0].policy.name(), charged);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn first_of<'a>(key: impl Into<Key>, policies: impl IntoIterator<Item = &'a Policy>, cost: u64) -> Self {
        Self::empty().and_first_of(key, policies, cost)
    }

    /// Adds charges of which the first that fits is charged, as [`first_of`](Self::first_of) does. Beside other charges
    /// of the check, all are charged or none.
    pub fn and_first_of<'a>(
        self,
        key: impl Into<Key>,
        policies: impl IntoIterator<Item = &'a Policy>,
        cost: u64,
    ) -> Self {
        self.add_alternatives(key.into(), policies, cost, false)
    }

    /// Creates a check that makes the first hold that fits, as [`and_hold_first_of`](Self::and_hold_first_of) does.
    pub fn hold_first_of<'a>(key: impl Into<Key>, policies: impl IntoIterator<Item = &'a Policy>, cost: u64) -> Self {
        Self::empty().and_hold_first_of(key, policies, cost)
    }

    /// Adds holds of which the first that fits is made, as [`first_of`](Self::first_of) does for charges. It belongs to
    /// the policy that the decision names. It may have the mistakes of [`and_hold`](Self::and_hold) too.
    pub fn and_hold_first_of<'a>(
        self,
        key: impl Into<Key>,
        policies: impl IntoIterator<Item = &'a Policy>,
        cost: u64,
    ) -> Self {
        self.add_alternatives(key.into(), policies, cost, true)
    }

    fn add_alternatives<'a>(
        mut self,
        key: Key,
        policies: impl IntoIterator<Item = &'a Policy>,
        cost: u64,
        held: bool,
    ) -> Self {
        let from = self.charges.len();
        let added = policies.into_iter().try_for_each(|policy| {
            policy.validate()?;
            self.push_distinct(key.clone(), policy.clone(), cost, held)
        });
        let added = added.and_then(|()| self.join_alternatives(from));
        self.mistake.keep(added);
        self
    }

    /// Makes the charges from this number on alternatives of one another.
    pub(crate) fn join_alternatives(&mut self, from: usize) -> Result<(), ConfigError> {
        let joined = self.charges.get_mut(from..).unwrap_or_default();
        validate_alternatives(joined.iter().map(|charge| &charge.policy))?;
        if let Some((last, others)) = joined.split_last_mut()
            && !others.is_empty()
        {
            last.place = Place::Last;
            others.iter_mut().for_each(|other| other.place = Place::BeforeNext);
            self.charges.iter().try_for_each(|charge| validate_beside_alternatives(&charge.policy))?;
        }
        Ok(())
    }

    /// Whether some charges are alternatives of one another.
    #[inline]
    pub(crate) fn has_alternatives(&self) -> bool {
        self.charges.len() > 1 && self.charges.iter().any(Charge::has_alternative)
    }

    /// The charges, those together that are alternatives of one another. A decision has one entry for each.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[Charge]> {
        self.charges.chunk_by(|charge, _| charge.has_alternative())
    }
}

impl Charge {
    /// Whether the next charge of the check is an alternative to this one: of all charges that follow one another like
    /// this, a store charges the first that fits, and the others nothing. See
    /// [`Store::has_alternatives`](crate::store::Store::has_alternatives).
    #[inline]
    pub fn has_alternative(&self) -> bool {
        self.place == Place::BeforeNext
    }

    /// The same charge without alternatives.
    pub(crate) fn alone(&self) -> Self {
        Self { place: Place::Alone, ..self.clone() }
    }

    /// Whether the charge is one of several alternatives.
    pub(crate) fn is_alternative(&self) -> bool {
        self.place != Place::Alone
    }
}

/// Whether these charges pass together. Each comes with whether it fits itself. Of alternatives, one has to fit.
#[cfg(feature = "redis")]
pub(crate) fn pass<'a>(mut charges: impl Iterator<Item = (&'a Charge, bool)>) -> bool {
    // Whether an alternative so far passes.
    let mut passes = false;
    charges.all(|(charge, fits)| {
        let goes_on = charge.has_alternative();
        passes |= fits || charge.policy.is_shadow();
        let is_undenied = passes || goes_on;
        passes &= goes_on;
        is_undenied
    })
}

/// Returns, for one charge after the other, whether it is charged if the check is allowed. Each comes with whether it
/// fits itself. Of alternatives, the first that fits is charged.
pub(crate) fn charged() -> impl FnMut(&Charge, bool) -> bool + Clone {
    // Whether an earlier alternative is charged.
    let mut is_taken = false;
    move |charge: &Charge, fits: bool| {
        let is_charged = fits && !is_taken;
        is_taken = charge.has_alternative() && (is_taken || fits);
        is_charged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::HoldSettings;

    fn policy(name: &str) -> Policy {
        Policy::per_minute(name, 10).unwrap()
    }

    fn mistake(check: Check) -> String {
        check.validate().unwrap_err().to_string()
    }

    #[test]
    fn groups_follow_one_another() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(policy);
        let check = Check::new("k", &a, 1).and_first_of("k", [&b, &c], 2).and_first_of("j", [&a, &b], 3);
        let check = check.and_first_of("k", [&d], 4);
        check.validate().unwrap();
        let sizes: Vec<usize> = check.groups().map(<[Charge]>::len).collect();
        assert_eq!(sizes, [1, 2, 2, 1]);
    }

    #[test]
    fn what_cannot_be_combined_is_a_mistake_that_says_so() {
        let [a, b, c] = ["a", "b", "c"].map(policy);
        assert!(mistake(Check::first_of("k", [], 1)).contains("policy"));
        assert!(mistake(Check::first_of("k", [&a, &a], 1)).contains("\"a\""));
        assert!(mistake(Check::new("k", &a, 1).and_first_of("k", [&b, &a], 1)).contains("\"a\""));
        assert!(mistake(Check::first_of("k", [&a, &b], 1).and("k", &b, 1)).contains("\"b\""));
        let shadow = b.clone().with_shadow(true);
        assert!(mistake(Check::first_of("k", [&a, &shadow], 1)).contains("shadow"));
        let sharded = b.clone().with_shards(2);
        assert!(mistake(Check::first_of("k", [&a, &sharded], 1)).contains("shards"));
        assert!(mistake(Check::first_of("k", [&a, &c], 1).and("k", &sharded, 1)).contains("shards"));
        assert!(mistake(Check::new("k", &sharded, 1).and_first_of("k", [&a, &c], 1)).contains("shards"));
        let leased = policy("l").with_holds(HoldSettings::new()).with_lease(2);
        assert!(mistake(Check::first_of("k", [&a, &leased], 1)).contains("lease"));
        assert!(mistake(Check::hold_first_of("k", [&a, &b], 1)).contains("holds"));
        let shadows = [&a, &b].map(|policy| policy.clone().with_shadow(true));
        assert!(Check::first_of("k", &shadows, 1).validate().is_ok());
    }
}
