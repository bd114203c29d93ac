//! What loads, and what is refused.

use std::path::Path;

use tollgate_envoy::{Config, Options};

use crate::support::redis_server::Directory;

fn refusal(yaml: &str) -> String {
    let folder = Directory::new();
    let path = folder.write("limits.yaml", yaml);
    let mistakes = Config::load(Path::new(&path), false).expect_err(yaml).to_string();
    mistakes.replace(&path, "limits.yaml")
}

#[test]
fn every_field_of_the_reference_and_of_this_service_loads() {
    let yaml = r#"---
domain: shop
descriptors:
  - key: tier
    value: gold
    descriptors:
      - key: user
        rate_limit: { unit: Minute, requests_per_unit: 100, name: gold-users }
      - key: user
        value: "17"
        shadow_mode: true
        rate_limit: { unit: minute, requests_per_unit: 0 }
  - key: path
    value: files/*
    share_threshold: true
    value_to_metric: true
    rate_limit: { unit: week, requests_per_unit: 5, replaces: [{ name: gold-users }] }
  - key: service
    value: one
    quota_mode: true
    metadata: { route: { name: one, weight: 3, on: true, list: [a] } }
    rate_limit: { unit: day, requests_per_unit: 7 }
  - key: free
    detailed_metric: true
    rate_limit: { unlimited: true }
  - key: also
    rate_limit: &limit { unit: year, requests_per_unit: 4294967295, unit_multiplier: 1, algorithm: fixed }
  - key: alias
    rate_limit: *limit
  - key: bucket
    rate_limit: { window: 90s, requests_per_unit: 10, algorithm: token-bucket, burst: 20, on_store_failure: open }
  - key: coarse
    rate_limit: { window: 90s, requests_per_unit: 10, algorithm: log, resolution: 500ms, on_store_failure: closed }
  - key: slots
    rate_limit: { concurrent: 3, hold_ttl: 2m }
  - key: tokens
    rate_limit: { unit: minute, requests_per_unit: 1000, hold_ttl: 2m }
  - key: hot
    rate_limit: { unit: minute, requests_per_unit: 100000, lease: 100 }
  - key: after
    rate_limit: { unit: minute, requests_per_unit: 100000, record: true }
  - { key: nothing, value: 5, rate_limit: }
"#;
    let folder = Directory::new();
    let loaded = Config::load(Path::new(&folder.write("limits.yaml", yaml)), false);
    assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
}

#[test]
fn each_mistake_is_refused_at_its_place() {
    let of = |line: &str| format!("domain: d\ndescriptors:\n  - {line}\n");
    let limit = |limit: &str| of(&format!("{{ key: k, rate_limit: {{ {limit} }} }}"));
    for (yaml, expected) in [
        ("".to_owned(), ":1:1: the file is empty"),
        ("descriptors: []".to_owned(), ":1:1: domain is missing or empty"),
        ("domain: ''".to_owned(), ":1:1: domain is missing or empty"),
        ("domain: d\ndescriptors: {}".to_owned(), ":2:14: descriptors is a map; write a list"),
        ("domain: d\nname: x".to_owned(), ":2:1: name is no field here"),
        ("0.25: d".to_owned(), ":1:1: a key is a number; write text"),
        ("domain: d\n\t- x".to_owned(), "no YAML: "),
        ("domain: d\n---\ndomain: e".to_owned(), ":3:1: a second document"),
        ("domain: d\ndomain: e".to_owned(), ":2:1: domain is here twice"),
        (of("a"), ":3:5: a descriptor is text; write a map"),
        (of("[a]"), ":3:5: a descriptor is a list"),
        (of("{ value: v }"), ":3:5: key is missing or empty"),
        (of("{ key: '' }"), ":3:5: key is missing or empty"),
        (of("{ key: k, ratelimit: {} }"), ":3:15: ratelimit is no field here"),
        (of("{ key: k, shadow_mode: 3 }"), ":3:28: shadow_mode is a number; write true or false"),
        (of("{ key: k, share_threshold: true }"), "share_threshold needs a value with a *"),
        (of("{ key: k }\n  - { key: k }"), ":4:5: key k is here twice"),
        (of("{ key: k, value: v* }\n  - { key: k, value: v* }"), ":4:5: key k and value v* is here twice"),
        (of("{ key: k, value: v }\n  - { key: k, value: v }"), ":4:5: key k and value v is here twice"),
        (of("{ key: k, metadata: 3 }"), ":3:25: metadata is a number; write a map"),
        (limit("unit: minute"), "requests_per_unit is missing"),
        (limit("requests_per_unit: 1"), "unit is missing; write second, minute"),
        (limit("unit: fortnight, requests_per_unit: 1"), ":3:35: unit is \"fortnight\"; write second"),
        (limit("unit: unknown, requests_per_unit: 1"), "unit is \"unknown\"; write second"),
        (limit("unit: day, requestsperunit: 1"), ":3:40: requestsperunit is no field here"),
        (limit("unit: day, requests_per_unit: -1"), "requests_per_unit is -1; write a whole number from 0"),
        (limit("unit: day, requests_per_unit: 4294967296"), "requests_per_unit is 4294967296; write"),
        (limit("unit: day, requests_per_unit: 1.5"), "requests_per_unit is 1.5; write"),
        (limit("unit: day, requests_per_unit: '1'"), "requests_per_unit is 1; write"),
        (limit("unit: day, requests_per_unit: 1, unit_multiplier: 0"), "unit_multiplier is 0"),
        (limit("unit: year, requests_per_unit: 1, unit_multiplier: 2"), "use at most 366 days"),
        (limit("unlimited: true, unit: day"), ":3:52: unit beside unlimited"),
        (limit("unlimited: true, requests_per_unit: 1"), "requests_per_unit beside unlimited"),
        (limit("unit: day, window: 1h, requests_per_unit: 1"), "unit beside window"),
        (limit("unit: day, requests_per_unit: 1, name: ''"), "the name is empty"),
        (limit("unit: day, requests_per_unit: 1, replaces: [{ name: '' }]"), "the name is empty"),
        (limit("unit: day, requests_per_unit: 1, replaces: [{}]"), "an entry of replaces without a name"),
        (limit("unit: day, requests_per_unit: 1, name: n, replaces: [{ name: n }]"), "a limit cannot replace itself"),
        (
            limit("unit: day, requests_per_unit: 1, algorithm: best"),
            "algorithm is \"best\"; write one of: log, counter",
        ),
        (limit("unit: day, requests_per_unit: 1, burst: 5"), "only a token bucket has a burst"),
        (limit("unit: day, requests_per_unit: 1, lease: 5"), "a lease of 5 units is out of range"),
        (limit("unit: day, requests_per_unit: 1, on_store_failure: local"), "start the service with --instances"),
        (limit("unit: day, requests_per_unit: 1, hold_ttl: 5"), "hold_ttl is \"5\"; write a duration"),
        (limit("unit: day, requests_per_unit: 1, hold_ttl: 5m, record: true"), "record beside hold_ttl"),
        (limit("concurrent: 0"), "concurrent: 0 admits nothing"),
        (limit("concurrent: 3, unit: day"), "concurrent has no window"),
        (limit("concurrent: 3, requests_per_unit: 3"), "requests_per_unit beside concurrent"),
        (limit("concurrent: 3, algorithm: log"), "concurrent has no other field"),
    ] {
        let message = refusal(&yaml);
        assert!(message.contains(expected), "{yaml}\n{message}");
        assert!(message.starts_with("limits.yaml:"), "{message}");
    }
}

#[test]
fn metadata_of_aliases_is_bounded() {
    let mut lines = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: day, requests_per_unit: 1 }\n    \
                     metadata:\n      a0: &a0 [x]\n"
        .to_owned();
    for level in 1..6 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        lines += &format!("      a{level}: &a{level} [{items}]\n");
    }
    assert!(refusal(&lines).contains(":6:7: metadata has 10000 values or more"), "{}", refusal(&lines));
}

#[test]
fn all_mistakes_of_all_files_are_reported_at_once() {
    let folder = Directory::new();
    folder.write("a.yaml", "domain: d\ndescriptors:\n  - { key: k, rate_limit: { unit: day } }\n  - { kex: k }");
    folder.write("b.yml", "domain: d");
    folder.write("c.yaml", "domain: [");
    folder.write("notes.txt", "no domain");
    folder.write(".hidden.yaml", "no domain");
    let message = Config::load(Path::new(&folder.path("")), false).unwrap_err().to_string();
    for expected in [
        "a.yaml:3:27: requests_per_unit is missing",
        "a.yaml:4:5: key is missing",
        "a.yaml:4:7: kex is no field here",
        "b.yml:1:1: domain d has a file already",
        "c.yaml:",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    assert!(!message.contains("notes") && !message.contains("hidden"), "{message}");
}

#[test]
fn a_path_without_a_configuration_says_so() {
    let folder = Directory::new();
    let load = |path: &str| Config::load(Path::new(path), false).unwrap_err().to_string();
    assert!(load(&folder.path("")).contains("no file of this folder ends with .yaml"));
    assert!(load(&folder.path("absent")).contains("No such file"));
    assert!(load("/dev/zero").contains("no file"));
}

#[test]
fn wrong_arguments_say_what_to_write() {
    let read = |arguments: &[&str]| Options::read(arguments.iter().map(|argument| argument.to_string()));
    for (arguments, expected) in [
        (&[][..], "--config is missing"),
        (&["--config"], "--config needs a value"),
        (&["--config", "a", "--deadline", "15"], "write milliseconds, such as 15ms"),
        (&["--config", "a", "--listen", "here"], "--listen here: "),
        (&["--config", "a", "--headers", "best"], "--headers best: "),
        (&["--config", "a", "--fast", "yes"], "--fast is no option"),
    ] {
        let message = read(arguments).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    assert!(read(&["--config", "a", "--instances", "auto", "--deadline", "7ms"]).is_ok());
}
