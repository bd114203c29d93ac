//! The public type of the shared store.

use std::sync::{Arc, atomic::Ordering};
use std::{fmt, time::Duration};

use tokio::runtime::Handle;

use super::call::denials::{Lookup, RememberedDenial, Ticket};
use super::call::outgoing::{Outgoing, Request};
use super::call::traffic::{CLUSTER_DOMAINS, domain_of};
use super::call::{batch, count_reply, cross_slot, up_to};
use super::call::{client::Client, progress::Progress};
use super::instances::{self, Instances};
use super::ready::{self, EvictionCheck};
use super::{KeyHash, net::slot::NO_SLOT};
use crate::check::{Charge, Check, open_hold::OpenHold};
use crate::error::{Error, ErrorKind};
use crate::hold::{HoldChange, SettleAnswer};
use crate::store::contract::{Answer, Pending, Store};
use crate::{
    breaker::settings::BreakerSettings, key::Key, observe::Observer, policy::Policy, runtime::deadline::within,
    store::ban::CountChange, verdict::Verdict,
};

/// A store on a Redis that all instances of a service share.
///
/// A check is part of one EVALSHA on one of a few multiplexed connections. Redis evaluates and charges the check
/// atomically by its own clock. On a cluster a check is atomic within a slot; across slots, a denied check is refunded.
/// A lone check leaves at once; checks that wait at the same time share a call.
///
/// The first check dials, and connections that break are replaced, so a service starts and runs while Redis is
/// unavailable. Checks need a tokio runtime with timers and I/O (`enable_all()`); creating the store does not. On a
/// runtime without them each check is an error that says so, and tokio prints one panic message, because a missing
/// driver can only be detected by using it. Each runtime that uses a store has connections of its own.
///
/// # Failures
///
/// A check waits at most for the deadline, 50 ms by default, whatever Redis does. Time in which the process itself did
/// not run (a handler that blocks its threads, a pause) does not count. The first checks of a process may wait longer
/// for the first connection, 250 ms by default
/// ([`first_dial_deadline`](crate::store::RedisStoreBuilder::first_dial_deadline)). A check that is late because this
/// process sends more than Redis can answer in time is [`Overloaded`](crate::ErrorKind::Overloaded).
/// A check that was sent and not answered is **never sent again**: it may have been charged once, never twice. After a
/// few failures in a row a [breaker](BreakerSettings) answers at once, and probes now and then whether Redis is back.
///
/// A connection that breaks, or whose server reports that it is not a master, is replaced at once. Each dial looks the
/// name up and asks the sentinels again. While no server can be reached, dials are repeated every 50 to 400 ms until
/// one succeeds, and checks get their error at once. After some seconds of refused logins the pause grows to 5 s. While
/// a server is slow with its handshakes of TLS, dials go on, and the pause before a further one grows to 25.6 s; a
/// handshake that the network has lost after the first connection is noticed, and then there is no such pause. A wrong
/// password, a missing permission, a wrong scheme or an untrusted certificate is
/// [`StoreMisconfigured`](crate::ErrorKind::StoreMisconfigured); checks succeed as soon as it is corrected.
///
/// # Addresses
///
/// | URL | target |
/// | --- | --- |
/// | `redis://[[user]:password@]host[:port][/database]` | a server |
/// | `rediss://…` | a server with TLS (feature `tls`) |
/// | `valkey://…`, `valkeys://…` | the same as `redis://` and `rediss://` |
/// | `unix:///path[?db=database&user=user&pass=password]` | a socket on this machine |
///
/// Escape `/ ? # @ %` in a password as `%2F %3F %23 %40 %25`.
///
/// Connections use RESP3, with which the client reports an idle connection that the server closes; a server without
/// RESP3 gets RESP2. `?protocol=resp2` uses RESP2 from the start.
///
/// Feature `tls` is rustls. It uses the cryptography provider that the process has installed when `open` is called,
/// or else ring, and installs none. The feature switches rustls' `ring` on. If another crate switches `aws_lc_rs` on,
/// rustls cannot choose between them, and other code of the process that names no provider panics. Then install one at
/// the start of the process.
/// Servers are verified with the certificates that the operating system trusts, or with your own
/// (`RedisStoreBuilder::root_certificates`).
///
/// The builder also connects to a master that sentinels name
/// ([`open_sentinel`](crate::store::RedisStoreBuilder::open_sentinel)) and to a Redis Cluster
/// ([`open_cluster`](crate::store::RedisStoreBuilder::open_cluster)).
///
/// # Redis
///
/// Tested on Redis 6.2.14, 7.0.15, 7.2.4, 7.4.1 and 8.2.3 and on Valkey 8.1.8 and 9.1.2; TLS and the long runs under
/// faults only on 7.0.15. The script uses nothing newer than 6.2. Each key gets a TTL in the script that writes it.
/// Keys are `{prefix}{{subject}}:…`, on a cluster `{prefix}{{tag}}{{subject}}:…` with the hash tag of a group of
/// subjects. The subject is hashed ([`key_secret`](crate::store::RedisStoreBuilder::key_secret)) or readable
/// ([`plain_keys`](crate::store::RedisStoreBuilder::plain_keys)).
///
/// A Redis that evicts keys resets their limits, so use one with `maxmemory-policy noeviction`. Unless the limiter is
/// [quiet](crate::Limiter::without_notices), the first check is followed by one INFO, and a Redis that may evict is a
/// [warning](crate::observe::Warning).
///
/// The smallest set of permissions, with the default prefix:
///
/// ```text
/// ACL SETUSER gate on >password resetkeys ~tollgate:* resetchannels -@all
/// ACL SETUSER gate +evalsha +eval +script|load +time +getrange +setrange +pexpire +unlink
/// ```
///
/// `+script|load` is optional: EVAL suffices, but Redis 7.4 and newer may then forget the script now and then. Without
/// `+info` no process can warn of eviction, and each process that is not quiet leaves an entry in ACL LOG when it
/// starts. Add `+zadd +zremrangebyscore +zcard` for [`with_local_fallback`](crate::Limiter::with_local_fallback),
/// whose first refused count is a [warning](crate::observe::Warning);
/// `+exists +zadd +zcard +zscore +zmscore +zrange +zrem` for policies with [holds](crate::Policy::with_holds),
/// concurrency limits and leases; `+scan` for [`clear`](Self::clear); `+select` for a database other than 0, `+role`
/// behind sentinels, `+cluster|slots +asking` on a cluster. A user of the sentinels needs
/// `-@all +sentinel|get-master-addr-by-name`.
///
/// Passwords and certificates can be replaced while the process runs:
/// [`login_from`](crate::store::RedisStoreBuilder::login_from), `root_certificates`, `client_certificate`.
///
/// # Examples
///
/// ```no_run
/// use tollgate::{Limiter, RedisStore};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let limiter = Limiter::new(RedisStore::open("redis://127.0.0.1:6379")?);
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
///     .open("redis://:secret@10.0.0.5:6379/2")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pub(super) inner: Arc<Inner>,
}

