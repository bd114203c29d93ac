//! The policies, from the command line or from the service's limits file.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tollgate::{
    Policy,
    config::{LimitsConfig, LimitsError, LimitsFile},
};

use crate::files::read_text;

/// The policies of `--policy` and `--config`. A `--policy` without a rate names a policy of the file.
pub(crate) fn read(policies: &[String], file: Option<&str>) -> Result<Vec<Policy>, String> {
    let file = file.map(|path| read_file(path).map(|limits| (path, limits))).transpose()?;
    let mut read = Vec::new();
    for text in policies {
        read.push(match (text.split_once('='), &file) {
            (Some((name, settings)), _) => parse(name, settings)?,
            (None, Some((path, limits))) => in_file(text, path, limits)?,
            (None, None) => {
                return Err(format!(
                    "--policy {text}: write a rate too: {text}=60/min; or name the limits \
                                                file by --config"
                ));
            }
        });
    }
    match file {
        Some((_, limits)) if read.is_empty() => Ok(limits.policies().cloned().collect()),
        None if read.is_empty() => {
            Err("no policy: write --policy per-client=60/min, or name the limits file by --config".to_owned())
        }
        _ => Ok(read),
    }
}

fn in_file(name: &str, path: &str, limits: &LimitsConfig) -> Result<Policy, String> {
    limits.policy(name).cloned().ok_or_else(|| {
        let names: Vec<&str> = limits.policies().map(Policy::name).collect();
        format!("--policy {name}: {path} has no policy of this name; it has {}", names.join(", "))
    })
}

fn read_file(path: &str) -> Result<LimitsConfig, String> {
    let file: LimitsFile = toml::from_str(&read_text(path)?).map_err(|error| format!("{path}: {error}"))?;
    file.check().map_err(|error| format!("{path}:\n{error}"))
}

/// Reads `60/min,algorithm=counter` with the words of a limits file, so that both mean the same.
fn parse(name: &str, text: &str) -> Result<Policy, String> {
    let mut settings = text.split(',');
    let mut policy = Map::from_iter([("rate".to_owned(), settings.next().unwrap_or_default().into())]);
    for setting in settings {
        let (word, value) = setting
            .split_once('=')
            .ok_or_else(|| format!("--policy {name}: {setting:?} has no value: write {setting}=VALUE"))?;
        if policy.insert(word.to_owned(), setting_value(value)).is_some() {
            return Err(format!("--policy {name}: {word} is there twice"));
        }
    }
    let file = json!({ "policies": { name: policy }, "default": { "policies": [name] } });
    let file = LimitsFile::deserialize(file).map_err(|error| format!("--policy {name}: {error}"))?;
    let limits = file.check().map_err(|error| as_arguments(name, &error))?;
    limits.policy(name).cloned().ok_or_else(|| format!("--policy {name}: this name cannot be used"))
}

/// The value as a limits file has it: a number, a flag, a ban such as `20/10m`, or a word.
fn setting_value(text: &str) -> Value {
    if let Ok(number) = text.parse::<u64>() {
        return number.into();
    }
    match (text, text.split_once('/')) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Some((denials, duration))) => json!({ "denials": setting_value(denials), "for": duration }),
        _ => text.into(),
    }
}

/// The mistakes in the words of the command line: `--policy per-client: rate: ...`.
fn as_arguments(name: &str, error: &LimitsError) -> String {
    let mistakes = error.mistakes().iter().map(|mistake| {
        let place = mistake.place().rsplit_once(&format!("{name}.")).map_or("", |(_, setting)| setting);
        let separator = if place.is_empty() { "" } else { ": " };
        format!("--policy {name}: {place}{separator}{}", mistake.message())
    });
    mistakes.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate::Algorithm;

    use super::*;

    fn policy(text: &str) -> Result<Policy, String> {
        read(&[text.to_owned()], None).map(|mut policies| policies.remove(0))
    }

    #[test]
    fn a_policy_is_what_the_methods_of_policy_build() {
        assert_eq!(policy("per-client=60/min"), Ok(Policy::per_minute("per-client", 60).unwrap()));
        let bucket = Policy::per_second("api", 100).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(20);
        assert_eq!(policy("api=100/s,algorithm=token-bucket,burst=20"), Ok(bucket.unwrap()));
        let coarse = Policy::per_day("quota", 9_500).unwrap().with_resolution(Duration::from_secs(86)).unwrap();
        assert_eq!(policy("quota=9500/day,resolution=86s"), Ok(coarse));
        let login = Policy::per_minute("login", 5).unwrap().ban_after(20, Duration::from_secs(600)).unwrap();
        assert_eq!(policy("login=5/min,ban-after=20/10m"), Ok(login));
        let shared = Policy::new("shared", 100, Duration::from_secs(90)).unwrap().with_shards(8).unwrap();
        assert_eq!(policy("shared=100/90s,shards=8"), Ok(shared));
    }

    #[test]
    fn a_wrong_policy_is_a_message_that_names_the_option_and_the_setting() {
        for (text, expected) in [
            ("per-client", "--policy per-client: write a rate too"),
            ("per-client=fast", "--policy per-client: rate: "),
            ("per-client=0/min", "--policy per-client: rate: "),
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
        assert!(read(&[], None).unwrap_err().starts_with("no policy: "));
    }
}
