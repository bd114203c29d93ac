//! The denials that are counted beside a count, for inspection by hand. Reads the log that `lua/sliding_window_log.lua`
//! describes.

use std::time::Duration;

use redis::RedisResult;
use tokio::task::JoinSet;

use super::{ready::given_up, store::RedisStore};
use crate::{
    error::{Error, ErrorKind},
    key::Key,
    policy::Policy,
};

/// Commands that wait for their replies at the same time.
const AT_ONCE: usize = 256;

/// The bytes of a log that are read, and where the highest limit that has charged it is in them. While the first place
/// has 0, the limit is in the second one.
const BYTES: usize = 198;
const HIGHEST: [usize; 2] = [68, 192];

impl RedisStore {
    /// Looks up the arguments of [`ban_after`](Policy::ban_after) with which denials of `key` are counted beside its
    /// count under `policy`, for inspection by hand: the number of denials, and the duration. A header of a response
    /// does not name them. Whether the key is banned, a peek under a policy with these arguments says. Changes nothing.
    ///
    /// Only bans of one of these `durations` are found, or of the one that `policy` has: Redis has a key for each
    /// duration, and lists no keys of a subject without reading all keys. The number of denials is the largest one with
    /// which denials have been counted since there were none, or 1 if the value is no count of tollgate.
    ///
    /// # Errors
    ///
    /// [`Error`] if Redis does not answer each command within the deadline, or refuses one, or if `policy` can have no
    /// ban with one of the durations. The commands are `GETRANGE`, one for each duration. Breaker and failure policy do
    /// not apply.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tollgate::{Policy, RedisStore};
    ///
    /// # async fn login(store: RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Policy::per_minute("login", 5)?;
    /// for (denials, duration) in store.ban_settings("alice", &login, &[Duration::from_secs(600)]).await? {
    ///     println!("denials of alice are counted towards .ban_after({denials}, {duration:?})");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ban_settings(
        &self,
        key: impl Into<Key>,
        policy: &Policy,
        durations: &[Duration],
    ) -> Result<Vec<(u32, Duration)>, Error> {
        let client = &self.inner.client;
        let key = self.inner.key_hash.apply(&key.into());
        let connection = client.connect(&client.runtime()?.pool, client.keys.slot_of(&key)).await?;
        let own = policy.ban().and_then(Policy::window).filter(|own| !durations.contains(own));
        let durations: Vec<Duration> = durations.iter().copied().chain(own).collect();
        let mut found = Vec::new();
        for durations in durations.chunks(AT_ONCE) {
            let mut reads = JoinSet::new();
            for &duration in durations {
                let banning = policy.clone().ban_after(1, duration).validated()?;
                let Some(redis_key) = banning.ban().map(|ban| client.keys.text(&key, ban)) else { continue };
                let mut connection = connection.clone();
                reads.spawn(async move {
                    let mut command = redis::cmd("GETRANGE");
                    command.arg(redis_key).arg(0).arg(BYTES - 1);
                    (duration, connection.query(&command).await)
                });
            }
            while let Some(read) = reads.join_next().await {
                let Ok((duration, value)) = read else { return Err(given_up()) };
                let value: RedisResult<Vec<u8>> = value;
                match value.map_err(|error| client.failed(&connection, &error)) {
                    Ok(value) if value.is_empty() => {}
                    Ok(value) => found.push((denials(&value), duration)),
                    // A peek reports the value.
                    Err(error) if error.kind() == ErrorKind::BadKey => found.push((1, duration)),
                    Err(error) => return Err(error),
                }
            }
        }
        found.sort_unstable_by_key(|(_, duration)| *duration);
        Ok(found)
    }
}

/// The number of denials that lead to the ban: the highest limit that has charged the log of denials.
fn denials(log: &[u8]) -> u32 {
    let numbers = HIGHEST.into_iter().map(|at| {
        let bytes = log.get(at..at + 6).unwrap_or_default();
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    });
    let number = numbers.into_iter().find(|number| *number > 0).unwrap_or(1);
    u32::try_from(number).unwrap_or(u32::MAX)
}