/// What the clones of a store share.
pub(super) struct Inner {
    pub(super) client: Arc<Client>,
    pub(super) key_hash: KeyHash,
    pub(super) breaker: Option<BreakerSettings>,
    pub(super) instances: Arc<Instances>,
    pub(super) eviction: Arc<EvictionCheck>,
}

impl RedisStore {
    pub(super) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The Redis key of the count of `key` under `policy`, for inspection by hand. Under a policy with
    /// [shards](Policy::with_shards), each shard has a key of its own instead; see
    /// [`guide::operations`](crate::guide::operations).
    ///
    /// The format of the value is not part of the API and may change. To forget the value, call
    /// [`Limiter::reset`](crate::Limiter::reset).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, RedisStore};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let policy = Policy::per_minute("per-client", 60)?;
    /// let store = RedisStore::open("redis://127.0.0.1:6379")?;
    /// let key = store.redis_key("alice", &policy);
    /// assert_eq!(key, "tollgate:{$_YV7qj_yBCJkNRv0uWtufg}:per-client:l5:1m");
    ///
    /// let store =
    ///     RedisStore::builder().plain_keys().open("redis://127.0.0.1:6379")?;
    /// let key = store.redis_key("alice", &policy);
    /// assert_eq!(key, "tollgate:{alice}:per-client:l5:1m");
    /// # Ok(())
    /// # }
    /// ```
    pub fn redis_key(&self, key: impl Into<Key>, policy: &Policy) -> String {
        self.inner.client.keys.text(&self.inner.key_hash.apply(&key.into()), policy)
    }
}

