//! The JSON Schema of a file, made from the description of the fields.

use super::{
    fields::{FILE, Field, Keys, Kind, Rule, Table},
    json::Json,
};
use crate::policy::units;

/// The JSON Schema (draft 2020-12) of a file of limits. The text is also in `docs/limits.schema.json`.
///
/// Editors complete and check the fields of a file with it. The schema knows the fields, their types, ranges and words.
/// [`LimitsFile::check`](super::LimitsFile::check) also compares fields with each other, such as a cost with a limit.
///
/// # Examples
///
/// ```
/// let schema: serde_json::Value = serde_json::from_str(&tollgate::config::schema()).unwrap();
/// assert_eq!(schema["properties"]["routes"]["type"], "object");
/// ```
pub fn schema() -> String {
    let mut schema = vec![
        ("$schema", Json::text("https://json-schema.org/draft/2020-12/schema")),
        ("title", Json::text("Limits of tollgate")),
    ];
    schema.extend(table(&FILE));
    let mut text = Json::map(schema).to_string();
    text.push('\n');
    text
}

/// The keywords of a table.
fn table(table: &Table) -> Vec<(&'static str, Json)> {
    let properties = table.fields.iter().map(|field| (field.name, property(field)));
    let mut keywords = vec![
        ("type", Json::text("object")),
        ("properties", Json::map(properties)),
        ("additionalProperties", Json::Flag(false)),
    ];
    match table.required {
        [] => {}
        [one] => keywords.push(("required", names(one))),
        several => {
            let each = several.iter().map(|fields| Json::map([("required", names(fields))]));
            keywords.push(("anyOf", Json::list(each)));
        }
    }
    let rules: Vec<_> = table.fields.iter().filter_map(|field| Some((field.name, rule(field)?))).collect();
    if !rules.is_empty() {
        keywords.push(("dependentSchemas", Json::map(rules)));
    }
    keywords
}

fn names(fields: &[&'static Field]) -> Json {
    Json::list(fields.iter().map(|field| Json::text(field.name)))
}

fn property(field: &Field) -> Json {
    let mut keywords = vec![("description", Json::text(field.about))];
    keywords.extend(kind(&field.kind));
    Json::map(keywords)
}

/// What a field excludes or needs beside it. An exempt route is the only field whose rule depends on its value.
fn rule(field: &Field) -> Option<Json> {
    match &field.rule {
        Rule::Free => None,
        Rule::With(other, word) => {
            let value = Json::map([("const", Json::text(*word))]);
            Some(Json::map([
                ("properties", Json::map([(other.name, value)])),
                ("required", Json::list([Json::text(other.name)])),
            ]))
        }
        Rule::Without(others) => {
            let none =
                Json::map([("properties", Json::map(others.iter().map(|field| (field.name, Json::Flag(false)))))]);
            match field.kind {
                Kind::Flag => {
                    let set = Json::map([(
                        "properties",
                        Json::map([(field.name, Json::map([("const", Json::Flag(true))]))]),
                    )]);
                    Some(Json::map([("if", set), ("then", none)]))
                }
                _ => Some(none),
            }
        }
    }
}

/// The keywords of a value.
fn kind(kind: &Kind) -> Vec<(&'static str, Json)> {
    let pattern = |pattern: String| vec![("type", Json::text("string")), ("pattern", Json::Text(pattern))];
    match kind {
        Kind::Duration => pattern(units::duration_pattern()),
        Kind::Rate => pattern(units::rate_pattern()),
        Kind::Flag => vec![("type", Json::text("boolean"))],
        Kind::Text => vec![("type", Json::text("string"))],
        Kind::Names => vec![
            ("type", Json::text("array")),
            ("items", Json::map([("type", Json::text("string"))])),
            ("minItems", Json::Number(1)),
            ("uniqueItems", Json::Flag(true)),
        ],
        Kind::ShareOrOff => {
            let share =
                [("type", Json::text("number")), ("exclusiveMinimum", Json::Number(0)), ("maximum", Json::Number(1))];
            vec![("anyOf", Json::list([Json::map(share), Json::map([("const", Json::Flag(false))])]))]
        }
        Kind::FlagOrTable(fields) => {
            let flag = Json::map([("type", Json::text("boolean"))]);
            vec![("anyOf", Json::list([flag, Json::map(table(fields))]))]
        }
        Kind::Table(fields) => table(fields),
        Kind::TableOf(keys, each) => vec![
            ("type", Json::text("object")),
            ("propertyNames", Json::map([("pattern", Json::text(keys.pattern()))])),
            ("additionalProperties", Json::map(self::kind(each))),
        ],
        Kind::Whole { least, most } => {
            vec![("type", Json::text("integer")), ("minimum", Json::Number(*least)), ("maximum", Json::Number(*most))]
        }
        Kind::Word(words) => vec![("enum", Json::list(words.iter().map(|word| Json::text(*word))))],
    }
}

impl Keys {
    fn pattern(&self) -> &'static str {
        match self {
            Self::Policies => "^[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,63}$",
            Self::Routes => "^([A-Z]+ )?/",
        }
    }
}
