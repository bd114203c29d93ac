//! What is read beside a count for inspection by hand: its denials, in the log that `lua/sliding_window_log.lua`
//! describes, and its open holds, in the sorted set that `lua/holds.lua` describes.

use std::time::Duration;

use redis::RedisResult;
use tokio::task::JoinSet;

use super::{call::client::Client, net::routed::RoutedConnection, ready::given_up, store::RedisStore};
use crate::error::{Error, ErrorKind};
use crate::{key::Key, policy::Policy};

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
    /// for (denials, duration) in
    ///     store.ban_settings("alice", &login, &[Duration::from_secs(600)]).await?
    /// {
    ///     println!(
    ///         "denials of alice count: .ban_after({denials}, {duration:?})"
    ///     );
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
                let banning = policy.without_ban().ban_after(1, duration).validated()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_denials_is_in_the_first_of_two_places_that_has_one() {
        for (first, second, number) in [(300, 5, 300), (0, 70_000, 70_000), (0, 0, 1), (1 << 40, 0, u32::MAX)] {
            let mut log = [0; BYTES];
            log[68..74].copy_from_slice(&u64::to_le_bytes(first)[..6]);
            log[192..198].copy_from_slice(&u64::to_le_bytes(second)[..6]);
            assert_eq!((denials(&log), denials(&log[..60])), (number, 1), "{first} {second}");
        }
    }

    /// What the script refuses gives its users no verdict.
    #[test]
    fn heads_are_read_and_refused_as_by_the_script() {
        let own = |reached: f64, offset: f64| {
            let head = [b"t", &reached.to_le_bytes()[..], &offset.to_le_bytes(), &[0; 8]].concat();
            own_time(&head, 1e3)
        };
        let most = 2f64.powi(53) - 1.0;
        let running = [(0.0, 0.0, 1e3), (0.5, 0.0, 1e3), (1_001.0, 0.0, 1_001.0), (0.0, 600.0, 1_600.0)];
        for (reached, offset, time) in running.into_iter().chain([(0.0, most - 1e3, most), (most, 600.0, most)]) {
            assert_eq!(own(reached, offset), Some(time), "{reached} {offset}");
        }
        for (reached, offset) in
            [(1_000.5, 0.0), (0.5, 1.0), (0.0, 0.5), (0.0, -1.0), (0.0, most - 999.0), (most + 1.0, 1.0)]
        {
            assert_eq!(own(reached, offset), None, "{reached} {offset}");
        }
        for (score, held) in [(-3.0, Some(3)), (0.5, None), (-0.5, None), (-2f64.powi(32), None)] {
            assert_eq!(units(score), held, "{score}");
        }
    }
}
