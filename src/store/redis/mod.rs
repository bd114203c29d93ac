//! The shared store: one budget for every instance of a service.

mod address;
mod batch;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod encryption;
mod error;
mod eviction;
mod first_dial;
mod health;
mod heartbeat;
mod key;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "cluster")]
mod nodes;
mod pace;
#[cfg(feature = "cluster")]
mod parts;
mod pool;
mod progress;
mod protocol;
mod queue;
mod ready;
mod resp;
mod script;
mod seal;
#[cfg(feature = "sentinel")]
mod sentinel;
mod shared;
#[cfg(feature = "cluster")]
mod slot_map;
#[cfg(feature = "cluster")]
mod slots;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod words;

use std::{fmt, sync::Arc, time::Duration};

pub use self::builder::RedisStoreBuilder;
use self::{
    progress::Progress,
    shared::{Forget, Shared},
};
use super::{Answer, Pending, Store, Verdict};
use crate::{breaker::Breaker, check::Check, error::ConfigError, key::Key, observe::Observer, policy::Policy};

/// Counts on a Redis that every instance of a service shares.
///
/// A check is part of one EVALSHA on one of a few multiplexed connections; Redis judges and charges it atomically by its
/// own clock (on a cluster, within a slot, and across slots with compensation). A lone check leaves at once; checks that
/// wait at the same time share a call. Connections are made when the first check comes and made again when they break, so
/// a service starts and runs on while Redis does not. Checks need a tokio runtime with timers and I/O (`enable_all()`);
/// making the store does not. On a runtime without them checks are errors that say so; tokio can only be asked by trying, so
/// its panic message is printed once. Each runtime that a store is used from has connections of its own.
///
/// # Failures
///
/// A check waits at most for the deadline, 50 ms unless set otherwise, whatever Redis does; time in which the process
/// itself did not run (a handler that holds its threads, a pause) does not count. The first checks of a process may
/// wait longer for the first connection ([`first_dial_deadline`](RedisStoreBuilder::first_dial_deadline), 250 ms). A
/// check that is late because this process sends more than Redis answers in time is
/// [`Overloaded`](crate::ErrorKind::Overloaded). One whose fate is unknown (sent, but not answered) is **never sent
/// again**: it may have been charged once, never twice. After a few failures in a row a [`Breaker`] answers at once,
/// and asks now and then whether Redis is back.
///
/// A connection that breaks, or whose server says that it is no master (any more), is replaced at once: names are looked
/// up and sentinels are asked anew. While nobody can be reached, one dial follows the other 50 to 400 ms apart, for
/// ever, and checks get their error at once. After some seconds of refused logins the pause grows to 5 s. A wrong
/// password, a missing permission or an untrusted certificate is
/// [`Misconfigured`](crate::ErrorKind::Misconfigured); it heals like any other failure when it is put right.
///
/// # Addresses
///
/// | URL | leads to |
/// | --- | --- |
/// | `redis://[[user]:password@]host[:port][/database]` | a server; escape `/ ? # @ %` in the password (`%2F %3F %23 %40 %25`) |
/// | `rediss://…` | the same through TLS, with feature `tls` |
/// | `valkey://…`, `valkeys://…` | the same as `redis://` and `rediss://` |
/// | `unix:///path[?db=database&user=user&pass=password]` | a socket on this machine |
///
/// Connections speak RESP3, which tells when a server closes one at rest; a server that does not know it gets RESP2.
/// `?protocol=resp2` asks for RESP2 from the start.
///
/// Feature `tls` is rustls. It uses the cryptography provider that the process has installed, and installs ring's if
/// there is none. A host is trusted as the operating system does, or by certificates of your own
/// (`RedisStoreBuilder::root_certificates`). Features `sentinel` and `cluster`:
#[cfg_attr(feature = "sentinel", doc = "[`connect_sentinel`](RedisStoreBuilder::connect_sentinel),")]
#[cfg_attr(not(feature = "sentinel"), doc = "`RedisStoreBuilder::connect_sentinel`,")]
#[cfg_attr(feature = "cluster", doc = "[`connect_cluster`](RedisStoreBuilder::connect_cluster).")]
#[cfg_attr(not(feature = "cluster"), doc = "`RedisStoreBuilder::connect_cluster`.")]
///
/// # Redis
///
/// Tested on Redis 6.2.14, 7.0.15, 7.2.4, 7.4.1 and 8.2.3 and on Valkey 8.1.8 and 9.1.2; TLS and the long runs under
/// faults on 7.0.15 alone. The script uses nothing newer than 6.2. Every key gets a TTL in the script that writes it. Keys
/// are `{prefix}{{subject}}:…` with the subject as hash tag: a hash of it, see
/// [`key_secret`](RedisStoreBuilder::key_secret), or as it is ([`plain_keys`](RedisStoreBuilder::plain_keys)).
///
/// An eviction policy that drops them resets the limits concerned; give the limiter an instance with `noeviction`. If
/// the limiter is not [quiet](crate::Limiter::quiet), the first check is followed by one INFO, and any other policy is a
/// [warning](crate::observe::Warning::Eviction).
///
/// The least that a user of Redis needs, with the default prefix:
///
/// ```text
/// ACL SETUSER gate on >password resetkeys ~tollgate:* resetchannels -@all +evalsha +eval +script|load +time +get +getrange +setrange +pexpire +unlink
/// ```
///
/// `+script|load` can be left out: EVAL does, but Redis 7.4 and newer may then forget the script now and then. Without
/// `+info` no process can warn of eviction, and each leaves an entry in ACL LOG when it starts unless it is quiet. Add
/// `+zadd +zremrangebyscore +zcard` for [`with_local_discovered`](crate::Limiter::with_local_discovered), whose first refused count
/// is a [warning](crate::observe::Warning::InstancesUnknown); `+select` for a database other than 0, `+role` behind
/// sentinels, `+cluster|slots +asking` on a cluster.
///
/// # Examples
///
/// ```no_run
/// use tollgate::{Limiter, RedisStore};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(RedisStore::connect("redis://127.0.0.1:6379")?);
/// # Ok(())
/// # }
/// ```
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::RedisStore;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let store = RedisStore::builder()
///     .prefix("shop:limits:")
///     .deadline(Duration::from_millis(20))
///     .connect("redis://:secret@10.0.0.5:6379/2")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