/// The time after its deadline for which a check that asks a denial again may still get its verdict.
const ASK_TIME: Duration = Duration::from_secs(1);

impl Inner {
    /// Sends a check to Redis. The check is cloned once, by the caller, and all later steps share it.
    async fn check(
        self: Arc<Self>,
        check: Check,
        ticket: Option<Ticket>,
        progress: Arc<Progress>,
    ) -> Result<Verdict, Error> {
        let Self { client, key_hash, .. } = &*self;
        let (keys, is_hashed) = key_hash.keys_of(&check);
        if is_hashed && !key_hash.has_secret() && !client.has_unkeyed_hashes.load(Ordering::Relaxed) {
            client.has_unkeyed_hashes.store(true, Ordering::Relaxed);
        }
        let outgoing = Arc::new(Outgoing::new(check, keys, progress, ticket));
        let verdict = self.send(Arc::clone(&outgoing)).await?;
        if let Some(ticket) = &outgoing.ticket {
            client.denials.forget_contradicted(&outgoing.check, ticket, &verdict);
        }
        instances::refresh_if_due(&self.instances, client);
        ready::ask_if_due(&self.eviction, client);
        Ok(verdict)
    }

    /// Sends a check that asks a remembered denial again in a task, because all callers need its verdict: a caller that
    /// goes away must not keep the denial.
    ///
    /// The task begins with the first poll, because a check that is not polled must not be charged. It ends soon after
    /// the deadline, so that a silent Redis collects no tasks.
    async fn ask_in_task<F>(self: Arc<Self>, verdict: F, progress: Arc<Progress>) -> Result<Verdict, Error>
    where
        F: Future<Output = Result<Verdict, Error>> + Send + 'static,
    {
        let Ok(runtime) = Handle::try_current() else { return verdict.await };
        // Whatever becomes of the caller, the check is on its way now.
        progress.taken();
        let asked = runtime.spawn(within(self.client.settings.deadline.saturating_add(ASK_TIME), verdict));
        let gone = || Error::new(ErrorKind::Unavailable, "the task that asks a denial again has ended");
        asked.await.ok().flatten().unwrap_or_else(|| Err(gone().charge_unknown()))
    }

    async fn send(&self, outgoing: Arc<Outgoing>) -> Result<Verdict, Error> {
        let client = Arc::clone(&self.client);
        match client.target.is_cluster() {
            // Boxed, because otherwise the future of each check on one server would contain this large future.
            true => Box::pin(cross_slot::send(client, outgoing)).await,
            false => batch::send(client, NO_SLOT, Request::whole(outgoing)).await,
        }
    }

    /// Whether the keys of a check may be in several failure domains.
    fn may_span_domains(&self, check: &Check) -> bool {
        let mut keys = check.charges().iter().map(|charge| &charge.key);
        let first = keys.next();
        self.client.target.is_cluster() && keys.any(|key| Some(key) != first)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { client, key_hash, .. } = &*self.inner;
        f.debug_struct("RedisStore")
            .field("target", &client.target)
            .field("prefix", &client.keys.prefix())
            .field("deadline", &client.settings.deadline)
            .field("clock", &client.clock)
            .field("key_hash", key_hash)
            .finish_non_exhaustive()
    }
}

