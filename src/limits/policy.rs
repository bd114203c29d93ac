//! Reads a policy: calls the methods of [`Policy`] with the fields of a table, also those of holds and leases.

use std::time::Duration;

use super::fields::{self, Field};
use super::section::{self, Read, Section, shown};
use super::{calendar, mistake::Mistakes, tree::Tree};
use crate::error::ConfigError;
use crate::policy::{Algorithm, HoldSettings, Policy};

/// Reads the policy `name`. `None` if its limit, burst or shards have a mistake, so that no cost can be compared with
/// them. Other mistakes leave a policy that costs are compared with.
pub(super) fn read(name: &str, mut section: Section, mistakes: &mut Mistakes) -> Option<Policy> {
    if let Err(error) = Policy::per_second(name, 1) {
        mistakes.add(section.place().clone(), error.to_string());
    }
    let before = mistakes.count();
    if section.has(&fields::BLOCKED) {
        return blocked(name, section, mistakes);
    }
    let concurrent = section.read(&fields::CONCURRENT, mistakes, section::whole);
    let base = match concurrent {
        Read::Absent => base(name, &mut section, mistakes),
        read => Some(concurrency_limit(name, read.value(), &mut section, mistakes)?),
    };
    // Without a usable limit, the other fields are read on a policy in which each of them has room.
    let base = base.or_else(|| Policy::new("policy", Policy::MAX_LIMIT, Policy::MAX_WINDOW).ok())?;
    let mut draft = Draft { policy: base, section, mistakes };
    draft.set_algorithm();
    draft.set_shards();
    let has_capacity = draft.mistakes.count() == before;
    draft.set_counts();
    draft.set_ban();
    draft.set_holds();
    draft.set_lease();
    draft.set_rollout();
    has_capacity.then_some(draft.policy)
}

/// Reads a blocked policy, which has a unit at most, and may be a shadow policy.
fn blocked(name: &str, mut section: Section, mistakes: &mut Mistakes) -> Option<Policy> {
    let only_true = |_: &Field, value| section::only_true(&value);
    let is_blocked = section.read(&fields::BLOCKED, mistakes, only_true).value().is_some();
    refuse(&fields::not_with_blocked(), &fields::BLOCKED, "a blocked policy", &mut section, mistakes);
    let policy = Policy::blocked(usable(name)).ok()?;
    let mut draft = Draft { policy, section, mistakes };
    draft.set_counts();
    draft.set_rollout();
    is_blocked.then_some(draft.policy)
}

/// Reads an unlimited plan, which has no other field. Returns whether the table is one.
pub(super) fn is_unlimited(section: &mut Section, mistakes: &mut Mistakes) -> bool {
    if !section.has(&fields::UNLIMITED) || section.has(&fields::BLOCKED) {
        return false;
    }
    section.read(&fields::UNLIMITED, mistakes, |_, value| section::only_true(&value));
    refuse(&fields::not_with_unlimited(), &fields::UNLIMITED, "an unlimited plan", section, mistakes);
    true
}

/// Refuses the fields that something with the field `with` does not have.
fn refuse(fields: &[&Field], with: &Field, what: &str, section: &mut Section, mistakes: &mut Mistakes) {
    for field in fields {
        if section.take(field).is_some() {
            let message = format!("{what} has no {}; leave out {} or {}", field.name, field.name, with.name);
            mistakes.add(section.place_of(field), message);
        }
    }
}

/// A concurrency limit. The fields that it does not have are mistakes. A limit that cannot be read is a mistake
/// already.
fn concurrency_limit(name: &str, limit: Option<u64>, section: &mut Section, mistakes: &mut Mistakes) -> Option<Policy> {
    refuse(&fields::RATES_ONLY, &fields::CONCURRENT, "a concurrency limit", section, mistakes);
    let concurrent = Policy::concurrent(usable(name), limit.unwrap_or(Policy::MAX_LIMIT));
    concurrent.map_err(|error| mistakes.add(section.place_of(&fields::CONCURRENT), message(error))).ok()
}

/// The name, or another one if it is unusable, which is a mistake already.
fn usable(name: &str) -> &str {
    if Policy::per_second(name, 1).is_ok() { name } else { "policy" }
}