impl RedisStore {
    /// Creates a store on the Redis at `url`: `redis://[user:password@]host[:port][/db]`, or another
    /// [address](Self#addresses).
    ///
    /// Lazy: nothing is dialled before the first check, and no runtime is needed yet.
    /// [`Limiter::ready`](crate::Limiter::ready) dials and tells what is wrong.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidRedisUrl`]; never because Redis is down.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Starts a store that is not the default one.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::default()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { source, prefix, deadline, clock, seal, .. } = &*self.shared;
        f.debug_struct("RedisStore")
            .field("source", source)
            .field("prefix", prefix)
            .field("deadline", deadline)
            .field("clock", clock)
            .field("seal", seal)
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let shared = &self.shared;
        let remembered = shared.deny_cache.as_ref().and_then(|cache| {
            let now_us = shared.local_now_us();
            cache.get(check, now_us, shared.latest_us(now_us))
        });
        if let Some(verdict) = remembered {
            return Answer::Ready(Ok(verdict));
        }
        let progress = Progress::new(shared.has_parts(check));
        let verdict = Arc::clone(shared).judge(check.clone(), Arc::clone(&progress));
        Answer::Pending(Pending::new(verdict).or(progress))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let shared = Arc::clone(&self.shared);
        let groups = shared.groups(std::iter::once(key));
        let slot = shared.slot_of(shared.seal.sealed(key).encoded());
        let redis_key = self.redis_key(key, policy);
        let ban = policy.ban().map(|ban| self.redis_key(key, ban));
        Answer::pending(async move {
            // Before and after: a check that overtakes this one may have been judged on either side of it.
            let _forget = Forget::new(&shared, groups);
            let mut connection = shared.connect(&*shared.link()?, slot).await?;
            let result = connection.query(redis::cmd("UNLINK").arg(redis_key).arg(ban)).await;
            result.map(|keys: u32| keys > 0).map_err(|error| shared.failed(&connection, &error))
        })
    }

    /// Calls the script on each master and charges nothing. Waits up to 5 s for slow dials and late answers; a server
    /// that refuses is an error at once.
    fn ready(&self) -> Answer<()> {
        Answer::pending(ready::ready(Arc::clone(&self.shared)))
    }

    fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        self.shared.observer.set(observer.cloned());
        // Another observer has not heard what was said before.
        self.shared.warned.rearm();
        self.shared.eviction.listens(observer.is_some());
    }

    fn breaker(&self) -> Option<Breaker> {
        self.shared.breaker
    }

    #[cfg(feature = "cluster")]
    fn failure_domains(&self) -> usize {
        self.shared.parts()
    }

    #[cfg(feature = "cluster")]
    fn failure_domain_of(&self, key: &Key) -> usize {
        if self.shared.source.is_cluster() { parts::part_of(&self.shared.seal.sealed(key)) } else { 0 }
    }

    /// Counts itself in the sorted set `{prefix}instances`, every few seconds, on the back of its traffic.
    fn instances(&self) -> Option<u32> {
        self.shared.heartbeat.instances()
    }
}
