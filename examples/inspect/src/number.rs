//! Numbers of things as the program prints them.

/// A number and what it counts: `1 hold`, `2 holds`.
pub(crate) fn number(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
