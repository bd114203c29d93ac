//! Random files: mostly the words of the format, with wrong values, unknown words, duplicates and nesting among them.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::support::random::Random;

/// A file as it is given to the reader.
#[derive(Debug)]
pub(super) enum Form {
    /// A tree without a text: values that no text limits.
    Tree(Value),
    Json(String),
    Toml(String),
}

const POLICIES: [&str; 6] = ["per-client", "login", "tokens", "a.b", "*", "Login"];
const ROUTES: [&str; 12] = [
    "/search",
    "POST /login",
    "GET /",
    "/users/{id}",
    "/mcp/{*rest}",
    "/{*rest}",
    "/users/{name}",
    "/search/",
    "PUT /search",
    "search",
    "get /x",
    "/a?b=c",
];

/// One of ten million values is worth a file of its own; most files have few mistakes, so that some are accepted.
pub(super) fn file(random: &mut Random) -> Form {
    let mut writer = Writer { mistakes: random.pick(&[0, 0, 40, 12]), random };
    let tree = writer.file();
    match random.index(8) {
        0 => Form::Json(damaged(tree.to_string(), random)),
        1 | 2 => {
            let mut text = String::new();
            toml_table(&mut text, &tree);
            Form::Toml(damaged(text, random))
        }
        _ => Form::Tree(tree),
    }
}

/// Sometimes repeats or removes a part of the text.
fn damaged(text: String, random: &mut Random) -> String {
    if !random.one_in(8) {
        return text;
    }
    let characters: Vec<char> = text.chars().collect();
    let (one, other) = (random.index(characters.len() + 1), random.index(characters.len() + 1));
    let (first, last) = (one.min(other), one.max(other));
    let twice = random.one_in(2);
    let part = &characters[first..last];
    let middle = if twice { [part, part].concat() } else { Vec::new() };
    characters[..first].iter().chain(&middle).chain(&characters[last..]).collect()
}

struct Writer<'a> {
    random: &'a mut Random,
    /// One value of this number is wrong, on average; 0: none.
    mistakes: usize,
}

impl Writer<'_> {
    fn is_wrong(&mut self) -> bool {
        self.mistakes > 0 && self.random.one_in(self.mistakes)
    }

    fn file(&mut self) -> Value {
        let mut file = Map::new();
        let mut policies = Map::new();
        let (first, count) = (self.random.index(POLICIES.len()), 1 + self.random.index(3));
        let names: Vec<&str> = POLICIES.into_iter().cycle().skip(first).take(count).collect();
        for name in &names {
            let policy = self.policy();
            self.insert(&mut policies, name, policy);
        }
        self.insert(&mut file, "policies", Value::Object(policies));
        let mut default = self.entry(&names);
        default.entry("policies").or_insert_with(|| json!([names[0]]));
        self.insert(&mut file, "default", Value::Object(default));
        let mut routes = Map::new();
        for _ in 0..self.random.index(4) {
            let valid = if self.mistakes == 0 { 6 } else { ROUTES.len() };
            let route = ROUTES[self.random.index(valid)];
            let entry = if self.random.one_in(4) { exempt() } else { self.entry(&names) };
            self.insert(&mut routes, route, Value::Object(entry));
        }
        self.insert(&mut file, "routes", Value::Object(routes));
        if self.random.one_in(3) {
            let style = self.random.pick(&["draft-11", "x-ratelimit", "envoy", "none", "openai", "tower-governor"]);
            self.insert(&mut file, "headers", json!(style));
        }
        if self.random.one_in(10) {
            let shadow = self.random.one_in(2);
            self.insert(&mut file, "shadow", json!(shadow));
        }
        Value::Object(file)
    }

    fn policy(&mut self) -> Value {
        let mut policy = Map::new();
        if self.random.one_in(8) {
            let slots = self.random.pick(&[1, 3, 60]);
            self.insert(&mut policy, "concurrent", json!(slots));
            if self.random.one_in(2) {
                let settings = [json!(true), json!({}), json!({"ttl": "10m", "unsettled": "release"})];
                let holds = settings[self.random.index(settings.len())].clone();
                self.insert(&mut policy, "holds", holds);
            }
            return Value::Object(policy);
        }
        if self.random.one_in(3) {
            let limit = self.random.pick(&[1, 2, 60, 4_294_967_296_u64, 1_099_511_627_776]);
            self.insert(&mut policy, "limit", json!(limit));
            let window = self.random.pick(&["1ms", "90s", "5m", "2h", "366d"]);
            self.insert(&mut policy, "window", json!(window));
        } else {
            let rates =
                ["3/s", "60/min", "100/hour", "9500/day", "3/500ms", "20/sec", "7/366d", "5/m", "9 per 2 minutes"];
            let rate = self.random.pick(&rates);
            self.insert(&mut policy, "rate", json!(rate));
        }
        let has_calendar = self.random.one_in(8);
        if has_calendar {
            policy = Map::new();
            let limit = self.random.pick(&[1, 2, 60, 1_099_511_627_776_u64]);
            self.insert(&mut policy, "limit", json!(limit));
            let (calendar, starts) = self.random.pick(&[("day", "09:00"), ("month", "31 23:59"), ("year", "02-29")]);
            self.insert(&mut policy, "calendar", json!(calendar));
            self.insert(&mut policy, "starts", json!(starts));
            let zone = self.random.pick(&["UTC", "+05:30", "America/Havana"]);
            self.insert(&mut policy, "zone", json!(zone));
        }
        match self.random.index(8) {
            _ if has_calendar => {}
            0 => self.insert(&mut policy, "resolution", json!("1ms")),
            1 => self.insert(&mut policy, "algorithm", json!("counter")),
            2 => self.insert(&mut policy, "algorithm", json!("fixed")),
            3 => {
                self.insert(&mut policy, "algorithm", json!("token-bucket"));
                let burst = self.random.pick(&[1, 3, 100]);
                self.insert(&mut policy, "burst", json!(burst));
            }
            _ => {}
        }
        match self.random.index(16) {
            12 => self.insert(&mut policy, "holds", json!(true)),
            13 => self.insert(&mut policy, "holds", json!({"ttl": "5m", "typical": "2s", "unsettled": "release"})),
            14 => self.insert(&mut policy, "lease", json!(1)),
            15 => self.insert(&mut policy, "in-code", json!(true)),
            0 => self.insert(&mut policy, "count-rejected", json!(true)),
            1 => self.insert(&mut policy, "unit", json!("content-bytes")),
            2 => self.insert(&mut policy, "ban-after", json!({"denials": 3, "for": "10m", "growing-to": "1d"})),
            3 => self.insert(&mut policy, "shards", json!(2)),
            4 => self.insert(&mut policy, "shadow", json!(true)),
            5 => self.insert(&mut policy, "near-limit", json!(0.5)),
            6 => self.insert(&mut policy, "near-limit", json!(false)),
            _ => {}
        }
        Value::Object(policy)
    }

    fn entry(&mut self, names: &[&str]) -> Map<String, Value> {
        let mut entry = Map::new();
        if self.random.one_in(2) {
            let first = self.random.index(names.len());
            let mut chosen: Vec<&str> = names[first..].to_vec();
            chosen.dedup();
            self.insert(&mut entry, "policies", json!(chosen));
        }
        if self.random.one_in(3) {
            let cost = self.random.pick(&[1, 1, 2, 3, 60]);
            self.insert(&mut entry, "cost", json!(cost));
        }
        if self.random.one_in(4) {
            let cost = self.random.pick(&[0, 1, 2]);
            let name = self.random.index(names.len());
            self.insert(&mut entry, "costs", json!({ names[name]: cost }));
        }
        if self.random.one_in(4) {
            let failure = self.random.pick(&["open", "closed", "local"]);
            self.insert(&mut entry, "on-store-failure", json!(failure));
        }
        entry
    }

    /// Inserts a value, or sometimes a wrong value or a wrong key.
    fn insert(&mut self, table: &mut Map<String, Value>, key: &str, value: Value) {
        let value = if self.is_wrong() { wrong(self.random) } else { value };
        let key = if self.is_wrong() { wrong_key(key, self.random) } else { key.to_owned() };
        table.insert(key, value);
    }
}

