//! The settings of a [`RedisStore`](super::RedisStore).

use std::{io, sync::Arc, time::Duration};

#[cfg(feature = "tls")]
use super::net::login::PemSource;
use super::net::{endpoint::Security, login::Logins};
use super::{KeyHash, call::redis_key::HashTags};
use crate::{
    breaker::settings::BreakerSettings, clock::Clock, error::FirstMistake, key::partition::Secret,
    store::contract::DEFAULT_DEADLINE,
};

/// Builder for [`RedisStore`](crate::RedisStore).
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate::RedisStore;
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let store = RedisStore::builder()
///     .prefix("shop:limits:")
///     .deadline(Duration::from_millis(20))
///     .key_secret("32 random bytes from the environment")
///     .open("redis://10.0.0.5:6379")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "finish with `open` or `from_pool`"]
pub struct RedisStoreBuilder {
    pub(super) prefix: String,
    pub(super) deadline: Duration,
    pub(super) first_dial_deadline: Duration,
    pub(super) pool_size: u32,
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) batching: bool,
    pub(super) cluster_hash_tags: Option<u16>,
    pub(super) deny_cache: bool,
    pub(super) breaker: Option<BreakerSettings>,
    pub(super) key_hash: KeyHash,
    pub(super) security: Security,
    pub(super) mistake: FirstMistake,
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
            cluster_hash_tags: Some(HashTags::DEFAULT_COUNT),
            deny_cache: true,
            breaker: Some(BreakerSettings::default()),
            key_hash: KeyHash::default(),
            security: Security::default(),
            mistake: FirstMistake::default(),
        }
    }
}

impl RedisStoreBuilder {
    /// Sets the prefix of all Redis keys. Defaults to `tollgate:`.
    ///
    /// Services with the same prefix, policy names and keys share their budgets. Braces in a prefix are an error of
    /// `open`, because they mark the hash tag.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the time within which a check gets its verdict. Defaults to 50 ms: longer than the slowest answers of a
    /// healthy Redis, shorter than a person notices. Zero is an error of `open`.
    ///
    /// The first connection of a process has a [deadline of its own](Self::first_dial_deadline).
    #[doc(alias = "timeout")]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets how long a check waits while the first connection is made. Defaults to 250 ms: with a round trip of 20 ms,
    /// TCP, TLS, the login and the lookup of a sentinel or a cluster take up to 200 ms.
    ///
    /// Applies only to the first dial of each server that the URL or the first slot map names, once for each runtime.
    /// When that dial has ended, the checks that have waited have their [deadline](Self::deadline) for the call, or get
    /// an error if the dial failed. Afterwards no check waits longer than the deadline.
    ///
    /// With zero, the first checks wait no longer than others, so most of them get no verdict if a dial takes longer
    /// than the deadline. To wait before the first request instead, call [`Limiter::ready`](crate::Limiter::ready).
    pub fn first_dial_deadline(self, deadline: Duration) -> Self {
        Self { first_dial_deadline: deadline, ..self }
    }

    /// Sets the number of connections to each server. Defaults to 2, so that one lost packet does not delay all checks;
    /// zero is an error of `open`. More connections rarely help, because each carries any number of checks at once.
    pub fn pool_size(self, connections: u32) -> Self {
        Self { pool_size: connections, ..self }
    }

    /// Sets the clock of all checks, for tests. Defaults to the time of the Redis server, because all instances share
    /// that time.
    ///
    /// If a server forbids `TIME` in scripts (as ElastiCache Serverless does), its error is detected, and the process's
    /// own time is used. Then the clocks of all instances have to agree: if two clocks differ by a second, the units of
    /// one second may be admitted twice.
    pub fn clock(self, clock: impl Clock) -> Self {
        Self { clock: Some(Arc::new(clock)), ..self }
    }