/// A policy with the limit of the table, and its window or calendar.
fn base(name: &str, section: &mut Section, mistakes: &mut Mistakes) -> Option<Policy> {
    match section.read(&fields::CALENDAR, mistakes, calendar::period) {
        Read::Absent => calendar::refuse_others(section, mistakes),
        period => {
            let (limit, calendar, place) = calendar::read(&period, section, mistakes)?;
            let policy = Policy::calendar(usable(name), limit, calendar);
            return policy.map_err(|error| mistakes.add(place, message(error))).ok();
        }
    }
    let rate = section.read(&fields::RATE, mistakes, section::rate);
    let limit = section.read(&fields::LIMIT, mistakes, section::whole);
    let window = section.read(&fields::WINDOW, mistakes, section::duration);
    if rate.is_absent() {
        let (no_limit, no_window) = (limit.is_absent(), window.is_absent());
        if no_limit && no_window {
            mistakes.add(section.place_of(&fields::RATE), "a policy needs a rate; write rate = \"60/min\" or the like");
        } else if no_limit {
            mistakes.add(section.place_of(&fields::LIMIT), "a window needs a limit; write limit = 60 or the like");
        } else if no_window {
            mistakes
                .add(section.place_of(&fields::WINDOW), "a limit needs a window; write window = \"60s\" or the like");
        }
        return new_policy(name, limit.value()?, window.value()?, &fields::WINDOW, section, mistakes);
    }
    for (field, is_absent) in [(&fields::LIMIT, limit.is_absent()), (&fields::WINDOW, window.is_absent())] {
        if !is_absent {
            mistakes.add(section.place_of(field), format!("the rate has a {} already; leave one out", field.name));
        }
    }
    let (limit, window) = rate.value()?;
    new_policy(name, limit, window, &fields::RATE, section, mistakes)
}

/// A policy; an error is a mistake of `field`. An unusable name is a mistake already.
fn new_policy(
    name: &str,
    limit: u64,
    window: Duration,
    field: &Field,
    section: &Section,
    mistakes: &mut Mistakes,
) -> Option<Policy> {
    Policy::new(usable(name), limit, window).map_err(|error| mistakes.add(section.place_of(field), message(error))).ok()
}

/// A policy whose settings are read one after the other.
struct Draft<'a> {
    pub(super) policy: Policy,
    pub(super) section: Section,
    pub(super) mistakes: &'a mut Mistakes,
}

