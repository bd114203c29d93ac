//! Forgets all counts of a store in Redis, by a scan in steps.

use std::{collections::BTreeMap, sync::Arc};

use redis::{Cmd, FromRedisValue};
use tokio::task::JoinSet;

use super::net::slot::{NO_SLOT, SLOT_COUNT};
use super::{call::client::Client, net::routed::RoutedConnection, ready::given_up, store::RedisStore};
use crate::error::Error;

/// Keys that one step of a scan looks at. Redis answers no other command meanwhile.
const STEP: usize = 1_000;
/// Times that a command is sent, so that one slow reply does not end a scan of millions of keys. Each of the commands
/// may be evaluated twice.
const TRIES: usize = 3;

impl RedisStore {
    /// Forgets everything that is counted under the [prefix](super::RedisStoreBuilder::prefix) of this store: the
    /// counts, bans, denials and open holds of all keys under all policies. Returns the number of Redis keys that were
    /// removed. For one key, call [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// Scans all keys of the database in steps of 1 000, on a cluster those of each master, and removes those of this
    /// prefix. Checks go on meanwhile: what they charge may be removed or may stay. Keys that move to another master of
    /// a cluster meanwhile may stay; the next call finds them. Only keys that have the form of a key of tollgate are
    /// removed; the number of instances stays.
    ///
    /// This process forgets the denials that it remembers; other processes do within a second. Work for which units
    /// are held goes on, so more than a concurrency limit may run for a while, and what a process has taken as a
    /// [lease](crate::Policy::with_lease) may still be spent.
    ///
    /// # Errors
    ///
    /// [`Error`] if Redis refuses a command, or does not answer one sent three times, each within the deadline.
    /// Part of the keys may be removed then. The commands are `SCAN` and `UNLINK`. Breaker and failure policy do not
    /// apply.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time. Part of the keys may be removed then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # async fn forget_all() -> Result<(), Box<dyn std::error::Error>> {
    /// let store =
    ///     RedisStore::builder().prefix("staging:").open("redis://127.0.0.1:6379")?;
    /// println!("{} keys were removed", store.clear().await?);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "flush")]
    #[doc(alias = "reset_all")]
    pub async fn clear(&self) -> Result<u64, Error> {
        let client = &self.inner.client;
        let runtime = client.runtime()?;
        let slot_of = |number: u64| if client.target.is_cluster() { slot_numbered(number) } else { NO_SLOT };
        client.denials.forget_all();
        let mut removed = 0;
        for master in runtime.pool.probe_numbers(slot_of).await? {
            let connection = client.connect(&runtime.pool, slot_of(master)).await?;
            removed += clear_server(client, connection).await?;
        }
        // A check that was judged before its count was removed may have been denied since.
        client.denials.forget_all();
        Ok(removed)
    }
}

/// One slot for each number, so that some number leads to each master.
fn slot_numbered(number: u64) -> u16 {
    u16::try_from(number % u64::from(SLOT_COUNT)).unwrap_or_default()
}

/// Removes the keys on one server. Returns their number.
async fn clear_server(client: &Arc<Client>, mut connection: RoutedConnection) -> Result<u64, Error> {
    let prefix = client.keys.prefix();
    let pattern = pattern(prefix);
    let (mut cursor, mut removed) = (0_u64, 0);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(STEP);
        let (next, mut keys): (u64, Vec<Vec<u8>>) = ask(client, &mut connection, &scan).await?;
        keys.retain(|key| is_own(key, prefix));
        removed += unlink(client, &connection, keys).await?;
        if next == 0 {
            return Ok(removed);
        }
        cursor = next;
    }
}

/// Removes keys, in one command for each slot. Returns the number of those that existed.
async fn unlink(client: &Arc<Client>, connection: &RoutedConnection, keys: Vec<Vec<u8>>) -> Result<u64, Error> {
    let mut by_slot: BTreeMap<u16, Vec<Vec<u8>>> = BTreeMap::new();
    for key in keys {
        by_slot.entry(client.target.slot_of(hash_tag(&key))).or_default().push(key);
    }
    let mut commands = JoinSet::new();
    for keys in by_slot.into_values() {
        let (client, mut connection) = (Arc::clone(client), connection.clone());
        commands.spawn(async move { ask(&client, &mut connection, redis::cmd("UNLINK").arg(keys)).await });
    }
    let mut removed = 0;
    while let Some(result) = commands.join_next().await {
        let unlinked: u64 = result.unwrap_or_else(|_| Err(given_up()))?;
        removed += unlinked;
    }
    Ok(removed)
}

