//! Reads a whole file.

use std::collections::HashSet;

use serde::{Deserialize, Deserializer, de::Error};

use super::entry::{Entry, Known};
use super::fields::{self, Field};
use super::mistake::{Mistakes, Place};
use super::section::{self, Read, Section, entries};
use super::uncharged::{self, Warnings, exempts_everything};
use super::{Charges, LimitsConfig, policy, tree::Tree};
use crate::headers::HeaderStyle;
use crate::middleware::{RouteTable, Settings};

impl<'de> Deserialize<'de> for LimitsConfig {
    /// Reads the whole file first, so that the error has all of its mistakes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let file = Tree::deserialize(deserializer)?;
        let mut mistakes = Mistakes::default();
        let limits = read(file, &mut mistakes);
        mistakes.or(limits).map_err(D::Error::custom)
    }
}

fn read(file: Tree, mistakes: &mut Mistakes) -> Option<LimitsConfig> {
    // An empty YAML document is null.
    let file = if file == Tree::Null { Tree::Table(Vec::new()) } else { file };
    let mut file = Section::open(file, Place::default(), &fields::FILE, mistakes)?;
    file.read(&fields::SCHEMA, mistakes, section::text);
    let style = |_: &Field, value| section::word(&HeaderStyle::WORDS, &value);
    let headers = file.read(&fields::HEADERS, mistakes, style).value().unwrap_or_default();
    let shadow = file.read(&fields::SHADOW, mistakes, section::flag).value().unwrap_or_default();
    let mut in_code = HashSet::new();
    let known = policies(&mut file, &mut in_code, mistakes);
    let default = default(&mut file, &known, mistakes);
    let routes = routes(&mut file, &known, mistakes);
    if let Some(default) = &default {
        uncharged::check_default(default, mistakes);
        for (_, route) in &routes {
            uncharged::check_route(route, default, mistakes);
        }
    }
    let default = default?;
    let warnings = Warnings::new(uncharged::find(known.all(), &in_code, &default, &routes));
    let default = charges(default)?;
    let routes = routes.into_iter().map(|(name, entry)| Some((name, charges(entry)?))).collect::<Option<Vec<_>>>()?;
    let policies = known.all().iter().map(|(_, policy)| policy.clone()).collect::<Option<Vec<_>>>()?;
    let limits = LimitsConfig::new(policies, default, routes, headers, shadow, warnings);
    Some(limits.with_unlimited(known.unlimited()))
}

/// The policies of the file, by name. The names of those that the file leaves to code are added to `in_code`.
fn policies(file: &mut Section, in_code: &mut HashSet<String>, mistakes: &mut Mistakes) -> Known {
    let mut known = Known::default();
    let Some(value) = file.take(&fields::POLICIES) else { return known };
    let place = file.place_of(&fields::POLICIES);
    for (name, value) in entries(value, &place, mistakes).unwrap_or_default() {
        let at = place.at(&name);
        if known.has(&name) {
            mistakes.add(at, "another policy has this name (case is ignored); rename one");
            continue;
        }
        let mut section = Section::open(value, at, &fields::POLICY, mistakes);
        let flag = section.as_mut().map(|section| section.read(&fields::IN_CODE, mistakes, section::flag));
        if flag.and_then(Read::value) == Some(true) {
            in_code.insert(name.clone());
        }
        if section.as_mut().is_some_and(|section| policy::is_unlimited(section, mistakes)) {
            known.add_unlimited(name);
            continue;
        }
        let policy = section.and_then(|section| policy::read(&name, section, mistakes));
        known.add(name, policy);
    }
    known
}

fn default<'a>(file: &mut Section, known: &'a Known, mistakes: &mut Mistakes) -> Option<Entry<'a>> {
    let place = file.place_of(&fields::DEFAULT);
    let value = file.take(&fields::DEFAULT).unwrap_or(Tree::Table(Vec::new()));
    let default = Entry::read(value, place, &fields::DEFAULTS, known, mistakes)?;
    if default.policies.is_absent() {
        let message = "no policy, so nothing would be limited; write policies = [..] with the name of at least one";
        mistakes.add(default.place.at(fields::CHARGED.name), message);
    }
    Some(default)
}

/// The routes of the file, by name.
fn routes<'a>(file: &mut Section, known: &'a Known, mistakes: &mut Mistakes) -> Vec<(String, Entry<'a>)> {
    let Some(value) = file.take(&fields::ROUTES) else { return Vec::new() };
    let place = file.place_of(&fields::ROUTES);
    let mut table = RouteTable::default();
    let mut routes = Vec::new();
    for (name, value) in entries(value, &place, mistakes).unwrap_or_default() {
        let at = place.at_route(&name);
        if let Err(error) = table.insert(&name, Settings::default()) {
            mistakes.add(at.clone(), error.to_string());
        } else if name.contains("//") {
            // Its settings would apply behind a router alone. Elsewhere repeated slashes of a path count as one.
            mistakes.add(
                at.clone(),
                "no path has an empty segment, because repeated slashes count as one; write one slash",
            );
        }
        let Some(entry) = Entry::read(value, at, &fields::ROUTE, known, mistakes) else { continue };
        routes.push((name, entry));
    }
    if routes.iter().all(|(_, entry)| entry.is_exempt) {
        let names: Vec<&str> = routes.iter().map(|(name, _)| name.as_str()).collect();
        if let Some(route) = exempts_everything(&names) {
            let message = "the exempt routes cover every request, so nothing would be limited; leave exempt out, or \
                           give a route of its own to what is limited";
            mistakes.add(place.at_route(route).at(fields::EXEMPT.name), message);
        }
    }
    routes
}

/// The settings of an entry without mistakes.
fn charges(entry: Entry<'_>) -> Option<Charges> {
    let policies = match entry.policies {
        Read::Absent => None,
        Read::Wrong => return None,
        Read::Value(policies) => Some(policies.into_iter().map(|(_, policy)| policy.clone()).collect::<Option<_>>()?),
    };
    Some(Charges {
        is_exempt: entry.is_exempt,
        policies,
        cost: entry.cost.value(),
        costs: entry.costs,
        failure: entry.failure,
    })
}
