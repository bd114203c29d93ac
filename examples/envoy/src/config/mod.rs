//! The configuration: domains and their descriptors, in the form of envoyproxy/ratelimit.

mod descriptors;
mod fields;
mod files;
mod metadata;
mod mistake;
mod pattern;
mod rate_limit;
pub(crate) mod rule;
mod tree;
mod yaml;

use std::{collections::HashMap, path::Path};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;

pub use self::mistake::ConfigMistakes;
use self::mistake::{Mistake, Mistakes};
pub(crate) use self::{
    files::{Content, read},
    tree::Found,
};
use self::{rate_limit::START, tree::Level};

/// All domains.
#[derive(Debug, Default)]
pub struct Config {
    domains: HashMap<String, Level>,
}

impl Config {
    /// Reads a file, or all files of a folder that end with `.yaml` or `.yml`. `has_local`: whether the service has a
    /// local fallback.
    ///
    /// # Errors
    ///
    /// All mistakes, with their places.
    pub fn load(path: &Path, has_local: bool) -> Result<Self, ConfigMistakes> {
        Self::parse(&read(path)?, has_local)
    }

    pub(crate) fn parse(content: &Content, has_local: bool) -> Result<Self, ConfigMistakes> {
        let mut config = Self::default();
        let mut mistakes = Vec::new();
        for (path, text) in &content.0 {
            let mut found = Mistakes::default();
            if let Some((domain, level)) = descriptors::domain(text, has_local, &mut found) {
                if config.domains.contains_key(&domain) {
                    found.add(START, format!("domain {domain} has a file already; write it into one file"));
                }
                config.domains.insert(domain, level);
            }
            found.0.sort();
            let located = |(place, message)| Mistake { file: path.clone(), place: Some(place), message };
            mistakes.extend(found.0.into_iter().map(located));
        }
        if mistakes.is_empty() { Ok(config) } else { Err(ConfigMistakes(mistakes)) }
    }

    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    pub(crate) fn find(&self, domain: &str, entries: &[&Entry]) -> Option<Found<'_>> {
        self.domains.get(domain)?.find(domain, entries)
    }

    /// As [`find`](Self::find), for entries without an order.
    pub(crate) fn find_in_any_order(&self, domain: &str, entries: &[Entry]) -> Option<Found<'_>> {
        let level = self.domains.get(domain)?;
        level.find(domain, &level.in_order(entries)?)
    }
}
