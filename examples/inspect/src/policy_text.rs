//! A policy as `--policy` writes it.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::{ConfigError, Policy, limits::LimitsConfig, policy::HoldSettings};

/// Reads `60/min,algorithm=counter`, `100000/min,holds` or `concurrent:4`. Apart from holds, slots and leases, the
/// words are those of a limits file, so that both mean the same.
pub(crate) fn parse(name: &str, text: &str) -> Result<Policy, String> {
    let mut settings = text.split(',');
    let rate = settings.next().unwrap_or_default();
    if let Some(slots) = rate.strip_prefix("concurrent") {
        return concurrent(name, slots, settings.next());
    }
    let mut words = Map::from_iter([("rate".to_owned(), rate.into())]);
    let mut holding = Holding::default();
    for setting in settings {
        let (word, value) = setting.split_once('=').map_or((setting, None), |(word, value)| (word, Some(value)));
        let is_repeated = match (word, value) {
            ("holds", None) => std::mem::replace(&mut holding.holds, true),
            ("holds", Some(_)) => return Err(wrong(name, &format!("holds has no value: write {name}=RATE,holds"))),
            ("ttl" | "typical" | "longest" | "unsettled", _) => {
                return Err(wrong(name, &format!("leave out {word}: it does not change where units are held")));
            }
            ("lease", Some(value)) => {
                let units = value.parse();
                let units = units.map_err(|_| {
                    wrong(name, &format!("lease: {value:?} is not a number of units: write lease=20000"))
                })?;
                holding.lease.replace(units).is_some()
            }
            (_, None) => {
                return Err(wrong(name, &format!("{word:?} has no value: write {word}=VALUE, or holds")));
            }
            (_, Some(value)) => words.insert(word.to_owned(), setting_value(value)).is_some(),
        };
        if is_repeated {
            return Err(wrong(name, &format!("{word} is there twice")));
        }
    }
    let policy = in_words_of_a_file(name, words)?;
    holding.apply(policy).map_err(|error| wrong(name, &error.to_string()))
}

/// The settings of a policy that has units in holds.
#[derive(Default)]
struct Holding {
    holds: bool,
    lease: Option<u64>,
}

impl Holding {
    fn apply(self, mut policy: Policy) -> Result<Policy, ConfigError> {
        if self.holds {
            policy = policy.with_holds(HoldSettings::new());
        }
        if let Some(units) = self.lease {
            policy = policy.with_lease(units);
        }
        policy.validated()
    }
}

/// A concurrency limit. `slots` is what follows `concurrent`, and `setting` what follows the comma behind it.
fn concurrent(name: &str, slots: &str, setting: Option<&str>) -> Result<Policy, String> {
    let Some(slots) = slots.strip_prefix(':') else {
        return Err(wrong(name, &format!("write the number of slots: {name}=concurrent:4")));
    };
    let number = slots.parse();
    let number =
        number.map_err(|_| wrong(name, &format!("{slots:?} is not a number of slots: write {name}=concurrent:4")))?;
    // A concurrency limit has holds by itself.
    if let Some(setting) = setting.filter(|setting| *setting != "holds") {
        let word = setting.split_once('=').map_or(setting, |(word, _)| word);
        return Err(wrong(name, &format!("a concurrency limit has no {word:?}: leave it out")));
    }
    Policy::concurrent(name, number).map_err(|error| wrong(name, &error.to_string()))
}

fn in_words_of_a_file(name: &str, words: Map<String, Value>) -> Result<Policy, String> {
    let file = json!({ "policies": { name: words }, "default": { "policies": [name] } });
    let limits = LimitsConfig::deserialize(file).map_err(|error| as_arguments(name, &error.to_string()))?;
    limits.policy(name).cloned().ok_or_else(|| wrong(name, "this name cannot be used"))
}

fn wrong(name: &str, message: &str) -> String {
    format!("--policy {name}: {message}")
}

/// The value as a limits file has it: a number, a share of the limit, a flag, a ban such as `20/10m`, or a word.
fn setting_value(text: &str) -> Value {
    if let Ok(number) = text.parse::<u64>() {
        return number.into();
    }
    // Rust also reads `inf` and `nan` as numbers, which JSON does not have.
    if let (true, Ok(share)) = (text.contains('.'), text.parse::<f64>()) {
        return share.into();
    }
    match (text, text.split_once('/')) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Some((denials, duration))) => json!({ "denials": setting_value(denials), "for": duration }),
        _ => text.into(),
    }
}

