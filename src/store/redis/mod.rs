//! The shared store: one budget for every instance of a service.

mod address;
mod batch;
mod builder;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod error;
mod eviction;
mod health;
mod heartbeat;
mod key;
mod pace;
mod pool;
mod protocol;
mod script;
mod seal;
#[cfg(feature = "sentinel")]
mod sentinel;
#[cfg(feature = "cluster")]
mod slots;
#[cfg(feature = "tls")]
mod tls;

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::runtime::{self, Handle};

pub use self::builder::RedisStoreBuilder;
use self::{
    batch::Batcher,
    connection::Connection,
    eviction::Eviction,
    heartbeat::Heartbeat,
    pool::{Pool, Source},
    protocol::{Request, Step},
    script::Loader,
    seal::Seal,
};
use super::{Answer, Store, Verdict, deny_cache::DenyCache};
use crate::{
    check::Check,
    clock::{Clock, SystemClock},
    error::{ConfigError, Error, ErrorKind},
    failure::Breaker,
    key::Key,
    observe::{Call, Observer, Once, Slot, Warning},
    policy::Policy,
};

/// Counts on a Redis that every instance of a service shares.
///
/// A check is part of one EVALSHA on one of a few multiplexed connections; Redis judges and charges it atomically by its
/// own clock (on a cluster, within a slot, and across slots with compensation). A lone check leaves at once; checks that
/// wait at the same time share a call. Connections are made when the first check comes and made again when they break, so
/// a service starts and runs on while Redis does not. Checks need a tokio runtime with its timer; making the store does
/// not. Each runtime that a store is used from has connections of its own.
///
/// # Failures
///
/// A check waits at most for the deadline, 50 ms unless set otherwise, whatever Redis does. One whose fate is unknown
/// (sent, but not answered) is **never sent again**: it may have been charged once, never twice. After a few failures in
/// a row a [`Breaker`] answers at once, and asks now and then whether Redis is back.
///
/// A connection that breaks, or whose server says that it is no master (any more), is replaced at once: names are looked
/// up and sentinels are asked anew. While nobody can be reached, one dial follows the other 50 to 400 ms apart, for
/// ever, and checks get their error at once. A wrong password, a missing permission or an untrusted certificate is
/// [`Misconfigured`](ErrorKind::Misconfigured); it heals like any other failure when it is put right.
///
/// # Addresses
///
/// | URL | leads to |
/// | --- | --- |
/// | `redis://[[user]:password@]host[:port][/database]` | a server; escape special characters in the password (`%40` for `@`) |
/// | `rediss://…` | the same through TLS, with feature `tls` |
/// | `unix:///path[?db=database&user=user&pass=password]` | a socket on this machine |
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
/// there is an [observer](crate::Limiter::observer), the first check is followed by one INFO, and any other policy is a
/// [warning](crate::observe::Warning::Eviction).
///
/// The least that a user of Redis needs, with the default prefix:
///
/// ```text
/// ACL SETUSER gate on >password resetkeys ~tollgate:* resetchannels -@all +evalsha +eval +script|load +time +get
/// +getrange +setrange +pexpire +unlink
/// ```
///
/// `+script|load` can be left out: EVAL does, but Redis 7.4 and newer may then forget the script now and then. Without
/// `+info` nobody is warned of eviction, and a process with an observer leaves an entry in ACL LOG when it starts. Add
/// `+select` for a database other than 0, `+role` behind sentinels, `+cluster|slots +ping +asking` on a cluster.
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

struct Shared {
    source: Source,
    links: Mutex<VecDeque<(runtime::Id, Arc<Link>)>>,
    loader: Loader,
    batching: bool,
    deny_cache: Option<DenyCache>,
    breaker: Option<Breaker>,
    heartbeat: Heartbeat,
    seal: Seal,
    /// Whether a key was hashed without a secret, and whether that has been said.
    guessable: AtomicBool,
    warned: Once,
    eviction: Eviction,
    prefix: Box<str>,
    deadline: Duration,
    clock: Option<Arc<dyn Clock>>,
    latest_us: AtomicU64,
    /// Until when scripts are given the time, for the server has not let one ask for it.
    time_forbidden_until_us: AtomicU64,
    observer: Slot,
}

