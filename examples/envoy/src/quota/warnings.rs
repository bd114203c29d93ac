//! What is said about a wrong setup: each once.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// The warnings that were printed.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<HashSet<String>>);

impl Warnings {
    /// The most warnings, and the longest name in one: callers choose domains and keys.
    const MOST: usize = 64;
    const LONGEST: usize = 64;

    /// Reports buckets that get no units because of the setup, with their keys, and without the values of requests.
    pub(super) fn bucket<'a>(&self, domain: &str, keys: impl Iterator<Item = &'a str>, why: &str) {
        let keys: Vec<_> = keys.take(8).map(Self::quoted).collect();
        let domain = Self::quoted(domain);
        self.say(format!("buckets of domain {domain} with the keys {} are refused: {why}", keys.join(", ")));
    }

    /// Reports a domain that no file has.
    pub(super) fn domain(&self, domain: &str) {
        self.say(format!("quota streams of domain {} are refused: no file has this domain", Self::quoted(domain)));
    }

    fn quoted(name: &str) -> String {
        format!("{:?}", name.chars().take(Self::LONGEST).collect::<String>())
    }

    fn say(&self, message: String) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < Self::MOST && !said.contains(&message) {
            eprintln!("tollgate-envoy: {message}");
            said.insert(message);
        }
    }
}
