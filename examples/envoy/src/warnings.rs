//! What is said about a wrong setup: each once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use crate::lines;

/// The warnings that were printed, by their causes.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<HashMap<&'static str, HashSet<String>>>);

impl Warnings {
    /// The most warnings of one cause, so that others are printed too, and the longest name in one: callers choose
    /// domains and keys.
    const MOST: usize = 16;
    const LONGEST: usize = 64;

    /// Reports buckets that get no units because of the setup, with their keys, and without the values of requests.
    pub(crate) fn bucket<'a>(&self, domain: &str, keys: impl Iterator<Item = &'a str>, why: &'static str) {
        let keys: Vec<_> = keys.take(8).map(Self::quoted).collect();
        let domain = Self::quoted(domain);
        self.say(&format!("buckets of domain {domain} with the keys {} are refused", keys.join(", ")), why);
    }

    /// Reports a domain of quota streams that no file has.
    pub(crate) fn domain(&self, domain: &str) {
        self.say(&format!("quota streams of domain {} are refused", Self::quoted(domain)), "no file has this domain");
    }

    /// Reports a domain of calls that no file has.
    pub(crate) fn unlimited(&self, domain: &str) {
        let why = "no file has this domain; write one, or change that of the filter";
        self.say(&format!("calls of domain {} pass without a limit", Self::quoted(domain)), why);
    }

    /// Reports calls that are refused because of the setup.
    pub(crate) fn calls(&self, why: &'static str) {
        self.say("calls are refused", why);
    }

    fn quoted(name: &str) -> String {
        format!("{:?}", name.chars().take(Self::LONGEST).collect::<String>())
    }

    fn say(&self, what: &str, why: &'static str) {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let said = causes.entry(why).or_default();
        if said.len() >= Self::MOST || !said.insert(what.to_owned()) {
            return;
        }
        let last = if said.len() == Self::MOST { "; others with this cause are not reported" } else { "" };
        lines::warn(&format!("{what}: {why}{last}"));
    }
}
