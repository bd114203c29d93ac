//! Limits in a file: `tollgate::limits`.

mod fuzz;
mod lifting;
mod load;
mod meaning;
mod mistakes;
mod schema;
pub(crate) mod warnings;
mod words;

use tollgate::limits::{LimitsConfig, LimitsError, LimitsFile};

/// Checks a TOML file.
fn check(toml: &str) -> Result<LimitsConfig, LimitsError> {
    toml::from_str::<LimitsFile>(toml).unwrap().check()
}

/// A file with one policy, `p` of 60 a minute, and further text.
fn with_policy(text: &str) -> String {
    format!("policies.p.rate = \"60/min\"\ndefault.policies = [\"p\"]\n{text}")
}

/// The mistakes of a TOML file, a line each, sorted.
fn mistakes(toml: &str) -> Vec<String> {
    let error = check(toml).expect_err(toml).to_string();
    let mut lines: Vec<String> = error.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
