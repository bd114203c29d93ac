//! The examples of envoyproxy/ratelimit, and the files that its tests expect to be refused.

use std::{fs, path::Path};

use tollgate_envoy::Config;

use crate::support::redis_server::Directory;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference");

fn load(path: &str) -> Result<Config, String> {
    Config::load(Path::new(path), false).map_err(|mistakes| mistakes.to_string())
}

#[test]
fn the_examples_of_the_reference_load() {
    for name in ["clusters", "database", "quota"] {
        load(&format!("{FOLDER}/loads/{name}.yaml")).unwrap();
    }
    // Also all at once.
    load(&format!("{FOLDER}/loads")).unwrap();
}

#[test]
fn the_wrong_files_of_the_reference_are_refused() {
    let all = [
        ("bad_limit_unit", "unit is \"foo\""),
        ("bad_yaml", "no YAML: "),
        ("duplicate_domain", "domain quota has a file already"),
        ("duplicate_key", "key tenant and value a is here twice"),
        ("empty_domain", "domain is missing or empty"),
        ("empty_key", "key is missing or empty"),
        ("misspelled_key", "ratelimit is no field here"),
        ("misspelled_key2", "requestsperunit is no field here"),
        ("non_map_list", "a descriptor is text; write a map"),
        ("non_string_key", "a key is a number; write text"),
        ("replaces_empty", "an entry of replaces without a name"),
        ("replaces_self", "a limit cannot replace itself"),
        ("unlimited_with_unit", "unit beside unlimited"),
        ("zero_unit_multiplier", "unit_multiplier is 0"),
    ];
    assert_eq!(fs::read_dir(format!("{FOLDER}/refused")).unwrap().count(), all.len());
    for (name, expected) in all {
        let path = format!("{FOLDER}/refused/{name}.yaml");
        let refusal = if name == "duplicate_domain" {
            let folder = Directory::new();
            folder.write("a.yaml", fs::read_to_string(format!("{FOLDER}/loads/quota.yaml")).unwrap());
            folder.write("b.yaml", fs::read_to_string(&path).unwrap());
            load(&folder.path(""))
        } else {
            load(&path)
        };
        let message = refusal.expect_err(name);
        assert!(message.contains(expected), "{name}: {message}");
    }
}
