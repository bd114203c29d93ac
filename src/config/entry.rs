//! Reads the settings of requests: the default, and those of single routes.

use super::{
    fields::{self, Field, Table},
    mistake::Mistakes,
    place::Place,
    section::{Read, Section, entries},
    suggest::quoted,
    tree::Tree,
    values,
};
use crate::{check::Check, failure::FailurePolicy, policy::Policy};

/// A policy of the file by its name. `None` if the capacity of the policy has a mistake.
pub(super) type Named = (String, Option<Policy>);

/// The settings of a route or of the default, as they are read.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) place: Place,
    pub(super) is_exempt: bool,
    pub(super) policies: Read<Vec<&'a Named>>,
    pub(super) cost: Read<u32>,
    pub(super) costs: Vec<(String, u32)>,
    pub(super) failure: Option<FailurePolicy>,
}

impl<'a> Entry<'a> {
    pub(super) fn read(
        value: Tree,
        place: Place,
        table: &'static Table,
        known: &'a [Named],
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let mut section = Section::open(value, place, table, mistakes)?;
        let exempt = section.read(&fields::EXEMPT, mistakes, values::flag).value();
        if exempt == Some(true) {
            for field in table.fields.iter().filter(|field| section.has(field)) {
                let message = format!("an exempt route charges nothing; leave out {} or exempt", field.name);
                mistakes.add(section.place_of(field), message);
            }
        }
        let names = section.read(&fields::CHARGED, mistakes, values::names);
        let policies = match names {
            Read::Absent => Read::Absent,
            Read::Wrong => Read::Wrong,
            Read::Value(names) => match resolve(&names, known) {
                Ok(policies) => Read::Value(policies),
                Err(message) => {
                    mistakes.add(section.place_of(&fields::CHARGED), message);
                    Read::Wrong
                }
            },
        };
        let cost = section.read(&fields::COST, mistakes, cost);
        let failure = |_: &Field, value| values::word(&FailurePolicy::WORDS, &value);
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
    pub(super) fn cost_of(&self, name: &str) -> Option<&(String, u32)> {
        self.costs.iter().find(|(other, _)| other.eq_ignore_ascii_case(name))
    }
}

/// Reads a plain cost. 0 would lift the limit.
fn cost(field: &Field, value: Tree) -> Result<u32, String> {
    if value == Tree::Integer(0) {
        return Err(
            "a cost of 0 charges nothing, so nothing would be limited; write 1 or more, or exempt = true in a \
                    route"
                .to_owned(),
        );
    }
    values::whole(field, value)
}

/// The policies of these names.
fn resolve<'a>(names: &[String], known: &'a [Named]) -> Result<Vec<&'a Named>, String> {
    if names.is_empty() {
        return Err("an empty list, so nothing would be limited; name at least one policy".to_owned());
    }
    if names.len() > Check::MAX_CHARGES {
        return Err(format!("{} policies are too many; name at most {}", names.len(), Check::MAX_CHARGES));
    }
    let mut policies: Vec<&Named> = Vec::with_capacity(names.len());
    for name in names {
        let Some(found) = known.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)) else {
            let known = known.iter().map(|(name, _)| name.as_str());
            return Err(match known.len() {
                0 => format!("no policy is called {name:?}; add [policies.{name}] with a rate"),
                _ => format!("no policy is called {name:?}; write one of {}", quoted(known)),
            });
        };
        if policies.iter().any(|(other, _)| *other == found.0) {
            return Err(format!("{name:?} is in the list twice; leave one of the two out"));
        }
        policies.push(found);
    }
    Ok(policies)
}

/// Reads the costs under single policies.
fn costs(value: Tree, place: &Place, mistakes: &mut Mistakes) -> Vec<(String, u32)> {
    let mut costs: Vec<(String, u32)> = Vec::new();
    for (name, value) in entries(value, place, mistakes).unwrap_or_default() {
        if costs.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name)) {
            mistakes.add(place.at(&name), "this policy has a cost already (case is ignored); leave one of the two out");
            continue;
        }
        match values::whole(&fields::COSTS, value) {
            Ok(cost) => costs.push((name, cost)),
            Err(message) => mistakes.add(place.at(&name), message),
        }
    }
    costs
}