impl Store for RedisStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        if let Err(mistake) = check.validate() {
            return Answer::Ready(Err(mistake.into()));
        }
        let ticket = match self.inner.client.denials.look_up(check) {
            Lookup::Denied(verdict) => return Answer::Ready(Ok(verdict)),
            Lookup::Unknown(ticket) => ticket,
        };
        let asks_again = ticket.as_ref().is_some_and(|ticket| ticket.asks_again);
        let denial = asks_again.then(|| Box::new(RememberedDenial::new(&self.inner.client.denials, check)));
        let progress = Progress::of(self.inner.may_span_domains(check), denial);
        let verdict = Arc::clone(&self.inner).check(check.clone(), ticket, Arc::clone(&progress));
        let pending = match asks_again {
            true => Pending::new(Arc::clone(&self.inner).ask_in_task(verdict, Arc::clone(&progress))),
            false => Pending::new(verdict),
        };
        Answer::Pending(pending.with_deadline_handler(progress))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let client = Arc::clone(&self.inner.client);
        let groups = client.denials.group_of(key);
        let hashed = self.inner.key_hash.apply(key);
        let (slot, redis_key) = (client.keys.slot_of(&hashed), client.keys.text(&hashed, policy));
        let bans = policy.ban().map(|ban| [client.keys.text(&hashed, ban), client.keys.last_ban_text(&hashed, ban)]);
        let holds = policy.holds().map(|_| client.keys.holds_text(&hashed, policy));
        Answer::pending(async move {
            // Forgets remembered denials now and after the reset, because a check in flight may be judged before the
            // reset or after it.
            let _forget = client.denials.forget(groups);
            let mut connection = client.connect(&client.runtime()?.pool, slot).await?;
            let keys: Vec<String> = [redis_key].into_iter().chain(bans.into_iter().flatten()).chain(holds).collect();
            // One by one on a cluster, because the keys may be on two nodes while their slot moves.
            let together = if client.target.is_cluster() { 1 } else { keys.len() };
            let mut removed = 0;
            for keys in keys.chunks(together) {
                let result: redis::RedisResult<u32> = connection.query(redis::cmd("UNLINK").arg(keys)).await;
                removed += result.map_err(|error| client.failed(&connection, &error))?;
            }
            Ok(removed > 0)
        })
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn has_alternatives(&self) -> bool {
        true
    }

    /// Changes the hold in one call, which checks may share.
    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        let Some(hold) = OpenHold::of(hold) else { return Answer::Ready(Ok(SettleAnswer::NotHeld)) };
        let Inner { client, key_hash, .. } = &*self.inner;
        let progress = Progress::new(false);
        let key = key_hash.apply(&hold.key);
        let settlement = count_reply::change_hold(Arc::clone(client), hold, key, change, Arc::clone(&progress));
        Answer::Pending(Pending::new(settlement).with_deadline_handler(progress))
    }

    /// Changes the count in one call, which checks may share.
    fn change_count(&self, key: &Key, policy: &Policy, change: CountChange) -> Answer<u64> {
        if let Err(mistake) = policy.refuse_change_if_blocked() {
            return Answer::Ready(Err(mistake.into()));
        }
        let Inner { client, key_hash, .. } = &*self.inner;
        let (progress, redis_key) = (Progress::new(false), key_hash.apply(key));
        let changed = count_reply::change_count(
            Arc::clone(client),
            key.clone(),
            redis_key,
            policy.clone(),
            change,
            Arc::clone(&progress),
        );
        Answer::Pending(Pending::new(changed).with_deadline_handler(progress))
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        let Inner { client, key_hash, .. } = &*self.inner;
        up_to::peek(client, key_hash, check, Progress::new(self.inner.may_span_domains(check)))
    }

    /// Finds and charges the units in one call, which checks may share.
    fn charge_up_to(&self, charge: &Charge) -> Answer<(Verdict, u64)> {
        let Inner { client, key_hash, .. } = &*self.inner;
        up_to::charge_up_to(client, key_hash, charge)
    }

    /// Calls the script on each master and charges nothing. Waits up to 5 s for slow dials and late replies; a server
    /// that refuses is an error at once.
    fn ready(&self) -> Answer<()> {
        Answer::pending(ready::ready(Arc::clone(&self.inner.client)))
    }

    fn deadline(&self) -> Duration {
        self.inner.client.settings.deadline
    }

    fn set_observer(&self, observer: Option<&Arc<dyn Observer>>) {
        let Inner { client, eviction, .. } = &*self.inner;
        client.observer.set(observer.cloned());
        // A new observer has not received earlier warnings.
        client.unkeyed_warning.rearm();
        eviction.observer_changed(observer.is_some());
    }

    fn breaker(&self) -> Option<BreakerSettings> {
        self.inner.breaker
    }

    fn failure_domains(&self) -> usize {
        self.inner.client.failure_domains()
    }

    fn failure_domain_of(&self, key: &Key) -> usize {
        let Inner { client, key_hash, .. } = &*self.inner;
        if !client.target.is_cluster() {
            return 0;
        }
        domain_of(client.keys.slot_of(&key_hash.apply(key)), CLUSTER_DOMAINS)
    }

    /// Counts the entries of the sorted set `{prefix}instances`, which each instance refreshes every few seconds while
    /// it has traffic.
    fn instances(&self) -> Option<u32> {
        self.inner.instances.number()
    }
}
