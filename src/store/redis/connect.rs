//! Creates a [`RedisStore`] from its settings and its target.

use std::sync::{Arc, atomic::AtomicBool};

use bb8_redis::{RedisConnectionManager, bb8};

use super::builder::RedisStoreBuilder;
use super::call::redis_key::{HashTags, RedisKeys, Slots};
use super::call::script::{self, Loader, ScriptClock};
use super::call::{Runtimes, client::Client, denials::Denials, refund_list::Refunds};
use super::net::address::{Address, Settings};
use super::net::{Target, cluster::seeds::Seeds, silence::Servers, url::Sentinels};
use super::store::{Inner, RedisStore};
use crate::observe::{ObserverCell, Once};
use crate::{error::ConfigError, store::deny_cache::DenyCache};

impl RedisStore {
    /// Creates a store on the Redis at `url`: `redis://[user:password@]host[:port][/db]`, or another
    /// [address](Self#addresses).
    ///
    /// Lazy: the first check dials, and no runtime is needed yet. [`Limiter::ready`](crate::Limiter::ready) dials and
    /// reports what is wrong.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL cannot be used. An unavailable Redis is not an error here.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// // No connection is made yet.
    /// assert!(RedisStore::open("redis://127.0.0.1:6379").is_ok());
    ///
    /// let error = RedisStore::open("127.0.0.1:6379").unwrap_err();
    /// assert!(
    ///     error
    ///         .to_string()
    ///         .contains("it has no scheme; write redis:// in front of it, ")
    /// );
    /// ```
    pub fn open(url: &str) -> Result<Self, ConfigError> {
        Self::builder().open(url)
    }

    /// Creates a builder, for settings other than the defaults.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::default()
    }
}

impl RedisStoreBuilder {
    /// Creates a store on the Redis at `url`, with a pool of its own. See [`RedisStore::open`].
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the secret, the URL, a certificate, the prefix, the deadline or the pool size cannot be used.
    /// No error shows a part of the URL, because the URL may hold a password.
    pub fn open(self, url: &str) -> Result<RedisStore, ConfigError> {
        let (address, size) = (Address::server(url, &self.security), self.pool_size);
        self.build_with_own_pool(address.map(|address| Target::Server { address, size }))
    }

    /// Creates a store on the master that `sentinels` name, with a pool of its own.
    ///
    /// `master` is the name of the master. For a login, a database or TLS it is a URL with the name in place of the
    /// host: `redis://user:password@mymaster/2`. The URLs of the sentinels have the login of the sentinels, which is
    /// the same for all.
    ///
    /// Each dial asks all sentinels at the same time. Of the servers that report the role of a master, it takes the one
    /// that most sentinels name. A server that turns out not to be a master is left at once. If the master is lost,
    /// checks go to the failure policy until a sentinel names another one.
    ///
    /// The store also asks the sentinels once a second, and leaves a master as soon as most of them name another one:
    /// see [`guide::when_redis_fails`](crate::guide::when_redis_fails#sentinels). So give the URLs of all sentinels.
    ///
    /// A dial through sentinels takes seven round trips. A lookup that takes longer than 400 ms goes on beside the next
    /// one, so slow sentinels are used too.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let sentinels = [
    ///     "redis://10.0.0.1:26379",
    ///     "redis://10.0.0.2:26379",
    ///     "redis://10.0.0.3:26379",
    /// ];
    /// let store = RedisStore::builder().open_sentinel(sentinels, "mymaster")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError`] as in [`open`](Self::open), if there is no sentinel or no name, and if
    /// the sentinels use TLS and the master does not.
    pub fn open_sentinel(
        self,
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
    ) -> Result<RedisStore, ConfigError> {
        let (size, security) = (self.pool_size, &self.security);
        let sentinels = Sentinels::new(sentinels, master, security);
        self.build_with_own_pool(
            sentinels.map(|sentinels| Target::Server { address: Address::Sentinels(Box::new(sentinels)), size }),
        )
    }

