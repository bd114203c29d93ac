//! The builder of a [`RedisStore`].

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bb8_redis::{RedisConnectionManager, bb8};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};

#[cfg(feature = "cluster")]
use super::net::cluster::seeds::Seeds;
#[cfg(feature = "sentinel")]
use super::net::sentinel::Sentinels;
use super::{
    call::{
        client::Client,
        denials::Denials,
        per_runtime::Runtimes,
        script::{self, Loader},
        script_clock::ScriptClock,
    },
    key_hash::KeyHash,
    net::{address::Address, settings::Settings, target::Target, url::Security},
    store::{Inner, RedisStore},
};
use crate::{
    breaker::Breaker,
    clock::Clock,
    error::ConfigError,
    observe::{ObserverCell, Once},
    store::{
        contract::DEFAULT_DEADLINE,
        deny_cache::{self, DenyCache},
    },
};

impl RedisStore {
    /// Creates a store on the Redis at `url`: `redis://[user:password@]host[:port][/db]`, or another
    /// [address](Self#addresses).
    ///
    /// Lazy: the first check dials, and no runtime is needed yet. [`Limiter::ready`](crate::Limiter::ready) dials and
    /// reports what is wrong.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidRedisUrl`]. An unavailable Redis is not an error here.
    pub fn connect(url: &str) -> Result<Self, ConfigError> {
        Self::builder().connect(url)
    }

    /// Creates a builder, for settings other than the defaults.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::default()
    }
}

/// Builder for [`RedisStore`].
#[derive(Clone, Debug)]
#[must_use = "finish with `connect` or `from_pool`"]
pub struct RedisStoreBuilder {
    prefix: String,
    deadline: Duration,
    first_dial_deadline: Duration,
    pool_size: u32,
    clock: Option<Arc<dyn Clock>>,
    batching: bool,
    deny_cache: bool,
    breaker: Option<Breaker>,
    key_hash: KeyHash,
    security: Security,
}

impl Default for RedisStoreBuilder {
    fn default() -> Self {
        Self {
            prefix: "tollgate:".to_owned(),
            deadline: DEFAULT_DEADLINE,
            first_dial_deadline: Duration::from_millis(250),
            pool_size: 2,
            clock: None,
            batching: true,
            deny_cache: true,
            breaker: Some(Breaker::default()),
            key_hash: KeyHash::default(),
            security: Security::default(),
        }
    }
}

impl RedisStoreBuilder {
    /// Sets what every key begins with. Defaults to `tollgate:`.
    ///
    /// Services with the same prefix, policy names and keys share their budgets.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets how long a check may take in all. Defaults to 50 ms: above the slowest healthy answers, below what a
    /// person notices. The one exception is the first connection of a process, which has a
    /// [deadline of its own](Self::first_dial_deadline).
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets how long a check may wait while the first connection is made. Defaults to 250 ms: over a round trip of
    /// 20 ms, TCP, TLS, the login and the lookup of a sentinel or a cluster take up to 200 ms.
    ///
    /// Only the first dial of each server that is known at the start counts, once for each runtime. As soon as it has
    /// ended, the checks that have waited have their [deadline](Self::deadline) for the call, or their error if it has
    /// failed. After that time, or after that dial, no check waits longer than the deadline. A zero makes the first
    /// checks wait no longer than the others, so most of them get no verdict where a connection takes longer. To wait
    /// before the first request instead, call [`Limiter::ready`](crate::Limiter::ready).
    pub fn first_dial_deadline(self, deadline: Duration) -> Self {
        Self { first_dial_deadline: deadline, ..self }
    }

    /// Sets the number of connections. Defaults to 2, so that one lost packet does not hold up every check; more
    /// rarely help, for each carries any number of checks at once.
    pub fn pool_size(self, connections: u32) -> Self {
        Self { pool_size: connections, ..self }
    }