/// The mistakes in the words of the command line: `--policy per-client: rate: ...`.
fn as_arguments(name: &str, mistakes: &str) -> String {
    // A place has a name with a dot or a slash in quotes.
    let tables = [format!("policies.{name}."), format!("policies.\"{name}\".")];
    let mistakes = mistakes.lines().map(|mistake| {
        let (place, message) = mistake.split_once(": ").unwrap_or(("", mistake));
        let place = tables.iter().find_map(|table| place.strip_prefix(table)).unwrap_or_default();
        let separator = if place.is_empty() { "" } else { ": " };
        let slots = if place == "rate" { "; or concurrent:4 for a concurrency limit" } else { "" };
        wrong(name, &format!("{place}{separator}{message}{slots}"))
    });
    mistakes.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate::Algorithm;

    use super::*;

    fn policy(text: &str) -> Result<Policy, String> {
        let (name, settings) = text.split_once('=').unwrap();
        parse(name, settings)
    }

    #[test]
    fn a_policy_is_what_the_methods_of_policy_build() {
        assert_eq!(policy("per-client=60/min"), Ok(Policy::per_minute("per-client", 60).unwrap()));
        let bucket = Policy::per_second("api", 100).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(20);
        assert_eq!(policy("api=100/s,algorithm=token-bucket,burst=20"), Ok(bucket));
        let coarse = Policy::per_day("quota", 9_500).unwrap().with_resolution(Duration::from_secs(86));
        assert_eq!(policy("quota=9500/day,resolution=86s"), Ok(coarse));
        let login = Policy::per_minute("login", 5).unwrap().ban_after(20, Duration::from_secs(600));
        assert_eq!(policy("login=5/min,ban-after=20/10m"), Ok(login));
        let near = Policy::per_minute("near", 60).unwrap().with_near_limit(0.75);
        assert_eq!(policy("near=60/min,near-limit=0.75"), Ok(near));
        let shared = Policy::new("shared", 100, Duration::from_secs(90)).unwrap().with_shards(8);
        assert_eq!(policy("shared=100/90s,shards=8"), Ok(shared));
        let tokens = Policy::per_minute("tokens", 100_000).unwrap().with_holds(HoldSettings::new());
        assert_eq!(policy("tokens=100000/min,holds"), Ok(tokens.clone()));
        let leased = tokens.with_lease(20_000);
        assert_eq!(policy("tokens=100000/min,lease=20000"), Ok(leased.clone()));
        assert_eq!(policy("tokens=100000/min,holds,lease=20000"), Ok(leased));
        let streams = Policy::concurrent("streams", 4).unwrap();
        assert_eq!(policy("streams=concurrent:4"), Ok(streams.clone()));
        assert_eq!(policy("streams=concurrent:4,holds"), Ok(streams));
    }

    #[test]
    fn a_wrong_policy_is_a_message_that_names_the_option_and_the_setting() {
        for (text, expected) in [
            ("per-client=fast", "--policy per-client: rate: "),
            ("per-client=0/min", "--policy per-client: rate: "),
            ("api.v1=fast", "--policy api.v1: rate: "),
            ("api/v1=60/min,ban-after=x/10m", "--policy api/v1: ban-after.denials: "),
            ("near=60/min,near-limit=1.5", "--policy near: near-limit: "),
            ("near=60/min,near-limit=nan", "--policy near: near-limit: \"nan\" is not a share"),
            ("per client=60/min", "--policy per client: "),
            ("p=60/min,burst=5", "--policy p: burst: only a token bucket has a burst"),
            ("p=60/min,brst=5", "--policy p: brst: "),
            ("p=60/min,algorithm", "--policy p: \"algorithm\" has no value"),
            ("p=60/min,shards=2,shards=3", "--policy p: shards is there twice"),
            ("p=60/min,ban-after=x/10m", "--policy p: ban-after.denials: "),
        ] {
            let message = policy(text).unwrap_err();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
