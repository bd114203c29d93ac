//! `docs/limits.schema.json` and the reader refuse the same values.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};
use tollgate::limits::LimitsConfig;

fn schema() -> Value {
    serde_json::from_str(tollgate::limits::schema()).unwrap()
}

#[test]
fn the_schema_of_the_docs_is_the_one_that_the_function_returns() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/limits.schema.json");
    assert_eq!(fs::read_to_string(path).unwrap(), tollgate::limits::schema());
    // What the docs and the editors rely on.
    assert_eq!(schema()["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema()["required"], json!(["policies", "default"]));
}

const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
const RATE: &str = "^\\s*0*[1-9][0-9]*\\s*(/|per )\\s*[0-9]*\\s*(ms|s|m|h|d|(sec|second|min|minute|hour|day)s?)\\s*$";
const POLICY_NAME: &str = "^[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]{0,63}$";
const ROUTE: &str = "^([A-Z]+ )?/";

/// Whether the text has the pattern, which is one of the four of the schema.
fn has_pattern(pattern: &str, text: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_duration =
        |text: &str| ["ms", "s", "m", "h", "d"].into_iter().filter_map(|unit| text.strip_suffix(unit)).any(is_number);
    match pattern {
        DURATION => is_duration(text),
        RATE => text.split_once('/').or_else(|| text.split_once("per ")).is_some_and(|(units, window)| {
            let units = units.trim();
            let unit = window.trim().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
            let is_word = |word: &str| ["sec", "second", "min", "minute", "hour", "day"].contains(&word);
            let is_unit = ["ms", "s", "m", "h", "d"].contains(&unit) || is_word(unit.strip_suffix('s').unwrap_or(unit));
            is_number(units) && units.bytes().any(|byte| byte != b'0') && is_unit
        }),
        POLICY_NAME => {
            let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'*';
            let is_further = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+.^_`|~:/-".contains(&byte);
            text.len() <= 64 && text.bytes().next().is_some_and(is_first) && text.bytes().all(is_further)
        }
        ROUTE => {
            let path = text
                .split_once(' ')
                .filter(|(method, _)| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase()));
            path.map_or(text, |(_, path)| path).starts_with('/')
        }
        other => panic!("the schema has a pattern that this test does not know: {other}"),
    }
}

/// Whether a part of the schema admits the value. Knows the keywords of the file, and fails on any other.
fn admits(schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { return *schema == Value::Bool(true) };
    let fields = value.as_object();
    let all_fields = |holds: &dyn Fn(&str, &Value) -> bool| {
        fields.is_none_or(|fields| fields.iter().all(|(name, value)| holds(name, value)))
    };
    let number = |holds: &dyn Fn(f64) -> bool| value.as_f64().is_none_or(holds);
    keywords.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "title" | "description" | "then" => true,
        "type" => match rule.as_str().unwrap() {
            "array" => value.is_array(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "object" => value.is_object(),
            "string" => value.is_string(),
            other => panic!("{other}"),
        },
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "anyOf" => rule.as_array().unwrap().iter().any(|schema| admits(schema, value)),
        "if" => !admits(rule, value) || admits(&keywords["then"], value),
        "minimum" => number(&|number| number >= rule.as_f64().unwrap()),
        "exclusiveMinimum" => number(&|number| number > rule.as_f64().unwrap()),
        "maximum" => number(&|number| number <= rule.as_f64().unwrap()),
        "pattern" => value.as_str().is_none_or(|text| has_pattern(rule.as_str().unwrap(), text)),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| admits(rule, item))),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
        "uniqueItems" => value
            .as_array()
            .is_none_or(|items| items.iter().map(Value::to_string).collect::<BTreeSet<_>>().len() == items.len()),
        "required" => fields.is_none_or(|fields| {
            rule.as_array().unwrap().iter().all(|name| fields.contains_key(name.as_str().unwrap()))
        }),
        "properties" => all_fields(&|name, value| rule.get(name).is_none_or(|schema| admits(schema, value))),
        "propertyNames" => all_fields(&|name, _| admits(rule, &json!(name))),
        "additionalProperties" => all_fields(&|name, value| {
            keywords.get("properties").is_some_and(|known| known.get(name).is_some()) || admits(rule, value)
        }),
        "dependentSchemas" => all_fields(&|name, _| rule.get(name).is_none_or(|schema| admits(schema, value))),
        other => panic!("the schema has a keyword that this test does not know: {other}"),
    })
}

/// A file with all kinds of tables.
fn file() -> Value {
    json!({
        "policies": {
            "plain": { "rate": "60/min" },
            "bucket": { "limit": 60, "window": "1m", "algorithm": "token-bucket", "burst": 10 },
            "monthly": { "limit": 60, "calendar": "month", "starts": "15 09:00", "zone": "UTC" },
            "slots": { "concurrent": 3 },
            "suspended": { "blocked": true },
            "staff": { "unlimited": true },
            "held": { "rate": "9/s", "holds": { "ttl": "30s", "unsettled": "release" } },
            "banning": { "rate": "5/min", "ban-after": { "denials": 3, "for": "10m", "growing-to": "1d" } },
        },
        "default": { "policies": ["plain"] },
        "routes": {
            "/cheap": { "cost": 2 },
            "POST /login": { "policies": ["plain", "banning"], "costs": { "banning": 2 } },
            "/free": { "exempt": true },
        },
    })
}

/// The tables of that file, and their places in the schema.
const TABLES: [(&str, &str); 15] = [
    ("", ""),
    ("/policies/plain", POLICY),
    ("/policies/bucket", POLICY),
    ("/policies/monthly", POLICY),
    ("/policies/slots", POLICY),
    ("/policies/suspended", POLICY),
    ("/policies/staff", POLICY),
    ("/policies/held", POLICY),
    ("/policies/banning", POLICY),
    ("/policies/held/holds", "/properties/policies/additionalProperties/properties/holds/anyOf/1"),
    ("/policies/banning/ban-after", "/properties/policies/additionalProperties/properties/ban-after"),
    ("/default", "/properties/default"),
    ("/routes/~1cheap", ROUTES),
    ("/routes/POST ~1login", ROUTES),
    ("/routes/~1free", ROUTES),
];
const POLICY: &str = "/properties/policies/additionalProperties";
const ROUTES: &str = "/properties/routes/additionalProperties";

/// Values of all types and words, right for some fields and wrong for others.
fn values() -> Vec<Value> {
    let all = json!([
        true, false, -1, 0, 1, 2, 64, 65, 4_294_967_295_u64, 4_294_967_296_u64, 0.5, 1.5,
        1_099_511_627_776_u64, 1_099_511_627_777_u64,
        "", "60/min", "007/500ms", "0/s", "1/m", "fast", "9 per 2 minutes", "9 per s", "9per", "9/ 2 h ",
        "9/month", "9 s", "90s", "0s", "90", "367d", "1h30m",
        "month", "15 09:00", "+05:30", "log", "token-bucket", "open", "release", "draft-11", "none",
        [], ["plain"], ["plain", "plain"], ["slots"], [1], "plain",
        {}, { "unknown": 1 }, { "ttl": "1s" }, { "ttl": 1 }, { "plain": 1 }, { "plain": 0 }, { "a b": 1 },
        { "denials": 1, "for": "1s" }, { "denials": 0, "for": "1s" }, { "denials": 1 }
    ]);
    all.as_array().unwrap().clone()
}

/// What only the reader sees: it compares fields with each other and with the policies of the file.
const READER_ONLY: [&str; 18] = [
    "a concurrency limit always holds",
    "cannot grow to",
    "charged under no policy of this name",
    "either a ban or shards",
    "every cost is 0",
    "exclude each other",
    "is above the limit",
    "is out of range; use",
    "is not a start of a month",
    "is not a zone",
    "is not usable in a header",
    "is out of range; write \"1ms\"",
    "no policy is called",
    "only the log has a resolution",
    "shards are out of range",
    "takes more than 366 days to refill",
    "is too long; use at most 366 days",
    "is too short; use at least",
];

#[test]
fn the_schema_and_the_reader_refuse_the_same_values() {
    let (schema, mut unseen, mut unused) = (schema(), BTreeSet::new(), BTreeSet::from(READER_ONLY));
    let mut files = vec![file()];
    let mut with = |table: &str, name: &str, value: Option<&Value>| {
        let mut file = file();
        let fields = file.pointer_mut(table).unwrap().as_object_mut().unwrap();
        match value {
            Some(value) => fields.insert(name.to_owned(), value.clone()),
            None => fields.remove(name),
        };
        files.push(file);
    };
    for (table, place) in TABLES {
        let properties = schema.pointer(place).unwrap()["properties"].as_object().unwrap();
        for name in properties.keys() {
            with(table, name, None);
            values().iter().for_each(|value| with(table, name, Some(value)));
        }
        with(table, "unknown", Some(&json!(1)));
    }
    for name in ["a", "*", "A-b.c:d/e", "", "9a", "a b", "é", &"a".repeat(64), &"a".repeat(65)] {
        with("/policies", name, Some(&json!({ "rate": "1/s" })));
    }
    for name in ["/a", "GET /a", "a", "get /a", "GET a", " /a", ""] {
        with("/routes", name, Some(&json!({ "cost": 1 })));
    }
    assert!(files.len() > 4_000, "{}", files.len());
    for file in files {
        let read = serde_json::from_value::<LimitsConfig>(file.clone());
        match (read, admits(&schema, &file)) {
            (Ok(_), true) | (Err(_), false) => {}
            (Ok(_), false) => panic!("the schema refuses what the reader takes: {file}"),
            (Err(error), true) => {
                for line in error.to_string().lines() {
                    match READER_ONLY.into_iter().find(|message| line.contains(message)) {
                        Some(message) => _ = unused.remove(message),
                        None => _ = unseen.insert(line.to_owned()),
                    }
                }
            }
        }
    }
    assert!(unseen.is_empty(), "the schema takes what the reader refuses: {unseen:#?}, unused: {unused:#?}");
    assert!(unused.is_empty(), "the schema sees these, or no file has them: {unused:#?}");
}

/// The files that users copy.
#[test]
fn the_files_in_the_docs_are_accepted_without_a_warning() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let mut files = 0;
    for page in ["config-file.md", "plans.md"] {
        let page = fs::read_to_string(docs.join(page)).unwrap();
        let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for file in blocks.filter(|block| block.contains("[default]")) {
            assert_eq!(super::check(file).expect(file).warnings(), [], "{file}");
            files += 1;
        }
    }
    assert_eq!(files, 4);
}