/// What lives and dies with a runtime: connections are driven by its tasks, and so are batches.
#[derive(Debug)]
struct Link {
    pool: Pool,
    batcher: Batcher,
}

/// Runtimes at the same time: a thread may have one each. Beyond that, as in tests that make one after the other, what
/// the oldest had is given up.
const MAX_LINKS: usize = 256;

impl RedisStore {
    /// Creates a store on the Redis at `url`: `redis://[user:password@]host[:port][/db]`, or another
    /// [address](Self#addresses).
    ///
    /// Lazy: nothing is dialled before the first check, and no runtime is needed yet.
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
        Answer::pending(Arc::clone(shared).judge(check.clone()))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<()> {
        let shared = Arc::clone(&self.shared);
        let redis_key = self.redis_key(key, policy);
        let ban = policy.ban().map(|ban| self.redis_key(key, ban));
        Answer::pending(async move {
            // Before and after: a check that overtakes this one may have been judged on either side of it.
            let _forget = Forget::new(&shared);
            let mut connection = shared.connect(&*shared.link()?).await?;
            let result = connection.query(redis::cmd("UNLINK").arg(redis_key).arg(ban)).await;
            result.map_err(|error| shared.failed(&connection, &error))
        })
    }

    fn deadline(&self) -> Duration {
        self.shared.deadline
    }

    fn set_observer(&self, observer: &Arc<dyn Observer>) {
        self.shared.observer.set(Arc::clone(observer));
        self.shared.eviction.wanted();
    }

    fn breaker(&self) -> Option<Breaker> {
        self.shared.breaker
    }

    #[cfg(feature = "cluster")]
    fn parts(&self) -> usize {
        if self.shared.source.is_cluster() { slots::PARTS } else { 1 }
    }

    #[cfg(feature = "cluster")]
    fn part_of(&self, key: &Key) -> usize {
        if self.shared.source.is_cluster() { slots::part_of(&self.shared.seal.sealed(key)) } else { 0 }
    }

    /// Counts itself in the sorted set `{prefix}instances`, every few seconds, on the back of its traffic.
    fn instances(&self) -> Option<u32> {
        self.shared.heartbeat.instances()
    }
}

impl Shared {
    /// Asks Redis, and remembers a denial.
    async fn judge(self: Arc<Self>, check: Check) -> Result<Verdict, Error> {
        let verdict = match &self.deny_cache {
            None => Arc::clone(&self).send(check).await?,
            Some(cache) => {
                let (epoch, sent_us) = (cache.epoch(), self.local_now_us());
                let verdict = Arc::clone(&self).send(check.clone()).await?;
                cache.put(&check, &verdict, epoch, sent_us, self.local_now_us());
                verdict
            }
        };
        heartbeat::touch(&self);
        eviction::touch(&self);
        Ok(verdict)
    }

    async fn send(self: Arc<Self>, mut check: Check) -> Result<Verdict, Error> {
        if self.seal.seal(&mut check) && !self.seal.has_secret() && !self.guessable.load(Ordering::Relaxed) {
            self.guessable.store(true, Ordering::Relaxed);
        }
        #[cfg(feature = "cluster")]
        if self.source.is_cluster() {
            return self.send_by_slots(check).await;
        }
        self.request(batch::WHOLE, Request { check, step: Step::Pay }).await
    }

    /// One step with a check, whose keys are all in `slot`.
    async fn request(self: Arc<Self>, slot: u16, request: Request) -> Result<Verdict, Error> {
        if self.batching {
            return batch::submit(self, slot, request).await;
        }
        let connection = self.connect(&*self.link()?).await?;
        self.call(connection, std::iter::once(&request)).await?.swap_remove(0)
    }

    /// A connection, or an error as soon as there is none to be had.
    async fn connect(&self, link: &Link) -> Result<Connection, Error> {
        let late = |_| Error::new(ErrorKind::Unavailable, "no connection in time");
        let result =
            tokio::time::timeout(self.deadline, link.pool.get()).await.map_err(late).and_then(|connection| connection);
        result.inspect_err(|_| self.forget_denials())
    }

    /// What an error means for the connection that gave it.
    fn failed(&self, connection: &Connection, error: &redis::RedisError) -> Error {
        if error::breaks_connection(error) {
            connection.mark_broken();
            self.forget_denials();
        }
        error::convert(error)
    }

