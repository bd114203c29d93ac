//! The open holds beside a count, for inspection by hand. Reads the sorted set that `lua/holds.lua` describes.

use std::time::Duration;

use redis::RedisResult;

use super::{call::client::Client, net::routed::RoutedConnection, store::RedisStore};
use crate::{error::Error, key::Key, policy::Policy};

/// The open holds of a key under a policy, returned by [`RedisStore::open_holds`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct OpenHolds {
    /// The units of all holds: of the open ones and of those in [`overdue`](Self::overdue).
    pub units: u64,
    /// The number of open holds.
    pub open: u64,
    /// The number of holds whose time-to-live has passed since the last check. The next check under a policy with
    /// holds ends them: it charges or releases their units, as the policy says.
    pub overdue: u64,
    /// The time until the last open hold ends by itself. A settlement ends a hold earlier, and a renewal later. Zero
    /// without open holds.
    pub last_end: Duration,
}

/// Members that one command reads. Redis answers no other command meanwhile.
const PAGE: usize = 1_000;

impl RedisStore {
    /// Looks up the open [holds](crate::Limiter::hold) of `key` under `policy`, for inspection by hand: those of
    /// requests that are not finished, and the blocks of [leases](Policy::with_lease). Changes nothing.
    ///
    /// `policy` needs no holds itself. Policies of the same name, algorithm, window and resolution share their holds.
    /// A hold that is made or settled meanwhile may be counted or not.
    ///
    /// # Errors
    ///
    /// [`Error`] if Redis does not answer each command within the deadline, or refuses one. The commands are `TIME`,
    /// `ZSCORE` and `ZRANGE`, one of the last for each 1 000 holds. Breaker and failure policy do not apply.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::{Policy, RedisStore};
    ///
    /// # async fn uploads(store: RedisStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let uploads = Policy::concurrent("uploads", 3)?;
    /// let held = store.open_holds("alice", &uploads).await?;
    /// println!("{} uploads are running", held.open);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open_holds(&self, key: impl Into<Key>, policy: &Policy) -> Result<OpenHolds, Error> {
        let client = &self.inner.client;
        let key = self.inner.key_hash.apply(&key.into());
        let slot = client.keys.slot_of(&key);
        let mut connection = client.connect(&client.runtime()?.pool, slot).await?;
        let found = read(client, &mut connection, &client.keys.holds_text(&key, policy)).await;
        found.map_err(|error| client.failed(&connection, &error))
    }
}

async fn read(client: &Client, connection: &mut RoutedConnection, holds: &str) -> RedisResult<OpenHolds> {
    let now = match client.clock.now_us() {
        Some(now) => now as f64,
        None => {
            let (seconds, micros): (f64, f64) = connection.query(&redis::cmd("TIME")).await?;
            seconds * 1e6 + micros
        }
    };
    let score: Option<f64> = connection.query(redis::cmd("ZSCORE").arg(holds).arg("s")).await?;
    let mut found = OpenHolds { units: -score.unwrap_or(0.0) as u64, ..OpenHolds::default() };
    // The ends are the only scores above 0. They come first, the last end at the top.
    for first in (0..).step_by(PAGE) {
        let last = first + PAGE - 1;
        let mut command = redis::cmd("ZRANGE");
        command.arg(holds).arg(first).arg(last).arg("REV").arg("WITHSCORES");
        let page: Vec<(Vec<u8>, f64)> = connection.query(&command).await?;
        let ends = || page.iter().map(|(_, score)| *score).filter(|score| *score > 0.0);
        for end in ends() {
            if end > now {
                found.open += 1;
                found.last_end = found.last_end.max(Duration::from_micros((end - now) as u64));
            } else {
                found.overdue += 1;
            }
        }
        if ends().count() < PAGE {
            break;
        }
    }
    Ok(found)
}
