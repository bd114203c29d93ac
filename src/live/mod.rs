//! Limits that are replaced while the service runs.
//!
//! A limit that turns out to be wrong is changed at night, under load, and a restart would drop connections and empty
//! caches. A [`LiveLimits`] holds the [`LimitsConfig`](crate::config::LimitsConfig) of a service. Its layers and jobs
//! use new limits from the next request on, without a restart and without losing a count.
//!
//! # Rules
//!
//! 1. A request reads the limits once, when it starts, and uses them to its end: for its charges, its failure policy
//!    and the fields of its response. Two layers around one handler read the limits one after the other.
//! 2. New limits are checked before any of them takes effect, against every layer that follows them. If they do not
//!    fit, all old limits stay in force.
//! 3. A count belongs to a policy's name, algorithm, window, resolution and number of shards. As long as these stay the
//!    same, the count stays, whatever else changes.
//! 4. What a setter of a layer changes stays in force. All other settings follow the limits.
//! 5. A request that waits in [`Limiter::acquire`](crate::Limiter::acquire) keeps the policy that it was given.
//!
//! # What a change means
//!
//! | change | effect on the next request |
//! | --- | --- |
//! | limit lowered | units that were spent before count. A client that has spent more than the new limit is denied, with 0 available units, until enough units have left the window |
//! | limit raised | units that were spent before count, and the added units are available at once. A denial that a store remembers under the old limit does not apply |
//! | limit of a token bucket changed | the time until the bucket is full stays. At a higher rate this time is worth more units, so 6 missing units of 10 a minute become 12 of 20 a minute |
//! | burst changed | the time until the bucket is full stays, and the depth of the bucket is the new one |
//! | window, algorithm or resolution changed | the policy starts a new count at 0. The old count stays in the store until it expires, and is used again if the change is taken back before. A ban by hand belongs to the old count: the client is admitted, until the change is taken back or the client is [banned](crate::Limiter::ban) again |
//! | `shards` changed | the policy starts new counts at 0, so a client may spend the limit once more in this window |
//! | duration of a ban changed | denials count from 0, and bans end |
//! | denials of a ban changed | denials that were counted before count. A raised number may end a ban |
//! | policy removed | requests are not charged under it. Its count expires in the store |
//! | policy added | its count starts at 0, unless a policy of this form was in use within the last window |
//! | route added or removed, cost changed | the new cost is charged. Units that were charged before stay as they are |
//! | `exempt` switched | a route that becomes exempt is not charged. A route that is no longer exempt is charged from now on |
//! | failure policy changed | applies to checks that start from now on |
//! | header style changed | applies to the responses of requests that start from now on |
//!
//! While a count stays, a client is never admitted more than the largest limit in force in a window in which the limit
//! changes. A new count admits its whole limit, whatever was spent under the old one. Instances of a service read a
//! file at slightly different times; each applies the limits that it has read.
//!
//! # The default
//!
//! A file that is read again when it changes (feature `watch`):
//!
//! ```no_run
//! # #[cfg(feature = "watch")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tollgate::{Limiter, LiveLimits, MemoryStore, PeerIp};
//!
//! let live = LiveLimits::watch("limits.toml", |text| toml::from_str(text))?;
//! let limit = live.layer(Limiter::new(MemoryStore::new()), PeerIp::new())?;
//! # let _ = limit;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "watch"))]
//! # fn main() {}
//! ```
//!
//! # Customised
//!
//! A file that is read again on SIGHUP, with all mistakes as the error:
//!
//! ```no_run
//! use tokio::signal::unix::{SignalKind, signal};
//! use tollgate::{LiveLimits, config::{LimitsConfig, LimitsFile}};
//!
//! # type BoxError = Box<dyn std::error::Error + Send + Sync>;
//! fn read() -> Result<LimitsConfig, BoxError> {
//!     let text = std::fs::read_to_string("limits.toml")?;
//!     Ok(toml::from_str::<LimitsFile>(&text)?.check()?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let live = LiveLimits::new(read()?);
//! let mut hangups = signal(SignalKind::hangup())?;
//! while hangups.recv().await.is_some() {
//!     match read().and_then(|limits| Ok(live.replace(limits)?)) {
//!         Ok(()) => println!("new limits are in force"),
//!         Err(error) => eprintln!("the old limits stay in force: {error}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod limits;
mod report;
#[cfg(feature = "watch")]
mod watch;

pub use self::limits::LiveLimits;
#[cfg(feature = "watch")]
pub use self::watch::LimitsFileError;