    fn forget_denials(&self) {
        if let Some(cache) = &self.deny_cache {
            cache.forget();
        }
    }

    /// One call of the script for all of `requests`.
    async fn call<'a>(
        &self,
        mut connection: Connection,
        requests: impl Iterator<Item = &'a Request> + Clone,
    ) -> Result<Vec<Result<Verdict, Error>>, Error> {
        let watch = connection.call();
        let observer = self.observer.get();
        if let Some(observer) = &observer
            && self.guessable.load(Ordering::Relaxed)
            && self.warned.claim()
        {
            observer.on_warning(&Warning::GuessableKeys);
        }
        let observed = observer.map(|observer| Call::start(observer, requests.clone().map(|request| &request.check)));
        let now_us = self.script_now_us();
        let mut reply = self.run(&mut connection, now_us, requests.clone()).await;
        if now_us.is_none() && reply.as_ref().is_err_and(script::is_time_forbidden) {
            // The time is the first that the script asks for: nothing has been charged.
            reply = self.run(&mut connection, Some(wall_clock_us()), requests.clone()).await;
            // Only if that was all: a server that answers nothing else either is asked for its time again.
            if reply.is_ok() {
                let until_us = SystemClock.now_us() + TIME_FORBIDDEN_US;
                self.time_forbidden_until_us.store(until_us, Ordering::Relaxed);
            }
        }
        if !reply.as_ref().is_err_and(redis::RedisError::is_timeout) {
            watch.answered();
        }
        let reply =
            reply.map_err(|error| self.failed(&connection, &error)).and_then(|reply| protocol::read(&reply, requests));
        if let Some(observed) = observed {
            observed.end(reply.is_ok());
        }
        let reply = reply?;
        if reply.broken {
            connection.mark_broken();
        }
        Ok(reply.verdicts)
    }

    /// Runs the script once, by the time `now_us` or, if it is `None`, by the server's.
    async fn run<'a>(
        &self,
        connection: &mut Connection,
        now_us: Option<u64>,
        requests: impl Iterator<Item = &'a Request> + Clone,
    ) -> redis::RedisResult<redis::Value> {
        let mut call = script::evalsha();
        protocol::write(&mut call, &self.prefix, now_us, requests);
        self.loader.run(connection, &call).await
    }

    /// The time that the script goes by, or `None` for the server's.
    fn script_now_us(&self) -> Option<u64> {
        if let Some(clock) = &self.clock {
            return Some(clock.now_us());
        }
        let until_us = self.time_forbidden_until_us.load(Ordering::Relaxed);
        (until_us > 0 && SystemClock.now_us() < until_us).then(wall_clock_us)
    }

    /// What this store has on the current runtime.
    fn link(&self) -> Result<Arc<Link>, Error> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::new(ErrorKind::Misconfigured, "a check on Redis needs a tokio runtime"))?
            .id();
        // No invariant spans a panic: opening a pool does no I/O.
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, link)) = links.iter().find(|(id, _)| *id == runtime) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(Link { pool: self.source.open(), batcher: Batcher::new() });
        links.push_back((runtime, Arc::clone(&link)));
        if links.len() > MAX_LINKS {
            links.pop_front();
        }
        Ok(link)
    }

    /// The time that remembered denials go by.
    fn local_now_us(&self) -> u64 {
        self.clock.as_ref().map_or_else(|| SystemClock.now_us(), |clock| clock.now_us())
    }

    /// The latest local time so far. Ours never runs backwards; a user's clock may.
    fn latest_us(&self, now_us: u64) -> u64 {
        if self.clock.is_none() {
            return now_us;
        }
        self.latest_us.fetch_max(now_us, Ordering::Relaxed).max(now_us)
    }
}

/// Then it is asked again, for its time is better than ours: all instances share it.
const TIME_FORBIDDEN_US: u64 = 60_000_000;

/// The machine's time, steps included: other machines are to agree on it, and the key's own time never runs backwards.
fn wall_clock_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// Forgets denials when it is made and when it is dropped.
struct Forget<'a>(&'a Shared);

impl<'a> Forget<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.forget_denials();
        Self(shared)
    }
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget_denials();
    }
}
