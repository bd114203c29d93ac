//! The policies, from the command line or from the service's limits file.

use tollgate::{Policy, limits::LimitsConfig};

use crate::{files::read_limits, policy_text::parse};

/// The limits of a file.
struct Limits {
    config: LimitsConfig,
    /// Whether the file says that nothing is refused.
    is_shadow: bool,
}

/// The policies of `--policy` and `--config`. A `--policy` without a rate names a policy of the file.
pub(crate) fn read(policies: &[String], file: Option<&str>) -> Result<Vec<Policy>, String> {
    let file = file.map(|path| Limits::read(path).map(|limits| (path, limits))).transpose()?;
    let mut read = Vec::new();
    for text in policies {
        read.push(match (text.split_once('='), &file) {
            (Some((name, settings)), _) => parse(name, settings)?,
            (None, Some((path, limits))) => limits.policy(text, path)?,
            (None, None) => {
                return Err(format!(
                    "--policy {text}: write a rate too: {text}=60/min; or name the limits \
                                                file by --config"
                ));
            }
        });
    }
    match file {
        Some((_, limits)) if read.is_empty() => Ok(limits.policies().collect()),
        None if read.is_empty() => {
            Err("no policy: write --policy per-client=60/min, or name the limits file by --config".to_owned())
        }
        _ => Ok(read),
    }
}

impl Limits {
    fn read(path: &str) -> Result<Self, String> {
        let text = read_limits(path)?;
        let config: LimitsConfig = toml::from_str(&text).map_err(|error| format!("{path}:\n{error}"))?;
        let is_shadow = toml::from_str(&text).is_ok_and(|file: toml::Table| file.get("shadow") == Some(&true.into()));
        Ok(Self { config, is_shadow })
    }

    /// The policies as the service applies them, without blocked ones, which count nothing.
    fn policies(&self) -> impl Iterator<Item = Policy> {
        self.config.policies().filter(|policy| policy.limit() > 0).map(|policy| self.applied(policy))
    }

    fn applied(&self, policy: &Policy) -> Policy {
        // Under `shadow = true`, each policy acts as a shadow policy.
        if self.is_shadow { policy.clone().with_shadow(true) } else { policy.clone() }
    }

    fn policy(&self, name: &str, path: &str) -> Result<Policy, String> {
        if self.config.policy(name).is_some_and(|policy| policy.limit() == 0) {
            return Err(format!("--policy {name}: it is blocked in {path} and counts nothing; name another policy"));
        }
        self.config.policy(name).map(|policy| self.applied(policy)).ok_or_else(|| {
            let names: Vec<&str> = self.config.policies().map(Policy::name).collect();
            format!("--policy {name}: {path} has no policy of this name; it has {}", names.join(", "))
        })
    }
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

    #[test]
    fn the_policies_of_a_file_that_refuses_nothing_are_shadow_policies() {
        let file = std::env::temp_dir().join(format!("tollgate-inspect-{}.toml", std::process::id()));
        let are_shadow = |first_line: &str| {
            let text = "policies.login.rate = '5/min'\ndefault.policies = ['login']\n";
            std::fs::write(&file, format!("{first_line}\n{text}")).unwrap();
            let path = file.to_str();
            let (all, named) = (read(&[], path).unwrap(), read(&["login".to_owned()], path).unwrap());
            [all[0].is_shadow(), named[0].is_shadow()]
        };
        assert_eq!(are_shadow("shadow = true"), [true, true]);
        assert_eq!(are_shadow("shadow = false"), [false, false]);
        assert_eq!(are_shadow(""), [false, false]);
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_blocked_policy_of_a_file_has_nothing_to_show() {
        let file = std::env::temp_dir().join(format!("tollgate-inspect-blocked-{}.toml", std::process::id()));
        let text = "policies.login.rate = '5/min'\npolicies.suspended = { blocked = true, in-code = true }\n\
                    policies.staff.unlimited = true\ndefault.policies = ['login']\n";
        std::fs::write(&file, text).unwrap();
        let names: Vec<String> =
            read(&[], file.to_str()).unwrap().iter().map(|policy| policy.name().to_owned()).collect();
        assert_eq!(names, ["login"]);
        let message = read(&["suspended".to_owned()], file.to_str()).unwrap_err();
        assert!(message.starts_with("--policy suspended: it is blocked in "), "{message}");
        std::fs::remove_file(file).unwrap();
    }
}
