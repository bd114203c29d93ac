//! Reads the holds and the lease of a policy.

use super::{
    fields::{self, Field},
    policy::{Draft, message},
    section::Section,
    tree::Tree,
    values::{self, shown},
};
use crate::policy::{HoldSettings, Policy};

impl Draft<'_> {
    /// Reads the holds. The settings that exclude them have been read before.
    pub(super) fn set_holds(&mut self) {
        let Some(value) = self.section.take(&fields::HOLDS) else { return };
        let place = self.section.place_of(&fields::HOLDS);
        let holds = match value {
            Tree::Flag(false) if self.policy.is_concurrent() => {
                return self.mistakes.add(place, "a concurrency limit always holds; leave holds out");
            }
            Tree::Flag(false) => return,
            Tree::Flag(true) => Some(self.policy.holds().copied().unwrap_or_default()),
            Tree::Table(_) => {
                let settings = Section::open(value, place.clone(), &fields::HOLD_SETTINGS, self.mistakes);
                settings.and_then(|settings| self.read_holds(settings))
            }
            other => {
                let advice = "write holds = true, or the settings, such as holds = { ttl = \"5m\" }";
                return self
                    .mistakes
                    .add(place, format!("{} is neither a boolean nor a table; {advice}", shown(&other)));
            }
        };
        if self.is_excluded("holds", &fields::HOLDS) {
            return;
        }
        if let Some(holds) = holds {
            match self.policy.clone().with_holds(holds).validated() {
                Ok(policy) => self.policy = policy,
                Err(error) => self.mistakes.add(place, message(error)),
            }
        }
    }

    /// The holds of a table, if it has no mistake.
    fn read_holds(&mut self, mut settings: Section) -> Option<HoldSettings> {
        let before = self.mistakes.count();
        let mut holds = self.policy.holds().copied().unwrap_or_default();
        for (field, with) in [
            (&fields::TTL, HoldSettings::with_ttl as fn(HoldSettings, _) -> HoldSettings),
            (&fields::TYPICAL, HoldSettings::with_typical_duration),
            (&fields::LONGEST, HoldSettings::with_longest),
        ] {
            let Some(duration) = settings.read(field, self.mistakes, values::duration).value() else { continue };
            // Compared alone, so that all durations are reported.
            let alone =
                Policy::per_second("policy", 1).map(|plain| plain.with_holds(with(HoldSettings::new(), duration)));
            if alone.is_ok_and(|alone| alone.validate().is_ok()) {
                holds = with(holds, duration);
            } else {
                let advice = format!("{duration:?} is out of range; write \"1ms\" to \"366d\"");
                self.mistakes.add(settings.place_of(field), advice);
            }
        }
        let word = |_: &Field, value| values::word(&fields::UNSETTLED_WORDS, &value);
        match settings.read(&fields::WHEN_UNSETTLED, self.mistakes, word).value() {
            Some(false) if self.policy.is_concurrent() => {
                let advice = "a slot of a concurrency limit is always released; leave unsettled out";
                self.mistakes.add(settings.place_of(&fields::WHEN_UNSETTLED), advice);
            }
            Some(released) => holds = holds.with_unsettled_released(released),
            None => {}
        }
        (self.mistakes.count() == before).then_some(holds)
    }

    /// Reads the lease. The holds have been read before.
    pub(super) fn set_lease(&mut self) {
        let Some(units) = self.section.read(&fields::LEASE, self.mistakes, values::whole).value() else { return };
        if self.is_excluded("a lease", &fields::LEASE) {
            return;
        }
        match self.policy.clone().with_lease(units).validated() {
            Ok(policy) => self.policy = policy,
            Err(error) => self.mistakes.add(self.section.place_of(&fields::LEASE), message(error)),
        }
    }

    /// Whether the policy has settings that exclude `what`. They are one mistake of `field`.
    fn is_excluded(&mut self, what: &str, field: &Field) -> bool {
        let is_released = self.policy.holds().is_some_and(|holds| holds.unsettled_released());
        let excludes = [
            (self.policy.ban().is_some(), "ban-after"),
            (self.policy.is_sharded(), "shards"),
            (self.policy.denials_counted(), "count-rejected"),
            (field.name == fields::LEASE.name && is_released, "unsettled = \"release\""),
        ];
        let others: Vec<&str> = excludes.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        if others.is_empty() {
            return false;
        }
        let others = others.join(" and ");
        let advice = format!("{what} and {others} exclude each other; leave out {} or {others}", field.name);
        self.mistakes.add(self.section.place_of(field), advice);
        true
    }
}