    /// Creates a store on the Redis Cluster that `nodes` belong to, with a pool for each master. One or two nodes are
    /// enough; the others are found through them. The login and the TLS settings are those of the first URL.
    ///
    /// All policies of a key are in one slot, so a check of **one key** is atomic, as on a single server. Each slot has
    /// a queue and calls of its own, up to 32 at a time: checks of one slot that wait at the same time share a call,
    /// and a slot that is hot, or whose master does not answer, delays no other for more than a few milliseconds. So
    /// that many keys share calls, they are in a few slots, as many as there are [hash
    /// tags](Self::cluster_hash_tags). While slots are busy, their calls to one master take turns, and wait at most
    /// 3 ms: in this time more checks join them. Over a way of a millisecond or more, most do not wait.
    ///
    /// A check of **several keys in different slots** cannot be atomic. It takes these steps:
    ///
    /// 1. All slots evaluate their part at the same time, and charge nothing. Most denials take no more: one round
    ///    trip, with a Retry-After as exact as on a single server. One slot that denies is enough. The other slots then
    ///    have half of the rest of the deadline; a slot that does not answer in that time does not contribute to
    ///    Retry-After, and its policy has nothing available in the decision.
    /// 2. If the check fits, it is committed slot by slot.
    /// 3. If a slot denies its part, because another request was faster, the check is denied. The earlier commits are
    ///    **refunded**, right after the answer. They are also refunded if a slot gives no answer, if the deadline
    ///    passes, if the caller goes away, or if its runtime ends: what is not admitted is not charged for long.
    ///
    /// These steps have consequences:
    ///
    /// * Never over a limit: nothing is admitted that was not charged in every slot, and no refund exceeds its commit.
    /// * Such a check may hold units for one or two round trips, in which they are denied to other checks. All checks
    ///   commit slots in the same order, so one of several competing checks is admitted.
    /// * Each commit leaves a receipt for 20 s: a key of about 150 bytes in its slot. A refund names the receipt, so it
    ///   is repeated until its master answers, at most for these 20 s, and never undoes more than its commit. A refund
    ///   that overtakes its commit prevents it. With its receipt, a commit takes Redis about 21 µs instead of 8. Checks
    ///   of one slot have no receipts.
    /// * A commit that cannot be refunded stays until it leaves its window: if its master does not answer for 20 s, is
    ///   lost, or has its clock set back in between, if the process ends, if more than 16 384 refunds wait, or if the
    ///   log has more than 255 newer records. A token bucket keeps what may have flowed in since. While its slot moves
    ///   to another master, a commit has no receipt: it is refunded when its answer comes, also to a caller that has
    ///   left, and stays if no answer comes within the deadline.
    /// * A [reset](crate::Limiter::reset) in between forgets the commit. Only the exact log detects that; the other
    ///   algorithms then refund units that were charged after the reset.
    /// * Policies that [count denials](crate::Policy::with_denials_counted) count them in every slot. The
    ///   answer waits for these slots with half of the rest of the deadline; a slot that is late counts after the
    ///   answer.
    ///
    /// Keys that always compete together for scarce limits are better joined into one key. A check across slots takes
    /// one round trip to evaluate and one for each slot to commit, so the deadline has to exceed their sum.
    ///
    /// A slot that moves is followed to its new node. While a slot moves, Redis refuses calls with several keys of
    /// which some have moved or do not exist: several policies of a key, a policy with a ban, holds, slots and leases.
    /// The keys of such a check are asked one by one, as if each were in a slot of its own. So it gets a verdict too,
    /// after two to five more round trips, and is never over a limit. What differs until the slot has moved:
    ///
    /// * A settlement that charges units waits until all keys of its count are on one node. Its hold is kept open
    ///   meanwhile, and the store's callers repeat the settlement. Releases and renewals are made at once.
    /// * Two checks of one key under a policy with holds may deny each other.
    /// * [`check_up_to`](crate::Limiter::check_up_to) looks at what fits, and then charges as much. If other checks are
    ///   faster twice, it charges one unit, or is denied.
    /// * A check that [holds](crate::Limiter::hold_all) units beside other charges may be an error that can be
    ///   repeated, and is one beside a policy whose bans [grow](crate::Policy::growing_to).
    /// * A ban begins with the check after the last denial. [`unban`](crate::Limiter::unban) under a policy with a ban
    ///   is an error that can be repeated.
    ///
    /// A check that was lost with its connection is not sent again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let store = RedisStore::builder()
    ///     .open_cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError`] as in [`open`](Self::open), and if there is no node.
    pub fn open_cluster(self, nodes: impl IntoIterator<Item: AsRef<str>>) -> Result<RedisStore, ConfigError> {
        let (seeds, size) = (Seeds::new(nodes, &self.security), self.pool_size);
        self.build_with_own_pool(seeds.map(|seeds| Target::Cluster { seeds, size }))
    }

