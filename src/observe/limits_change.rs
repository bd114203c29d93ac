//! Changes of limits that are replaced while the service runs.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::error::OneLine;

/// An attempt to replace the limits of a `LiveLimits` (feature `serde`).
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LimitsChange {
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
    pub fn outcome(&self) -> &'static str {
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
