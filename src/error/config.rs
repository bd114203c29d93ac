//! Configurations that cannot work. `config_message` has their messages.

use std::time::Duration;

/// A configuration that cannot work, returned by the call that makes it.
///
/// The message contains the wrong value, unless the value is secret, and says what to write instead. `Debug` writes the
/// message too, because it is what a `main` that returns the error prints.
///
/// # Examples
///
/// ```
/// use tollgate::{ConfigError, Policy};
///
/// let error = Policy::per_minute("per client", 60).unwrap_err();
/// assert!(matches!(&error, ConfigError::InvalidPolicyName { name } if name == "per client"));
/// println!("{error}"); // says which characters a name may have
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// `Authorization` is the header of a key. Its value spells one token in several ways, and each would have its own
    /// budget.
    AuthorizationHeader {
        /// The name, as given.
        name: String,
    },
    /// A slot of a [concurrency limit](crate::Policy::concurrent) on a service whose response bodies cannot carry it.
    BodyCannotHold {
        /// The policy's name.
        policy: String,
    },
    /// A policy has both a ban and shards. Each shard would count denials by itself.
    BanWithShards {
        /// The policy's name.
        policy: String,
    },
    /// A burst is set on a policy whose algorithm is not the token bucket.
    BurstWithoutTokenBucket {
        /// The policy's name.
        policy: String,
    },
    /// A token bucket takes longer than [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW) to fill.
    BurstTooLarge {
        /// The policy's name.
        policy: String,
        /// The burst, as given.
        burst: u32,
    },
    /// Certificates are set for a Redis URL without TLS, so the login would be sent in plain text.
    CertificatesWithoutTls,
    /// The capacity of a [`MemoryStore`](crate::MemoryStore) is 0.
    ZeroCapacity,
    /// A plain charge under a [concurrency limit](crate::Policy::concurrent), which would never be given back.
    ConcurrencyNeedsHold {
        /// The policy's name.
        policy: String,
    },
    /// A fixed cost can never pass, because it is above the limit.
    CostAboveLimit {
        /// The policy's name.
        policy: String,
        /// The cost.
        cost: u32,
        /// The largest cost that can ever pass.
        limit: u32,
        /// The number of the policy's shards; 1 without shards.
        shards: u32,
    },
    /// Two policies of one check share a name, so they would share their counts.
    DuplicatePolicy {
        /// The name.
        policy: String,
    },
    /// A route is in the table twice.
    DuplicateRoute {
        /// The route, as given.
        route: String,
    },
    /// A policy has both holds and a setting that holds exclude: a ban, shards or counted rejections.
    ExcludesHolds {
        /// The policy's name.
        policy: String,
        /// The method that makes the other setting.
        setting: &'static str,
    },
    /// A policy has both a lease and a setting that leases exclude: a ban, shards, counted rejections, or holds that
    /// are released when they expire.
    ExcludesLease {
        /// The policy's name.
        policy: String,
        /// The other setting.
        setting: &'static str,
    },
    /// One check both holds and charges units of one key under one policy.
    HoldBesideCharge {
        /// The policy's name.
        policy: String,
    },
    /// A ban after 0 denials, or with a duration that is out of range.
    InvalidBan {
        /// The policy's name.
        policy: String,
        /// The denials, as given.
        denials: u32,
        /// The duration, as given.
        duration: Duration,
    },
    /// Certificates or a key that cannot be read. The error does not contain them.
    InvalidCertificate {
        /// The method of `RedisStoreBuilder` that received them.
        setting: &'static str,
        /// What is wrong with the certificates or the key.
        reason: String,
    },
    /// The certificates that the operating system trusts cannot be read, or there are none. They are needed for a
    /// `rediss://` URL without `RedisStoreBuilder::root_certificates`.
    SystemCertificates {
        /// What is wrong, with the file.
        reason: String,
    },
    /// A challenge for `WWW-Authenticate` that does not begin with the name of a scheme, or that no header can carry.
    InvalidChallenge {
        /// The challenge, as given.
        challenge: String,
    },
    /// A deadline of zero would refuse every check.
    InvalidDeadline,
    /// A number of hash tags outside 1..=1024.
    InvalidHashTags {
        /// The number, as given.
        tags: u16,
    },
    /// A name that is not a valid header name.
    InvalidHeaderName {
        /// The name, as given.
        name: String,
    },
    /// A time-to-live, a typical duration or a longest age of holds that is out of range.
    InvalidHolds {
        /// The policy's name.
        policy: String,
        /// The method of [`Holds`](crate::policy::Holds) that received it.
        setting: &'static str,
        /// The duration, as given.
        duration: Duration,
    },
    /// A number of proxies outside 1..=64.
    InvalidHops {
        /// The number, as given.
        hops: usize,
    },
    /// Text that is neither an address nor a prefix of addresses.
    InvalidIpPrefix {
        /// The prefix, as given.
        prefix: String,
    },
    /// A block of a lease with 0 units, or with more than the policy's capacity.
    InvalidLease {
        /// The policy's name.
        policy: String,
        /// The units, as given.
        units: u32,
        /// The largest number.
        most: u32,
    },
    /// A share of the limit that is not above 0 and at most 1.
    InvalidNearLimit {
        /// The policy's name.
        policy: String,
        /// The share, as given.
        share: f64,
    },
    /// Text that is not the prefix of a NAT64 translator.
    InvalidNat64Prefix {
        /// The prefix, as given.
        prefix: String,
    },
    /// A policy name that is not both a Structured Field String and a Token.
    InvalidPolicyName {
        /// The name, as given.
        name: String,
    },
    /// A key prefix with braces. A cluster would read the text between the braces as the hash tag.
    InvalidPrefix {
        /// The prefix, as given.
        prefix: String,
    },
    /// An IPv6 prefix length outside 32..=128.
    InvalidPrefixLength {
        /// The length, as given.
        length: u8,
    },
    /// A Redis URL that cannot be used. The error does not contain the URL, because a URL may hold a password.
    InvalidRedisUrl {
        /// What is wrong with the URL, and what to write instead.
        reason: String,
    },
    /// A resolution that is zero or longer than the window.
    InvalidResolution {
        /// The policy's name.
        policy: String,
        /// The resolution, as given.
        resolution: Duration,
        /// The policy's window.
        window: Duration,
    },
    /// A route that is neither `/path` nor `METHOD /path`, or that a router of axum 0.8 cannot contain.
    InvalidRoute {
        /// The route, as given.
        route: String,
        /// What to write instead.
        advice: String,
    },
    /// A number of shards that is 0, above 64, or above the policy's limit or burst.
    InvalidShards {
        /// The policy's name.
        policy: String,
        /// The number, as given.
        shards: u32,
        /// The largest number that the policy can have.
        most: u32,
    },
    /// A unit that is not both a Structured Field String and a Token.
    InvalidUnit {
        /// The policy's name.
        policy: String,
        /// The unit, as given.
        unit: String,
    },
    /// [`FailurePolicy::Local`](crate::FailurePolicy::Local) on a limiter without a local fallback.
    LocalWithoutFallback,
    /// A negative cost.
    NegativeCost {
        /// The cost, as given.
        cost: i32,
    },
    /// A layer or a check without a policy, which would limit nothing.
    NoPolicy,
    /// An empty list of trusted proxies, so the header with the client's address would always be ignored.
    NoTrustedProxy,
    /// A hold under a policy without holds.
    PolicyWithoutHolds {
        /// The policy's name.
        policy: String,
    },
    /// A name of a policy as the plan of a key of `Plans` that have no limits to find it in.
    #[cfg(all(feature = "plans", feature = "serde"))]
    PlansWithoutLimits,
    /// Sentinels are reached through TLS, but the master that they name would be reached without TLS.
    PlaintextMaster {
        /// The master's name.
        master: String,
    },
    /// A text that is no fingerprint, see [`Fingerprint`](crate::observe::Fingerprint).
    InvalidFingerprint,
    /// A secret of the fingerprints after the first fingerprint, or a second secret, see
    /// [`Fingerprint::set_secret`](crate::observe::Fingerprint::set_secret).
    FingerprintsMade,
    /// A prefix that contains every address, so every client would be trusted.
    PrefixOfEverybody {
        /// The prefix, as given.
        prefix: String,
    },
    /// A resolution is set on an algorithm that keeps no records.
    ResolutionWithoutLog {
        /// The policy's name.
        policy: String,
    },
    /// A secret that is short enough to be guessed. The error does not contain the secret.
    SecretTooShort {
        /// The length of the secret, in bytes.
        length: usize,
        /// The smallest length, in bytes.
        least: usize,
    },
    /// A concurrency limit on a [`ThrottleLayer`](crate::ThrottleLayer) whose responses carry no slot to their end.
    HoldsNeedBody {
        /// The policy's name.
        policy: String,
    },
    /// A check with holds, given to a method that returns no handle of them.
    HoldsNeedHandle {
        /// The policy's name.
        policy: String,
    },
    /// A [ban by hand](crate::Limiter::ban) that is shorter than 1 µs, or longer than
    /// [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW).
    InvalidBanDuration {
        /// The policy's name.
        policy: String,
        /// The duration, as given.
        duration: Duration,
    },
    /// A change of a count by hand on a store that cannot make it, see
    /// [`Store::change_count`](crate::store::Store::change_count).
    StoreWithoutCountChanges,
    /// Units that are charged or given back by hand under a policy with [shards](crate::Policy::with_shards), each of
    /// which has units of its own.
    UnitsOfShards {
        /// The policy's name.
        policy: String,
    },
    /// 0 units to charge or to give back by hand, see [`Limiter::record`](crate::Limiter::record).
    ZeroUnits {
        /// The policy's name.
        policy: String,
    },
    /// A hold on a store that has no holds, see [`Store::has_holds`](crate::store::Store::has_holds).
    StoreWithoutHolds,
    /// [`Limiter::try_check`](crate::Limiter::try_check) on a store that does not answer at once.
    StoreMustBeAwaited,
    /// A check of more than [`Check::MAX_CHARGES`](crate::Check::MAX_CHARGES) charges.
    TooManyCharges {
        /// The largest number of charges of a check.
        most: usize,
    },
    /// A plan with the name of a policy that the limits do not have, or limits without the default plan.
    #[cfg(all(feature = "plans", feature = "serde"))]
    UnknownPlan {
        /// The name, as given.
        plan: String,
        /// The names of the policies of the limits.
        known: Vec<String>,
    },
    /// A cost for a policy that the layer or the route does not have.
    UnknownPolicy {
        /// The name, as given.
        policy: String,
        /// The names of the policies of the layer or the route.
        known: Vec<String>,
    },
    /// A window longer than [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW).
    WindowTooLong {
        /// The policy's name.
        policy: String,
        /// The window, as given.
        window: Duration,
    },
    /// A window shorter than 1 µs, the unit in which stores count.
    WindowTooShort {
        /// The policy's name.
        policy: String,
        /// The window, as given.
        window: Duration,
    },
    /// A token bucket with a burst of 0, which would refuse every request.
    ZeroBurst {
        /// The policy's name.
        policy: String,
    },
    /// A hold of 0 units, which would hold nothing.
    ZeroHold {
        /// The policy's name.
        policy: String,
    },
    /// A limit of 0, which would refuse every request.
    ZeroLimit {
        /// The policy's name.
        policy: String,
    },
    /// A cost that is set after the further limits of a [`ThrottleLayer`](crate::ThrottleLayer), whose costs it would
    /// replace.
    CostAfterLimits,
    /// A cost of 0 for every request of a [`ThrottleLayer`](crate::ThrottleLayer), which would throttle nothing.
    ZeroCost {
        /// The policy's name.
        policy: String,
    },
    /// A setting of `Plans` that is 0, so that no look-up could succeed.
    ZeroPlanSetting {
        /// The method that received it.
        setting: &'static str,
    },
    /// A local fallback for 0 instances.
    ZeroInstances,
    /// A bound of 0 on the callers that wait, so that no caller could wait.
    ZeroWaiters,
    /// A connection pool of size 0.
    ZeroPoolSize,
}
