//! Limits that are replaced while the service runs.

mod limits;
#[cfg(feature = "watch")]
mod watch;

pub use self::limits::LiveLimits;
#[cfg(feature = "watch")]
pub use self::watch::LimitsFileError;
