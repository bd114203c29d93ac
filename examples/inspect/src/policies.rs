//! The policies, from the command line or from the service's limits file.

use tollgate::{
    Policy,
    config::{LimitsConfig, LimitsFile},
};

use crate::{files::read_limits, policy_text::parse};

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
    let file: LimitsFile = toml::from_str(&read_limits(path)?).map_err(|error| format!("{path}: {error}"))?;
    file.check().map_err(|error| format!("{path}:\n{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_a_rate_needs_a_file() {
        assert!(read(&[], None).unwrap_err().starts_with("no policy: "));
        let message = read(&["per-client".to_owned()], None).unwrap_err();
        assert!(message.starts_with("--policy per-client: write a rate too"), "{message}");
    }
}
