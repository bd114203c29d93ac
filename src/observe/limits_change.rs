//! Changes of limits that are replaced while the service runs.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::OneLine;

/// An attempt to replace the limits of a `LiveLimits` (feature `serde`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[cfg_attr(not(any(feature = "watch", test)), expect(dead_code, reason = "made by live limits alone"))]
pub(crate) enum LimitsChange {
    /// New limits are in force for all requests that start from now on.
    Accepted {
        /// The watched file; `None` if `LiveLimits::replace` was called.
        file: Option<PathBuf>,
        /// The number of the limits in force: 1 for the first ones, one more for each replacement. Two threads may
        /// report two changes in either order.
        version: u64,
    },
    /// The new limits are refused, and the old ones stay in force.
    Refused {
        /// The watched file; `None` if `LiveLimits::replace` was called.
        file: Option<PathBuf>,
        /// What is wrong, as the parser of the file or the setter of a layer says it. It may have several lines.
        reason: String,
    },
    /// The watched file cannot be read, and the old limits stay in force. Reported once, until the file can be read
    /// again; then [`Accepted`](Self::Accepted) or [`Refused`](Self::Refused) follows.
    Unreadable {
        /// The watched file.
        file: PathBuf,
        /// Why the file cannot be read.
        reason: String,
    },
}

impl LimitsChange {
    /// The outcome in one word: `accepted`, `refused` or `unreadable`.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Refused { .. } => "refused",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}

/// A message of one line for operators. Lines of a reason are separated by ` | `, and other control characters, such as
/// those of a file's name, are escaped.
impl fmt::Display for LimitsChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { file: Some(file), version } => {
                write!(f, "New limits of {} are in force (version {version}).", shown(file))
            }
            Self::Accepted { file: None, version } => write!(f, "New limits are in force (version {version})."),
            Self::Refused { file, reason } => {
                f.write_str("New limits")?;
                if let Some(file) = file {
                    write!(f, " of {}", shown(file))?;
                }
                let mistakes: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
                write!(f, " are refused, and the old limits stay in force: {}", OneLine(mistakes.join(" | ")))
            }
            Self::Unreadable { file, reason } => write!(
                f,
                "The limits in {} cannot be read ({reason}), and the old limits stay in force. Restore the file.",
                shown(file),
                reason = OneLine(reason),
            ),
        }
    }
}

fn shown(file: &Path) -> OneLine<std::path::Display<'_>> {
    OneLine(file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer of the file could otherwise add lines to the log, hide lines or colour them.
    #[test]
    fn each_change_is_one_line_with_its_control_characters_escaped() {
        let reason = "a mistake\nWARN forged: \u{1b}[31mred\rover\u{2028}end".to_owned();
        let file = PathBuf::from("/etc/limits\nWARN forged.toml");
        for change in [
            LimitsChange::Refused { file: Some(file.clone()), reason: reason.clone() },
            LimitsChange::Unreadable { file: file.clone(), reason },
            LimitsChange::Accepted { file: Some(file), version: 2 },
        ] {
            let line = change.to_string();
            assert!(!line.contains(char::is_control) && !line.contains('\u{2028}'), "{line:?}");
            assert!(line.contains(r"/etc/limits\nWARN forged.toml"), "{line}");
            if change.outcome() != "accepted" {
                assert!(line.contains(r"\u{1b}[31mred\rover\u{2028}end"), "{line}");
            }
        }
    }
}