impl Draft<'_> {
    fn set_algorithm(&mut self) {
        let word = |_: &Field, value| section::word(&Algorithm::WORDS, &value);
        let algorithm = self.section.read(&fields::ALGORITHM, self.mistakes, word);
        let resolution = self.section.read(&fields::RESOLUTION, self.mistakes, section::duration);
        let burst = self.section.read(&fields::BURST, self.mistakes, section::whole);
        match algorithm {
            // Which settings an unknown algorithm has cannot be known.
            Read::Wrong => return,
            Read::Absent => {}
            Read::Value(algorithm) => self.policy = self.policy.clone().with_algorithm(algorithm),
        }
        self.set(&fields::RESOLUTION, resolution, |policy, resolution| match policy.algorithm() {
            Algorithm::SlidingWindowLog => policy.with_resolution(resolution).validated(),
            _ => Err(ConfigError::new("only the log has a resolution; leave out the resolution or the algorithm")),
        });
        self.set(&fields::BURST, burst, |policy, burst| match policy.algorithm() {
            Algorithm::TokenBucket => policy.with_burst(burst).validated(),
            _ => Err(ConfigError::new(
                "only a token bucket has a burst; add algorithm = \"token-bucket\", or leave the burst out",
            )),
        });
    }

    fn set_shards(&mut self) {
        let shards = self.section.read(&fields::SHARDS, self.mistakes, section::whole);
        self.set(&fields::SHARDS, shards, |policy, shards| policy.with_shards(shards).validated());
    }

    fn set_counts(&mut self) {
        let denials_counted = self.section.read(&fields::COUNT_REJECTED, self.mistakes, section::flag);
        self.set(&fields::COUNT_REJECTED, denials_counted, |policy, value| Ok(policy.with_denials_counted(value)));
        let unit = self.section.read(&fields::UNIT, self.mistakes, section::text);
        self.set(&fields::UNIT, unit, |policy, unit| policy.with_unit(unit).validated());
    }

    fn set_ban(&mut self) {
        let Some(value) = self.section.take(&fields::BAN_AFTER) else { return };
        let place = self.section.place_of(&fields::BAN_AFTER);
        let Some(mut ban) = Section::open(value, place, &fields::BAN, self.mistakes) else { return };
        let denials = ban.read(&fields::DENIALS, self.mistakes, section::whole);
        let duration = ban.read(&fields::FOR, self.mistakes, section::duration);
        let longest = ban.read(&fields::GROWING_TO, self.mistakes, section::duration).value();
        if denials.is_absent() {
            self.mistakes.add(ban.place_of(&fields::DENIALS), "a ban needs a number of denials; write denials = 20");
        }
        if duration.is_absent() {
            self.mistakes.add(ban.place_of(&fields::FOR), "a ban needs a duration; write for = \"10m\"");
        }
        let (Some(denials), Some(duration)) = (denials.value(), duration.value()) else { return };
        // A ban that no policy can have is a mistake of its fields.
        if let Err(error) =
            Policy::per_second("policy", 1).and_then(|plain| plain.ban_after(denials, duration).validated())
        {
            return self.mistakes.add(ban.place_of(&fields::FOR), message(error));
        }
        let grow = |policy: Policy| match longest {
            Some(longest) => policy.growing_to(longest),
            None => policy,
        };
        let plain = Policy::per_second("policy", 1).map(|plain| grow(plain.ban_after(denials, duration)));
        if let Err(error) = plain.and_then(Policy::validated) {
            return self.mistakes.add(ban.place_of(&fields::GROWING_TO), message(error));
        }
        match grow(self.policy.clone().ban_after(denials, duration)).validated() {
            Ok(policy) => self.policy = policy,
            Err(error) => self.mistakes.add(ban.place().clone(), message(error)),
        }
    }

    fn set_rollout(&mut self) {
        let shadow = self.section.read(&fields::POLICY_SHADOW, self.mistakes, section::flag);
        self.set(&fields::POLICY_SHADOW, shadow, |policy, value| Ok(policy.with_shadow(value)));
        let near_limit = self.section.read(&fields::NEAR_LIMIT, self.mistakes, section::share_or_off);
        self.set(&fields::NEAR_LIMIT, near_limit, |policy, share| policy.with_near_limit(share).validated());
    }

    /// Sets a field that was read. An error of the setter is a mistake of the field.
    fn set<T>(&mut self, field: &Field, read: Read<T>, with: impl FnOnce(Policy, T) -> Result<Policy, ConfigError>) {
        let Some(value) = read.value() else { return };
        match with(self.policy.clone(), value) {
            Ok(policy) => self.policy = policy,
            Err(error) => self.mistakes.add(self.section.place_of(field), message(error)),
        }
    }
}

/// The message of an error in words of the file. The place names the policy already.
pub(super) fn message(error: ConfigError) -> String {
    let message = error.to_string();
    let name = message.strip_prefix("policy \"").and_then(|rest| rest.split_once("\": "));
    name.map_or(message.clone(), |(_, rest)| rest.to_owned())
}

impl Draft<'_> {
    /// Reads the holds. The settings that exclude them have been read before.
    fn set_holds(&mut self) {
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
            let Some(duration) = settings.read(field, self.mistakes, section::duration).value() else { continue };
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
        let word = |_: &Field, value| section::word(&fields::UNSETTLED_WORDS, &value);
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
    fn set_lease(&mut self) {
        let Some(units) = self.section.read(&fields::LEASE, self.mistakes, section::whole).value() else { return };
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
        let is_lease = field.name == fields::LEASE.name;
        let excludes = [
            (is_lease && self.policy.ban().is_some(), "ban-after"),
            (self.policy.is_sharded(), "shards"),
            (self.policy.denials_counted(), "count-rejected"),
            (is_lease && is_released, "unsettled = \"release\""),
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
