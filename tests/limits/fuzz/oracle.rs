//! What a valid file means, read from its tree without the crate.

use serde_json::{Map, Value};

/// A request, and what it is charged.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) charges: Vec<(String, u64)>,
    pub(super) is_shadow: bool,
}

/// A request for each entry of the file that is not exempt. `{*rest}` of the root covers every request without a route
/// of its own.
pub(super) fn targets(file: &Value) -> Vec<Target> {
    let default = &file["default"];
    let routes: Vec<(&String, &Value)> = file["routes"].as_object().into_iter().flat_map(Map::iter).collect();
    let is_covered = routes.iter().any(|(route, _)| route.starts_with("/{*"));
    let mut entries: Vec<(&str, &Value)> = routes.iter().map(|(route, entry)| (route.as_str(), *entry)).collect();
    if !is_covered {
        entries.push(("/no/route/has/this/path", &Value::Null));
    }
    let limited = entries.into_iter().filter(|(_, entry)| entry["exempt"] != true);
    limited.map(|(route, entry)| target(file, route, entry, default)).collect()
}

fn target(file: &Value, route: &str, entry: &Value, default: &Value) -> Target {
    let (method, template) = route.split_once(' ').unwrap_or(("DELETE", route));
    let method = ["GET", "POST", "PUT", "DELETE"].into_iter().find(|known| *known == method).unwrap();
    let segments = template.split('/').map(|segment| if segment.starts_with('{') { "zz" } else { segment });
    let policies = entry["policies"].as_array().or(default["policies"].as_array()).unwrap();
    let names = policies.iter().map(|name| {
        let written = file["policies"].as_object().unwrap().keys();
        written.into_iter().find(|known| known.eq_ignore_ascii_case(name.as_str().unwrap())).unwrap()
    });
    let charges = names.map(|name| (name.clone(), cost(entry, default, name)));
    Target {
        method,
        path: segments.collect::<Vec<_>>().join("/"),
        charges: charges.collect(),
        is_shadow: file["shadow"] == true,
    }
}

fn cost(entry: &Value, default: &Value, policy: &str) -> u64 {
    let named = |settings: &Value| {
        let costs = settings["costs"].as_object()?;
        costs.iter().find(|(name, _)| name.eq_ignore_ascii_case(policy)).map(|(_, cost)| cost.clone())
    };
    let plain = |settings: &Value| settings.get("cost").cloned();
    let cost = named(entry).or_else(|| named(default)).or_else(|| plain(entry)).or_else(|| plain(default));
    cost.map_or(1, |cost| cost.as_u64().unwrap())
}
