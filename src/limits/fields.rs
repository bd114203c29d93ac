//! All fields and words of a file. `docs/limits.schema.json` describes them to editors; the tests below and those of
//! `tests/limits/schema.rs` compare both.

use std::ops::RangeInclusive;

use crate::policy::Policy;

/// A table with fixed fields.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) fields: &'static [&'static Field],
    /// Names that are no fields of this table although a reader may expect them, and the reason.
    pub(super) refused: &'static [(&'static str, &'static str)],
}

/// A field of a table.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The range of its whole numbers, if it has any.
    pub(super) range: RangeInclusive<u64>,
}

/// The words of `unsettled`.
pub(super) const UNSETTLED_WORDS: [(&str, bool); 2] = [("charge", false), ("release", true)];

const fn field(name: &'static str) -> Field {
    Field { name, range: 0..=Policy::MAX_LIMIT }
}

const fn units(name: &'static str) -> Field {
    Field { name, range: 1..=Policy::MAX_LIMIT }
}

/// The file as a whole.
pub(super) static FILE: Table =
    Table { fields: &[&SCHEMA, &HEADERS, &SHADOW, &POLICIES, &DEFAULT, &ROUTES], refused: &[] };

pub(super) static SCHEMA: Field = field("$schema");
pub(super) static HEADERS: Field = field("headers");
pub(super) static SHADOW: Field = field("shadow");
pub(super) static POLICIES: Field = field("policies");
pub(super) static DEFAULT: Field = field("default");
pub(super) static ROUTES: Field = field("routes");

/// A policy.
pub(super) static POLICY: Table = Table {
    fields: &[
        &RATE,
        &LIMIT,
        &WINDOW,
        &CALENDAR,
        &STARTS,
        &ZONE,
        &CONCURRENT,
        &BLOCKED,
        &UNLIMITED,
        &ALGORITHM,
        &RESOLUTION,
        &BURST,
        &COUNT_REJECTED,
        &UNIT,
        &BAN_AFTER,
        &SHARDS,
        &HOLDS,
        &LEASE,
        &POLICY_SHADOW,
        &NEAR_LIMIT,
        &IN_CODE,
    ],
    refused: &[],
};

pub(super) static RATE: Field = field("rate");
pub(super) static LIMIT: Field = units("limit");
pub(super) static WINDOW: Field = field("window");
pub(super) static CALENDAR: Field = field("calendar");
pub(super) static STARTS: Field = field("starts");
pub(super) static ZONE: Field = field("zone");
pub(super) static CONCURRENT: Field = units("concurrent");
pub(super) static BLOCKED: Field = field("blocked");
pub(super) static UNLIMITED: Field = field("unlimited");
pub(super) static ALGORITHM: Field = field("algorithm");
pub(super) static RESOLUTION: Field = field("resolution");
pub(super) static BURST: Field = units("burst");
pub(super) static COUNT_REJECTED: Field = field("count-rejected");
pub(super) static UNIT: Field = field("unit");
pub(super) static BAN_AFTER: Field = field("ban-after");
pub(super) static SHARDS: Field = Field { name: "shards", range: 1..=64 };
pub(super) static HOLDS: Field = field("holds");
pub(super) static LEASE: Field = units("lease");
pub(super) static POLICY_SHADOW: Field = field("shadow");
pub(super) static NEAR_LIMIT: Field = field("near-limit");
pub(super) static IN_CODE: Field = field("in-code");

/// The fields that a concurrency limit does not have, because it has no window and charges nothing.
pub(super) static RATES_ONLY: [&Field; 14] = [
    &RATE,
    &LIMIT,
    &WINDOW,
    &CALENDAR,
    &STARTS,
    &ZONE,
    &ALGORITHM,
    &RESOLUTION,
    &BURST,
    &COUNT_REJECTED,
    &BAN_AFTER,
    &SHARDS,
    &LEASE,
    &NEAR_LIMIT,
];

/// The fields that a policy with a calendar does not have, because the calendar bounds its windows.
pub(super) static NOT_WITH_CALENDAR: [&Field; 5] = [&RATE, &WINDOW, &ALGORITHM, &RESOLUTION, &BURST];

/// The fields that a blocked policy does not have: it counts nothing.
pub(super) fn not_with_blocked() -> Vec<&'static Field> {
    all_but(&[&BLOCKED, &UNIT, &POLICY_SHADOW, &IN_CODE])
}

/// The fields that an unlimited plan does not have: it is no policy.
pub(super) fn not_with_unlimited() -> Vec<&'static Field> {
    all_but(&[&UNLIMITED, &IN_CODE])
}

fn all_but(kept: &[&Field]) -> Vec<&'static Field> {
    POLICY.fields.iter().copied().filter(|field| kept.iter().all(|kept| kept.name != field.name)).collect()
}

pub(super) static BAN: Table = Table { fields: &[&DENIALS, &FOR, &GROWING_TO], refused: &[] };

pub(super) static DENIALS: Field = Field { name: "denials", range: 1..=u32::MAX as u64 };
pub(super) static FOR: Field = field("for");
pub(super) static GROWING_TO: Field = field("growing-to");

