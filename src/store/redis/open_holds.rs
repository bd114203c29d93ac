//! The open holds beside a count, for inspection by hand. Reads the sorted set that `lua/holds.lua` describes.

use std::time::Duration;

use redis::RedisResult;

use super::{call::client::Client, net::routed::RoutedConnection, store::RedisStore};
use crate::{
    error::{Error, ErrorKind},
    key::Key,
    policy::Policy,
};

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

/// The name of the head has `t` and three doubles.
const HEAD_BYTES: usize = 25;

/// No other member has a longer name than that of a hold's units: its id and `c`.
const MEMBER_BYTES: usize = 9;

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
    /// and `ZRANGE`, one of the last for each 1 000 holds and one more. Breaker and failure policy do not apply. An
    /// error of kind [`BadKey`](ErrorKind::BadKey) if the holds are no value of tollgate; then checks get no verdict.
    /// An error of kind [`InvalidCall`](ErrorKind::InvalidCall) if `policy` has a [mistake](Policy#mistakes).
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
        policy.validate()?;
        let client = &self.inner.client;
        let key = self.inner.key_hash.apply(&key.into());
        let slot = client.keys.slot_of(&key);
        let mut connection = client.connect(&client.runtime()?.pool, slot).await?;
        let found = read(client, &mut connection, &client.keys.holds_text(&key, policy)).await;
        let found = found.map_err(|error| client.failed(&connection, &error))?;
        found.ok_or_else(|| Error::new(ErrorKind::BadKey, "NOTACOUNT the value is no set of holds"))
    }
}

/// Reads the holds. `None` if the script would not take the value for a set of holds.
async fn read(client: &Client, connection: &mut RoutedConnection, holds: &str) -> RedisResult<Option<OpenHolds>> {
    let now = match client.clock.now_us() {
        Some(now) => now as f64,
        None => {
            let (seconds, micros): (f64, f64) = connection.query(&redis::cmd("TIME")).await?;
            seconds * 1e6 + micros
        }
    };
    let first: Vec<(Vec<u8>, f64)> =
        connection.query(redis::cmd("ZRANGE").arg(holds).arg(0).arg(1).arg("WITHSCORES")).await?;
    let Some((head, score)) = first.first() else { return Ok(Some(OpenHolds::default())) };
    let (Some(units), Some(own)) = (units(*score), own_time(head, now)) else { return Ok(None) };
    if first.get(1).is_some_and(|(member, _)| member.len() > MEMBER_BYTES) {
        return Ok(None);
    }
    // With a client's clock the time of the holds stands still instead of running behind.
    let now = if client.clock.now_us().is_none() { own } else { now };
    let mut found = OpenHolds { units, ..OpenHolds::default() };
    // The ends follow the head, and the units of the holds follow the ends.
    for first in (1..).step_by(PAGE) {
        let last = first + PAGE - 1;
        let mut command = redis::cmd("ZRANGE");
        command.arg(holds).arg(first).arg(last).arg("WITHSCORES");
        let page: Vec<(Vec<u8>, f64)> = connection.query(&command).await?;
        let ends = || page.iter().map(|(_, score)| *score).filter(|score| *score < UNITS);
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
    Ok(Some(found))
}

/// The smallest score of a member that says how many units a hold has.
const UNITS: f64 = 1e20;

/// The units of all holds, from the score of the head.
fn units(score: f64) -> Option<u64> {
    let units = -score;
    ((0.0..2f64.powi(32)).contains(&units) && units.fract() == 0.0).then_some(units as u64)
}

/// The holds' own time, which does not run backwards if the clock of the server is set back. `None` if `head` is the
/// name of no head: the conditions are those of the script, in `look_at` and `own_time`.
fn own_time(head: &[u8], now: f64) -> Option<f64> {
    if head.len() != HEAD_BYTES {
        return None;
    }
    let number = |place: usize| {
        let bytes = head.get(1 + 8 * place..9 + 8 * place).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0.0, f64::from_le_bytes)
    };
    let [reached, offset, covered] = [0, 1, 2].map(number);
    if !(0.0..2f64.powi(54)).contains(&covered) {
        return None;
    }
    let largest = 2f64.powi(53);
    let is_step = offset >= 0.0 && now + offset < largest && reached < largest;
    let is_whole = offset.fract() == 0.0 && reached.fract() == 0.0;
    (offset == 0.0 && reached <= now || is_step && is_whole).then(|| (now + offset).max(reached))
}
