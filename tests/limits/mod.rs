//! Limits in a file: `tollgate::limits`.

mod both_ends;
mod fuzz;
mod lifting;
mod load;
mod meaning;
mod mistakes;
mod schema;
pub(crate) mod warnings;
mod words;

use tollgate::limits::LimitsConfig;

/// Reads a TOML file. The error is the text with its mistakes.
fn check(toml: &str) -> Result<LimitsConfig, String> {
    toml::from_str::<LimitsConfig>(toml).map_err(|error| error.message().to_owned())
}

/// A file with one policy, `p` of 60 a minute, and further text.
fn with_policy(text: &str) -> String {
    format!("policies.p.rate = \"60/min\"\ndefault.policies = [\"p\"]\n{text}")
}

/// The mistakes of a TOML file, a line each, sorted.
fn mistakes(toml: &str) -> Vec<String> {
    let error = check(toml).expect_err(toml);
    let mut lines: Vec<String> = error.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}