pub(super) static HOLD_SETTINGS: Table = Table { fields: &[&TTL, &TYPICAL, &LONGEST, &WHEN_UNSETTLED], refused: &[] };

pub(super) static TTL: Field = field("ttl");
pub(super) static TYPICAL: Field = field("typical");
pub(super) static LONGEST: Field = field("longest");
pub(super) static WHEN_UNSETTLED: Field = field("unsettled");

/// Fields of a policy that a reader may expect in a route or in the default.
const OF_A_POLICY: &str = "this is a field of a policy; write it in [policies.NAME], and name that policy in policies";

/// The settings of requests without a route of their own.
pub(super) static DEFAULTS: Table = Table {
    fields: &[&CHARGED, &COST, &COSTS, &ON_STORE_FAILURE],
    refused: &[
        ("exempt", "an exempt default would leave almost every request without a limit; write exempt in single routes"),
        ("rate", OF_A_POLICY),
        ("concurrent", OF_A_POLICY),
        ("holds", OF_A_POLICY),
        ("lease", OF_A_POLICY),
    ],
};

/// The settings of a route.
pub(super) static ROUTE: Table = Table {
    fields: &[&CHARGED, &COST, &COSTS, &ON_STORE_FAILURE, &EXEMPT],
    refused: &[("rate", OF_A_POLICY), ("concurrent", OF_A_POLICY), ("holds", OF_A_POLICY), ("lease", OF_A_POLICY)],
};

pub(super) static CHARGED: Field = field("policies");
pub(super) static COST: Field = units("cost");
pub(super) static COSTS: Field = field("costs");
pub(super) static ON_STORE_FAILURE: Field = field("on-store-failure");
pub(super) static EXEMPT: Field = field("exempt");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::{failure::FailurePolicy, headers::HeaderStyle, limits::calendar, policy::Algorithm};

    const POLICY_AT: &str = "/properties/policies/additionalProperties";

    /// The part of the schema at this place.
    fn part<'a>(schema: &'a Value, place: &str) -> &'a Value {
        schema.pointer(place).unwrap_or_else(|| panic!("the schema has no {place}"))
    }

    fn schema() -> Value {
        serde_json::from_str(crate::limits::schema()).unwrap()
    }

    #[test]
    fn the_schema_has_the_fields_of_the_reader_and_their_ranges() {
        let schema = schema();
        for (place, table) in [
            (String::new(), &FILE),
            (POLICY_AT.to_owned(), &POLICY),
            (format!("{POLICY_AT}/properties/ban-after"), &BAN),
            (format!("{POLICY_AT}/properties/holds/anyOf/1"), &HOLD_SETTINGS),
            ("/properties/default".to_owned(), &DEFAULTS),
            ("/properties/routes/additionalProperties".to_owned(), &ROUTE),
        ] {
            let described = part(&schema, &place);
            assert_eq!(described["additionalProperties"], false, "{place}");
            let properties = described["properties"].as_object().unwrap();
            let known: BTreeSet<&str> = table.fields.iter().map(|field| field.name).collect();
            assert_eq!(properties.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "{place}");
            for field in table.fields {
                let property = &properties[field.name];
                assert!(property["description"].is_string(), "{place}: {} has no description", field.name);
                // A number, or a table of numbers.
                for number in [property, &property["additionalProperties"]] {
                    if number["type"] == "integer" {
                        let range = json!([number["minimum"], number["maximum"]]);
                        assert_eq!(range, json!([field.range.start(), field.range.end()]), "{place}: {}", field.name);
                    }
                }
            }
        }
    }

    #[test]
    fn the_schema_has_the_words_of_the_reader() {
        fn words<T>(pairs: &[(&'static str, T)]) -> Vec<&'static str> {
            pairs.iter().map(|(word, _)| *word).collect()
        }
        let schema = schema();
        for (place, words) in [
            ("/properties/headers".to_owned(), words(&HeaderStyle::WORDS)),
            (format!("{POLICY_AT}/properties/algorithm"), words(&Algorithm::WORDS)),
            (format!("{POLICY_AT}/properties/calendar"), words(&calendar::WORDS)),
            (format!("{POLICY_AT}/properties/holds/anyOf/1/properties/unsettled"), words(&UNSETTLED_WORDS)),
            ("/properties/default/properties/on-store-failure".to_owned(), words(&FailurePolicy::WORDS)),
            (
                "/properties/routes/additionalProperties/properties/on-store-failure".to_owned(),
                words(&FailurePolicy::WORDS),
            ),
        ] {
            assert_eq!(part(&schema, &place)["enum"], json!(words), "{place}");
        }
        let (not_with_blocked, not_with_unlimited) = (not_with_blocked(), not_with_unlimited());
        for (field, without) in [
            (&CONCURRENT, &RATES_ONLY[..]),
            (&CALENDAR, &NOT_WITH_CALENDAR),
            (&BLOCKED, &not_with_blocked),
            (&UNLIMITED, &not_with_unlimited),
        ] {
            let excluded = part(&schema, &format!("{POLICY_AT}/dependentSchemas/{}/properties", field.name));
            let names: BTreeSet<&str> = excluded.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(names, without.iter().map(|field| field.name).collect());
        }
    }
}
