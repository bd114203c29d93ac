//! Reads the settings of requests: the default, and those of single routes.

use std::collections::{HashMap, HashSet};

use super::fields::{self, Field, Table};
use super::mistake::{Mistakes, Place, cut, nearest};
use super::section::{self, Read, Section, entries};
use super::tree::Tree;
use crate::{check::Check, failure::FailurePolicy, policy::Policy};

/// The most characters of an unknown name that a message shows: the names to write instead come after it.
const NAME: usize = 64;

/// A policy of the file by its name. `None` if the capacity of the policy has a mistake.
pub(super) type Named = (String, Option<Policy>);

/// The policies of the file in their order, and where each is by its name in lower case: a file may have thousands, and
/// as many routes that name them.
#[derive(Debug, Default)]
pub(super) struct Known {
    all: Vec<Named>,
    /// The names of the unlimited plans, which no request can be charged under.
    unlimited: Vec<String>,
    by_name: HashMap<String, usize>,
}

impl Known {
    pub(super) fn has(&self, name: &str) -> bool {
        self.find(name).is_some() || self.is_unlimited(name)
    }

    pub(super) fn add(&mut self, name: String, policy: Option<Policy>) {
        self.by_name.insert(name.to_ascii_lowercase(), self.all.len());
        self.all.push((name, policy));
    }

    pub(super) fn all(&self) -> &[Named] {
        &self.all
    }

    /// Adds the name of an unlimited plan.
    pub(super) fn add_unlimited(&mut self, name: String) {
        self.unlimited.push(name);
    }

    pub(super) fn unlimited(&self) -> &[String] {
        &self.unlimited
    }

    fn is_unlimited(&self, name: &str) -> bool {
        self.unlimited.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    fn find(&self, name: &str) -> Option<&Named> {
        self.by_name.get(&name.to_ascii_lowercase()).and_then(|index| self.all.get(*index))
    }
}

/// The settings of a route or of the default, as they are read.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) place: Place,
    pub(super) is_exempt: bool,
    pub(super) policies: Read<Vec<&'a Named>>,
    pub(super) cost: Read<u64>,
    pub(super) costs: Vec<(String, u64)>,
    pub(super) failure: Option<FailurePolicy>,
}

impl<'a> Entry<'a> {
    pub(super) fn read(
        value: Tree,
        place: Place,
        table: &'static Table,
        known: &'a Known,
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let mut section = Section::open(value, place, table, mistakes)?;
        let exempt = section.read(&fields::EXEMPT, mistakes, section::flag).value();
        if exempt == Some(true) {
            for field in table.fields.iter().filter(|field| section.has(field)) {
                let message = format!("an exempt route charges nothing; leave out {} or exempt", field.name);
                mistakes.add(section.place_of(field), message);
            }
        }
        let names = section.read(&fields::CHARGED, mistakes, section::names);
        let policies = match names {
            Read::Absent => Read::Absent,
            Read::Wrong => Read::Wrong,
            Read::Value(names) => resolve(&names, known, &section.place_of(&fields::CHARGED), mistakes),
        };
        let cost = section.read(&fields::COST, mistakes, cost);
        let failure = |_: &Field, value| section::word(&FailurePolicy::WORDS, &value);
        let failure = section.read(&fields::ON_STORE_FAILURE, mistakes, failure).value();
        let costs = section.take(&fields::COSTS).map(|value| costs(value, &section.place_of(&fields::COSTS), mistakes));
        Some(Self {
            place: section.place().clone(),
            is_exempt: exempt == Some(true),
            policies,
            cost,
            costs: costs.unwrap_or_default(),
            failure,
        })
    }

    /// The cost under the policy of this name.
    pub(super) fn cost_of(&self, name: &str) -> Option<&(String, u64)> {
        self.costs.iter().find(|(other, _)| other.eq_ignore_ascii_case(name))
    }
}

/// Reads a plain cost. 0 would lift the limit.
fn cost(field: &Field, value: Tree) -> Result<u64, String> {
    if value == Tree::Integer(0) {
        return Err(
            "a cost of 0 charges nothing, so nothing would be limited; write 1 or more, or exempt = true in a \
                    route"
                .to_owned(),
        );
    }
    section::whole(field, value)
}

/// The policies of these names in the list at `place`.
fn resolve<'a>(names: &[String], known: &'a Known, place: &Place, mistakes: &mut Mistakes) -> Read<Vec<&'a Named>> {
    let mut wrong = |message: &dyn Fn() -> String| {
        mistakes.add_with(place.clone(), message);
        Read::Wrong
    };
    if names.is_empty() {
        return wrong(&|| "an empty list, so nothing would be limited; name at least one policy".to_owned());
    }
    if names.len() > Check::MAX_CHARGES {
        return wrong(&|| format!("{} policies are too many; name at most {}", names.len(), Check::MAX_CHARGES));
    }
    let mut policies: Vec<&Named> = Vec::with_capacity(names.len());
    for name in names {
        if known.is_unlimited(name) {
            return wrong(&|| {
                format!("{name:?} is an unlimited plan, which only code gets; write exempt = true in a route")
            });
        }
        let Some(found) = known.find(name) else {
            return wrong(&|| unknown(name, known));
        };
        if policies.iter().any(|(other, _)| *other == found.0) {
            return wrong(&|| format!("{name:?} is in the list twice; leave one of the two out"));
        }
        policies.push(found);
    }
    Read::Value(policies)
}

fn unknown(name: &str, known: &Known) -> String {
    let known = known.all.iter().map(|(name, _)| name.as_str());
    let shown = cut(name, NAME);
    match known.len() {
        0 => format!("no policy is called {shown:?}; add [policies.{shown}] with a rate"),
        _ => format!("no policy is called {shown:?}; write one of {}", nearest(name, known)),
    }
}

/// Reads the costs under single policies.
fn costs(value: Tree, place: &Place, mistakes: &mut Mistakes) -> Vec<(String, u64)> {
    let (mut costs, mut names) = (Vec::new(), HashSet::new());
    for (name, value) in entries(value, place, mistakes).unwrap_or_default() {
        if names.contains(&name.to_ascii_lowercase()) {
            mistakes.add(place.at(&name), "this policy has a cost already (case is ignored); leave one of the two out");
            continue;
        }
        match section::whole(&fields::COSTS, value) {
            Ok(cost) => {
                names.insert(name.to_ascii_lowercase());
                costs.push((name, cost));
            }
            Err(message) => mistakes.add(place.at(&name), message),
        }
    }
    costs
}