    /// Sets the secret under which keys are hashed before they leave the process: at least 16 bytes, best 32 random
    /// ones. All instances need the same secret, or they count separately. After a change of the secret, all
    /// counts start at zero.
    ///
    /// Redis gets 128 bits of HMAC-SHA-256 in place of each key. So a snapshot, `MONITOR` or a slow log shows no
    /// address, user or API key, and without the secret keys cannot be found by trial. A collision of two keys is
    /// expected among 2^64 keys. A hash costs about 200 ns for each check that is sent.
    ///
    /// Without a secret the hash is the same everywhere, short keys can be found by trial, and an observer gets one
    /// [warning](crate::observe::Warning). The default is not a random secret, because each process
    /// would then have its own counts and lose them at a restart.
    ///
    /// [`RedisStore::redis_key`](crate::RedisStore::redis_key) returns the Redis key of a count, to inspect it with
    /// redis-cli.
    ///
    /// A secret that is shorter than 16 bytes is a mistake, which [`open`](Self::open) returns.
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
    /// let store =
    ///     RedisStore::builder().key_secret(secret).open("redis://127.0.0.1:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_secret(mut self, secret: impl AsRef<[u8]>) -> Self {
        if let Some(secret) = self.mistake.keep(Secret::new(secret.as_ref())) {
            self.key_hash = self.key_hash.with_secret(secret);
        }
        self
    }

    /// Sends keys to Redis readable instead of hashed, which saves the hash and about ten bytes for each key. Keys are
    /// hashed by default, because they identify people, and the data of Redis travels into snapshots, replicas and
    /// logs.
    ///
    /// [`ApiKey`](crate::ApiKey)s, [hashed](crate::Key::hashed) keys and keys of more than 64 bytes, alone or
    /// [joined](crate::Key::join) with others, are still hashed under the [secret](Self::key_secret). All instances
    /// need the same setting, or they count separately.
    pub fn plain_keys(self) -> Self {
        Self { key_hash: self.key_hash.plain(), ..self }
    }

    /// Sets whether checks that wait at the same time share a call. Defaults to `true`, because batches multiply the
    /// throughput of a Redis and delay no check: a lone check leaves at once.
    pub fn batching(self, batching: bool) -> Self {
        Self { batching, ..self }
    }

    /// Sets the number of hash tags on a cluster; `None` gives each key a tag of its own. Defaults to 48, which is 16
    /// for each of three masters. Has no effect on a single server.
    ///
    /// Only checks of one slot share a call. With a tag for each key, the checks that wait at one time are nearly all
    /// in different slots, and each of them costs Redis the time of a call. With fewer tags more checks share calls.
    /// With more tags the load is spread more evenly, and a slot that moves to another master has fewer keys. Use about
    /// 16 to 32 tags for each master; a number that is a multiple of the number of masters spreads the load most
    /// evenly.
    ///
    /// All instances need the same number, or they count separately: the number is a part of each Redis key, so a new
    /// number starts new counts. From 1 to 1024; other numbers are an error of
    /// [`open_cluster`](Self::open_cluster).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// // For twelve masters.
    /// let store = RedisStore::builder()
    ///     .cluster_hash_tags(192)
    ///     .open_cluster(["redis://10.0.0.1:6379"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn cluster_hash_tags(self, tags: impl Into<Option<u16>>) -> Self {
        Self { cluster_hash_tags: tags.into(), ..self }
    }

    /// Sets whether denials are answered from memory until the first unit of a spent policy is free again. Defaults to
    /// `true`, because a flood of refused requests of one client then costs Redis one call a second.
    ///
    /// Only a denial by a policy without any unit left is remembered. Redis would deny such a check too, because only
    /// time frees a unit, whatever other policies have left. Checks with a policy that
    /// [counts denials](crate::Policy::with_denials_counted) or [bans](crate::Policy::ban_after) are always sent,
    /// except while the key is banned.
    ///
    /// Two things free units too: a change by hand, such as a [reset](crate::Limiter::reset), and a Redis that loses
    /// its data. So once a second, one check of the key asks Redis again, and the others are denied from memory
    /// meanwhile. A change by another process takes effect within that second; a change through a clone of this store
    /// does at once.
    ///
    /// If Redis gives no verdict, a denial is remembered for at most ten seconds. Except on a cluster, all denials are
    /// forgotten as soon as a check gets no connection, or its connection breaks.
    pub fn deny_cache(self, deny_cache: bool) -> Self {
        Self { deny_cache, ..self }
    }

    /// Sets the circuit breaker; `None` switches it off. Defaults to [`BreakerSettings::default`], because without a
    /// breaker each request waits for the deadline during an outage.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{RedisStore, failure::BreakerSettings};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let breaker = BreakerSettings::default().with_consecutive_timeouts(2);
    /// let store =
    ///     RedisStore::builder().breaker(breaker).open("redis://127.0.0.1:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn breaker(self, breaker: impl Into<Option<BreakerSettings>>) -> Self {
        Self { breaker: breaker.into(), ..self }
    }

    /// Sets where each dial gets its login, in place of the login in the URL: for a password that is replaced while the
    /// process runs.
    ///
    /// `source` returns the user and the password. With an empty user, the user is that of the URL, or the default
    /// user, whose password is the server's `requirepass`. `source` is called at each dial, on the runtime, so it
    /// should read a file or a variable and not wait for long. Connections that stand keep their login. If `source`
    /// fails or panics, so does the dial, and is repeated after a pause, as after a refused login.
    /// [Operations](crate::guide::operations) says in which order a password is replaced.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let store = RedisStore::builder()
    ///     .login_from(|| {
    ///         Ok((
    ///             "gate",
    ///             std::fs::read_to_string("/run/secrets/redis")?.trim().to_owned(),
    ///         ))
    ///     })
    ///     .open("redis://10.0.0.5:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn login_from<U, P>(mut self, source: impl Fn() -> io::Result<(U, P)> + Send + Sync + 'static) -> Self
    where
        U: Into<String>,
        P: Into<String>,
    {
        self.security.logins = Some(Logins::from(source));
        self
    }

    /// Sets where each dial of a sentinel gets its login, as [`login_from`](Self::login_from) does for servers.
    pub fn sentinel_login_from<U, P>(mut self, source: impl Fn() -> io::Result<(U, P)> + Send + Sync + 'static) -> Self
    where
        U: Into<String>,
        P: Into<String>,
    {
        self.security.sentinel_logins = Some(Logins::from(source));
        self
    }

    /// Sets the certificates, as PEM, with which the server at a `rediss://` URL is verified; no others are trusted.
    /// Defaults to the certificates that the operating system trusts, because managed services use those.
    ///
    /// Takes the text or its bytes, or a closure that returns the bytes, for certificates that are replaced while the
    /// process runs. `open` parses the text. A text without a certificate, or a URL without TLS, is a
    /// [`ConfigError`](crate::ConfigError). A closure is called by `open` and at each dial, on the runtime. What has
    /// changed is parsed again. If the closure fails or panics, or its text cannot be parsed, the dial fails and is
    /// repeated.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let authority = std::fs::read("/etc/ssl/redis-ca.pem")?;
    /// let store = RedisStore::builder()
    ///     .root_certificates(authority)
    ///     .open("rediss://10.0.0.5:6379")?;
    ///
    /// // The file is read at each dial:
    /// let store = RedisStore::builder()
    ///     .root_certificates(|| std::fs::read("/etc/ssl/redis-ca.pem"))
    ///     .open("rediss://10.0.0.5:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn root_certificates(mut self, pem: impl PemSource<Vec<u8>>) -> Self {
        self.security.set_roots(pem.into_source());
        self
    }

    /// Sets the client certificate for the server at a `rediss://` URL: a chain and its key, both as PEM. Defaults to
    /// none, because few servers request one.
    ///
    /// Takes the two, or a closure that returns the bytes of both, as [`root_certificates`](Self::root_certificates)
    /// does. `open` parses both. A chain or key that cannot be read, or a URL without TLS, is a
    /// [`ConfigError`](crate::ConfigError).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::fs::read;
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let identity = (read("/etc/ssl/shop.pem")?, read("/etc/ssl/shop.key")?);
    /// let store = RedisStore::builder()
    ///     .client_certificate(identity)
    ///     .open("rediss://10.0.0.5:6379")?;
    ///
    /// // The files are read at each dial:
    /// let store = RedisStore::builder()
    ///     .client_certificate(|| {
    ///         Ok((read("/etc/ssl/shop.pem")?, read("/etc/ssl/shop.key")?))
    ///     })
    ///     .open("rediss://10.0.0.5:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    pub fn client_certificate(mut self, identity: impl PemSource<(Vec<u8>, Vec<u8>)>) -> Self {
        self.security.set_client(identity.into_source());
        self
    }
}