fn exempt() -> Map<String, Value> {
    Map::from_iter([("exempt".to_owned(), json!(true))])
}

fn wrong_key(key: &str, random: &mut Random) -> String {
    match random.index(6) {
        0 => String::new(),
        1 => key.to_uppercase(),
        2 => key.replace('-', "_"),
        3 => format!("{key}s"),
        4 => "ключ \u{0} \" \\ \n".to_owned(),
        _ => "exempt".to_owned(),
    }
}

fn wrong(random: &mut Random) -> Value {
    match random.index(20) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(u64::MAX),
        5 => json!(i64::MIN),
        6 => json!(1_099_511_627_777_u64),
        7 => json!(1.5),
        8 => json!(1e308),
        9 => json!(""),
        10 => json!("0/min"),
        11 => json!("99999999999999999999999/day"),
        12 => json!("5/99999999999999999999d"),
        13 => json!("５/min"),
        14 => json!("\u{202e}nim/06 \u{0}"),
        15 => json!([]),
        16 => json!({}),
        17 => json!(["per-client", "per-client"]),
        18 => json!("x".repeat(random.index(2_000))),
        _ => {
            let mut nested = json!("deep");
            for level in 0..random.index(60) {
                nested = if level % 2 == 0 { json!([nested]) } else { json!({ "policies": nested }) };
            }
            nested
        }
    }
}

/// Writes a table as the entries of a TOML document, each with a value on one line.
fn toml_table(text: &mut String, table: &Value) {
    for (key, value) in table.as_object().unwrap() {
        write!(text, "{} = ", toml_text(key)).unwrap();
        toml_value(text, value);
        text.push('\n');
    }
}

fn toml_value(text: &mut String, value: &Value) {
    match value {
        // TOML has no null, but values that JSON lacks.
        Value::Null => text.push_str(["nan", "-inf", "1979-05-27", "07:32:00"][text.len() % 4]),
        Value::Bool(_) | Value::Number(_) => write!(text, "{value}").unwrap(),
        Value::String(string) => text.push_str(&toml_text(string)),
        Value::Array(values) => {
            text.push('[');
            for value in values {
                toml_value(text, value);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(entries) => {
            text.push('{');
            for (number, (key, value)) in entries.iter().enumerate() {
                let comma = if number == 0 { "" } else { ", " };
                write!(text, "{comma}{} = ", toml_text(key)).unwrap();
                toml_value(text, value);
            }
            text.push('}');
        }
    }
}

/// A JSON string is a basic string of TOML.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}