    /// Takes the time from `clock` instead of the Redis server, for tests.
    ///
    /// A server that forbids `TIME` in scripts (ElastiCache Serverless does) is noticed by its error, and the time is
    /// then the process's own. All instances need clocks that agree: a skew admits what was sent during the skew once
    /// more.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Hashes keys under `secret` before they leave the process. Every instance needs the same one, or each counts for
    /// itself; another secret starts fresh counts.
    ///
    /// Redis gets no key as it is: 128 bits of HMAC-SHA-256 stand for it, so that a snapshot, `MONITOR` or a slow log
    /// names no address, no user and no API key, and without the secret nobody can try out which one it is. Two keys
    /// never share a budget: for that it would take 2^64 of them. What it costs is some 200 ns a check that is sent.
    ///
    /// Without a secret the hash is the same everywhere, and an observer is
    /// [warned](crate::observe::Warning::GuessableKeys) once: short keys can then be found by trial. A random secret for
    /// each process would hide more, but multiply every limit by the number of instances and forget all counts at a
    /// restart; a limiter that is safe to read and limits nothing is no bargain.
    ///
    /// To look at a count with redis-cli, ask [`RedisStore::redis_key`] for its key.
    ///
    /// # Errors
    ///
    /// [`ConfigError::SecretTooShort`] below 16 bytes. Use 32 random ones.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let secret = || Ok::<_, std::env::VarError>(String::from("9b0c7dd1f5c0a4f1d2e08b7d2c6a3e55"));
    /// # /*
    /// let secret = std::env::var("TOLLGATE_KEY_SECRET")?;
    /// # */ let secret = secret()?;
    /// let store = RedisStore::builder().key_secret(secret)?.connect("redis://127.0.0.1:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_secret(self, secret: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        Ok(Self { key_hash: self.key_hash.with_secret(secret.as_ref())?, ..self })
    }

    /// Sends keys to Redis as they are, readable, which saves the hashing and some ten bytes each. Defaults to hashing
    /// them, for keys identify people, and Redis' data travels: into snapshots, replicas and logs.
    ///
    /// [`ApiKey`](crate::ApiKey)s, [hashed](crate::Key::hashed) keys and those of more than 64 bytes, alone or
    /// [joined](crate::Key::join) with others, are still hashed under the [secret](Self::key_secret): a credential is
    /// nobody's to read. All instances have to agree, or they count in two places.
    pub fn plain_keys(self) -> Self {
        Self { key_hash: self.key_hash.plain(), ..self }
    }

    /// Sends checks that wait at the same time in one call. Defaults to `true`, because it multiplies what one Redis can
    /// do and delays nothing: a lone check leaves at once.
    pub fn batching(self, batching: bool) -> Self {
        Self { batching, ..self }
    }

    /// Answers from memory the denials of checks with a policy that is spent to the last unit, until its first unit
    /// comes back. Defaults to `true`, because a flood of refused requests then costs Redis nothing.
    ///
    /// Redis would deny such a check too, because nothing but time gives a unit back; what the other policies have left
    /// does not matter. Policies that [count rejected requests](crate::Policy::with_count_rejected), and those that
    /// [ban](crate::Policy::ban_after), are always asked for.
    ///
    /// A denial is remembered for ten seconds at most, and for one second on a cluster. It is also one second where
    /// other checks may make its Retry-After longer: where the charges of a check have several keys, or where a
    /// violated policy has units left, but too few.
    ///
    /// Exceptions are a [reset](crate::Limiter::reset) and a Redis that loses its data or goes away. A reset made
    /// through a clone of this store is seen at once, and a connection that is lost ends them when the next check is
    /// sent to Redis; anything else when the denial
    /// is forgotten. Switch this off if that matters.
    pub fn deny_cache(self, deny_cache: bool) -> Self {
        Self { deny_cache, ..self }
    }

    /// Sets when a limiter stops asking a Redis that does not answer, or with `None` that it never does. Defaults to
    /// [`Breaker::default`], because an outage would cost every request the deadline.
    pub fn breaker(self, breaker: impl Into<Option<Breaker>>) -> Self {
        Self { breaker: breaker.into(), ..self }
    }

    /// Trusts the certificates in `pem`, and no others, to tell the server at a `rediss://` URL. Defaults to those that
    /// the operating system trusts, because managed services have theirs from there.
    ///
    /// `connect` reads them: a text without a certificate, or a URL without TLS, is a [`ConfigError`].
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        let none = TlsCertificates { client_tls: None, root_cert: None };
        self.security.certificates.get_or_insert(none).root_cert = Some(pem.into());
        self
    }

    /// Shows the server at a `rediss://` URL a certificate: a chain and its key, both as PEM. Defaults to none, because
    /// few servers ask for one.
    ///
    /// `connect` reads them: a chain or key that cannot be read, or a URL without TLS, is a [`ConfigError`].
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let none = TlsCertificates { client_tls: None, root_cert: None };
        let client_tls = ClientTlsConfig { client_cert: chain.into(), client_key: key.into() };
        self.security.certificates.get_or_insert(none).client_tls = Some(client_tls);
        self
    }

    /// Finishes with a pool of our own on the Redis at `url`; see [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the URL or a certificate cannot be used, or the prefix, deadline or pool size is unusable. No
    /// error shows a part of the URL, because it may hold a password.
    pub fn connect(self, url: &str) -> Result<RedisStore, ConfigError> {
        let (address, size) = (Address::server(url, &self.security), self.pool_size);
        self.dial(address.map(|address| Target::Server { address, size }))
    }

    /// Finishes with a pool of our own on the master that `sentinels` name.
    ///
    /// `master` is its name, or a URL with the name in the place of the host, for a login, a database number or TLS:
    /// `redis://user:password@mymaster/2`. The sentinels' URLs have the login for the sentinels, the same one for all.
    ///
    /// Sentinels are asked at every dial, and a server that turns out to be no master (any more) is left at once. So a
    /// switch is followed as soon as the sentinels agree on it; until then checks go to the failure policy.
    ///
    /// All sentinels are asked at the same time, and the first that names a master is followed. That may take 400 ms,
    /// or eight deadlines if that is longer: it takes seven round trips, so a deadline above the round trip is enough.
    /// A sentinel that takes half a second for one reply is not waited for.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379", "redis://10.0.0.3:26379"];
    /// let store = RedisStore::builder().connect_sentinel(sentinels, "mymaster")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError`] as in [`connect`](Self::connect), if there is no sentinel or no name, and
    /// [`ConfigError::PlaintextMaster`] if only the sentinels are spoken to through TLS.
    #[cfg(feature = "sentinel")]
    #[cfg_attr(docsrs, doc(cfg(feature = "sentinel")))]
    pub fn connect_sentinel(
        self,
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
    ) -> Result<RedisStore, ConfigError> {
        let (size, security) = (self.pool_size, &self.security);
        let sentinels = Sentinels::new(sentinels, master, security, self.deadline);
        self.dial(sentinels.map(|sentinels| Target::Server { address: Address::Sentinels(Box::new(sentinels)), size }))
    }

    /// Finishes with connections to all masters of the Redis Cluster that `nodes` belong to; one or two are enough, the
    /// others are found through them. Login and TLS are those of the first URL.
    ///
    /// All policies of a key are in one slot, so a check of **one key** is what it is on a single server: atomic, and checks
    /// of one slot that wait at the same time share a call. Up to 32 calls of a slot are under way; each slot has a
    /// queue of its own, so a slot that is hot, or whose master does not answer, holds up no other.
    ///
    /// A check of **several keys in different slots** cannot be atomic there. All slots are asked at the same time
    /// whether it fits, which is all that most denials take: one round trip, nothing charged, and a Retry-After that is
    /// as exact as on a single server. One slot that denies is enough, whatever the others answer. When a slot has
    /// denied, the others have half of what is left of the deadline; one that does not answer by then is not part of
    /// Retry-After, and its policy has nothing available in the decision. If the check fits, it is paid slot by slot.
    /// When another request was faster in between, a later slot refuses; then the request is denied, and what the
    /// earlier slots took is **given back**, right after the answer. What that means:
    ///
    /// * Never over: nothing is admitted that was not charged in every slot, and no more is given back than was taken.
    /// * What is held for a moment, a round trip or two, may be denied to others. Checks pay in the same order, so one of
    ///   those that contend gets through.
    /// * What cannot be given back stays paid until it leaves its window: when the call that gives it back gets no answer
    ///   (it is sent once, like every charge), when its master is lost or its clock set back in between, or when the log
    ///   has had more than 255 other records since. A token bucket keeps what may have come in again since. A check that
    ///   itself gets no answer stays paid as far as it was, for its failure policy may let it pass.
    /// * A [reset](crate::Limiter::reset) in between forgets the charge; only the exact log knows that, others then give
    ///   back as much of what came after the reset.
    /// * Policies that [count rejected requests](crate::Policy::with_count_rejected) count them in every slot. The answer
    ///   waits for that with half of what is left of the deadline, and a slot that is late counts after the answer.
    ///
    /// Keys that always contend together for scarce limits are better off as one key. Such a check takes one round trip
    /// to look and one for each slot to pay, so the deadline has to be longer than all of them.
    ///
    /// A slot that moves is followed to the node that it moves to. While it moves, Redis cannot judge a check of several
    /// policies for a key that is new: such a check gets no verdict until the slot has moved. A check that was lost with
    /// its connection is not sent again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let store = RedisStore::builder().connect_cluster(["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError`] as in [`connect`](Self::connect), and if there is no node.
    #[cfg(feature = "cluster")]
    #[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
    pub fn connect_cluster(self, nodes: impl IntoIterator<Item: AsRef<str>>) -> Result<RedisStore, ConfigError> {
        let (seeds, size) = (Seeds::new(nodes, &self.security), self.pool_size);
        self.dial(seeds.map(|seeds| Target::Cluster { seeds, size }))
    }

    fn dial(self, target: Result<Target, ConfigError>) -> Result<RedisStore, ConfigError> {
        if self.pool_size == 0 {
            return Err(ConfigError::ZeroPoolSize);
        }
        self.build(target?)
    }

    /// Finishes with a bb8-redis pool that the service has already; the pool size set here is not used.
    ///
    /// The pool's own habits remain: by default it sends a PING before every check, doubling its round trips, and with
    /// `test_on_check_out(false)` it keeps handing out a connection that broke until its lifetime ends. Its connections
    /// have no TCP_NODELAY unless their `ConnectionInfo` says so. Its password is not known here, so an error would show it
    /// if the server's text does. The deadline holds in any case.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the prefix or deadline is unusable.
    pub fn from_pool(self, pool: bb8::Pool<RedisConnectionManager>) -> Result<RedisStore, ConfigError> {
        self.build(Target::External(pool))
    }

    fn build(self, target: Target) -> Result<RedisStore, ConfigError> {
        let Self { prefix, deadline, first_dial_deadline, clock, batching, deny_cache, breaker, key_hash, .. } = self;
        if deadline.is_zero() {
            return Err(ConfigError::InvalidDeadline);
        }
        if prefix.contains(['{', '}']) {
            return Err(ConfigError::InvalidPrefix { prefix });
        }
        let is_cluster = target.is_cluster();
        let deny_cache = deny_cache.then(|| {
            DenyCache::new(if is_cluster { deny_cache::MAX_AGE_ON_CLUSTER_US } else { deny_cache::MAX_AGE_US })
        });
        let client = Client {
            target,
            settings: Settings { deadline, first_dial_deadline, first_command: script::load },
            prefix: prefix.into(),
            batching,
            clock: ScriptClock::new(clock.clone()),
            denials: Denials::new(deny_cache, clock, is_cluster),
            observer: ObserverCell::default(),
            has_unkeyed_hashes: AtomicBool::new(false),
            unkeyed_warning: Once::default(),
            loader: Loader::default(),
            runtimes: Runtimes::default(),
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