    /// Creates a store on a bb8-redis pool that the service has created. The pool size of the builder is not used.
    ///
    /// The pool keeps its settings. By default it sends a PING before each check, which doubles the round trips; with
    /// `test_on_check_out(false)` it hands out a broken connection until the connection's lifetime ends. Its
    /// connections have no TCP_NODELAY unless their `ConnectionInfo` sets it. The store cannot read the pool's
    /// password, so an error contains the password if the server's text does. Nor does it see when answers arrive:
    /// with tens of thousands of checks at once, a process that is too busy to read the answers takes Redis for silent,
    /// and leaves these checks to the failure policy. The deadline holds with every pool.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::{
    ///     RedisStore,
    ///     bb8_redis::{RedisConnectionManager, bb8},
    /// };
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let manager = RedisConnectionManager::new("redis://127.0.0.1:6379")?;
    /// let pool = bb8::Pool::builder().test_on_check_out(false).build(manager).await?;
    /// let store = RedisStore::builder().from_pool(pool)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the secret, the prefix or the deadline cannot be used.
    pub fn from_pool(self, pool: bb8::Pool<RedisConnectionManager>) -> Result<RedisStore, ConfigError> {
        self.build(Target::External(pool))
    }

    /// Builds a store that creates its own pool.
    fn build_with_own_pool(self, target: Result<Target, ConfigError>) -> Result<RedisStore, ConfigError> {
        self.mistake.found()?;
        if self.pool_size == 0 {
            return Err(ConfigError::new("a pool of 0 connections can send nothing; use at least 1"));
        }
        self.build(target?)
    }

    /// How the slot of a count follows from its subject.
    fn slots(&self, target: &Target) -> Result<Slots, ConfigError> {
        match self.cluster_hash_tags {
            _ if !target.is_cluster() => Ok(Slots::OneServer),
            Some(count) => HashTags::new(count).map(Slots::ByGroup),
            None => Ok(Slots::BySubject),
        }
    }

    /// Checks the settings and builds the store. Makes no connection.
    fn build(self, target: Target) -> Result<RedisStore, ConfigError> {
        self.mistake.found()?;
        let slots = self.slots(&target)?;
        let Self { prefix, deadline, first_dial_deadline, clock, batching, deny_cache, breaker, key_hash, .. } = self;
        if deadline.is_zero() {
            let message = "a deadline of 0 would refuse every check; use a longer one, the default is 50 ms";
            return Err(ConfigError::new(message));
        }
        if prefix.contains(['{', '}']) {
            return Err(ConfigError::new(format!(
                "key prefix {prefix:?} has braces, which mark the hash tag; leave them out"
            )));
        }
        let is_cluster = target.is_cluster();
        let deny_cache = deny_cache.then(DenyCache::new);
        let client = Client {
            target,
            settings: Settings {
                deadline,
                first_dial_deadline,
                first_command: script::load,
                servers: Servers::default(),
            },
            keys: RedisKeys::new(&prefix, slots),
            batching,
            clock: ScriptClock::new(clock.clone()),
            denials: Arc::new(Denials::new(deny_cache, clock, is_cluster)),
            observer: ObserverCell::default(),
            has_unkeyed_hashes: AtomicBool::new(false),
            unkeyed_warning: Once::default(),
            loader: Loader::default(),
            runtimes: Runtimes::default(),
            refunds: Refunds::default(),
        };
        Ok(RedisStore::new(Inner {
            client: Arc::new(client),
            key_hash,
            breaker,
            instances: Arc::default(),
            eviction: Arc::default(),
        }))
    }
}