/// Sends a command, again if there is no reply within the deadline.
async fn ask<T: FromRedisValue>(client: &Client, connection: &mut RoutedConnection, command: &Cmd) -> Result<T, Error> {
    let mut tries = 1;
    loop {
        match connection.query(command).await {
            Err(error) if error.is_timeout() && tries < TRIES => tries += 1,
            reply => return reply.map_err(|error| client.failed(connection, &error)),
        }
    }
}

/// The pattern of all keys with this prefix, for `MATCH`.
fn pattern(prefix: &str) -> String {
    let mut pattern = String::new();
    for c in prefix.chars() {
        if "*?[]\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "{*"
}

/// What is between the first braces. A prefix has none.
fn hash_tag(key: &[u8]) -> &[u8] {
    let mut parts = key.splitn(2, |byte| *byte == b'{');
    let tagged = parts.nth(1).unwrap_or(key);
    tagged.split(|byte| *byte == b'}').next().unwrap_or(tagged)
}

/// Whether a key has the form that `redis_key.rs` describes, of any version: another program may use the same prefix,
/// or the prefix may be empty.
fn is_own(key: &[u8], prefix: &str) -> bool {
    let Some(key) = key.strip_prefix(prefix.as_bytes()).filter(|key| key.starts_with(b"{")) else { return false };
    let Some(end) = key.iter().rposition(|byte| *byte == b'}') else { return false };
    let rest = &key[end + 1..];
    if rest.starts_with(b"(receipt)") {
        return true;
    }
    // The name of a policy may have colons, and is at least one character.
    let mut parts = rest.rsplitn(3, |byte| *byte == b':');
    let (window, form, name) = (parts.next(), parts.next(), parts.next());
    let (Some(window), Some(form), Some(name)) = (window, form, name) else { return false };
    let is_window = match form.split_first() {
        Some((b'w', _)) => [&b"dayT"[..], b"week-", b"month-", b"year-"].iter().any(|every| window.starts_with(every)),
        Some((letter, _)) => b"lcfb".contains(letter) && window.first().is_some_and(u8::is_ascii_digit),
        None => false,
    };
    let is_versioned = form.len() > 1 && form[1..].iter().all(u8::is_ascii_digit);
    is_window && is_versioned && name.len() > 1 && name.starts_with(b":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::net::slot;

    #[test]
    fn only_keys_of_the_form_of_a_store_are_its_own() {
        for key in [
            "t:{a}:p:l5:1m",
            "t:{a}:p:l5:1m/10ms",
            "t:{48:3}{a|b}:a:b:f2:1d",
            "t:{a}:p(holds):b3:1s",
            "t:{a}:p(ban):l5:10m",
            "t:{a}:p(ban)+:l5:10m",
            "t:{a}:p(shards:8):c2:1h",
            "t:{a}:p:l4:1m",
            "t:{a}(receipt)17:3",
            "t:{a}:p:w1:dayT0000@UTC",
            "t:{a}:a:b(holds):w1:week-monT0000@+0530",
            "t:{48:3}{a}:p(shards:8):w1:month-15T0900@Europe/Berlin",
            "t:{a}:p:w12:year-4-6T0000@UTC",
        ] {
            assert!(is_own(key.as_bytes(), "t:"), "{key}");
            assert!(!is_own(key.as_bytes(), "t"), "{key}");
            assert!(!is_own(key.as_bytes(), ""), "{key}");
            assert!(is_own(&key.as_bytes()[2..], ""), "{key}");
        }
        for key in [
            "t:instances",
            "t:{a}",
            "t:{a}:cart",
            "t:{a}:x:y:z",
            "t:{a}::l5:1m",
            "t:{a}:p:l:1m",
            "t:{a}:p:q5:1m",
            "t:{a}:p:w:month-1T0000@UTC",
            "t:{a}:p:w1:cart",
            "t:{a}::w1:month-1T0000@UTC",
            "{a",
        ] {
            assert!(!is_own(key.as_bytes(), "t:") && !is_own(key.as_bytes(), ""), "{key}");
        }
    }

    #[test]
    fn a_prefix_is_a_pattern_of_itself_only() {
        assert_eq!(pattern("shop:"), "shop:{*");
        assert_eq!(pattern("a*b?[c]\\"), "a\\*b\\?\\[c\\]\\\\{*");
    }

    #[test]
    fn keys_are_grouped_by_the_slot_of_their_tag() {
        assert_eq!(hash_tag(b"t:{48:3}{a}:p:l5:1m"), b"48:3");
        assert_eq!(hash_tag(b"t:{a}(receipt)17:3"), b"a");
        let slots: Vec<u16> = (0..u64::from(SLOT_COUNT) + 1).map(slot_numbered).collect();
        assert_eq!((slots[0], slots[usize::from(SLOT_COUNT)], slots[16_383]), (0, 0, 16_383));
        assert!(slots.iter().all(|slot| *slot < slot::SLOT_COUNT));
    }
}
