//! Configurations that cannot work, and what to write instead.

use std::time::Duration;

/// A configuration that cannot work, returned where it is written.
///
/// Every message carries the offending value and says what is allowed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// `Authorization` as the header of a key: one token would have as many budgets as it has spellings.
    AuthorizationHeader {
        /// The name, as given.
        name: String,
    },
    /// A burst is set on an algorithm that has none.
    BurstWithoutTokenBucket {
        /// The policy's name.
        policy: String,
    },
    /// A token bucket that takes longer than [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW) to fill.
    BurstTooLarge {
        /// The policy's name.
        policy: String,
        /// The burst, as given.
        burst: u32,
    },
    /// Certificates are set, but the URL is without TLS, so the login would be sent unencrypted.
    CertificatesWithoutTls,
    /// The capacity of a [`MemoryStore`](crate::MemoryStore) is 0.
    ZeroCapacity,
    /// A fixed cost can never pass, because it is above the limit.
    CostAboveLimit {
        /// The policy's name.
        policy: String,
        /// The cost.
        cost: u32,
        /// The most that can ever pass at once.
        limit: u32,
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
    /// A ban after 0 denials, or with a duration that is out of range.
    InvalidBan {
        /// The policy's name.
        policy: String,
        /// The denials, as given.
        denials: u32,
        /// The duration, as given.
        duration: Duration,
    },
    /// Certificates or a key that cannot be read. They are left out.
    InvalidCertificate {
        /// The method of `RedisStoreBuilder` that they were given to.
        setting: &'static str,
        /// What is wrong with them.
        reason: String,
    },
    /// A deadline of zero would refuse every check.
    InvalidDeadline,
    /// A name that cannot be a header's.
    InvalidHeaderName {
        /// The name, as given.
        name: String,
    },
    /// A number of proxies outside 1..=64.
    InvalidHops {
        /// The number, as given.
        hops: usize,
    },
    /// Something that is neither an address nor a prefix of addresses.
    InvalidIpPrefix {
        /// The prefix, as given.
        prefix: String,
    },
    /// Something that is not the prefix of a NAT64 translator.
    InvalidNat64Prefix {
        /// The prefix, as given.
        prefix: String,
    },
    /// A policy name that is not both a Structured Field String and a Token.
    InvalidPolicyName {
        /// The name, as given.
        name: String,
    },
    /// A key prefix with braces, which would take the place of the hash tag.
    InvalidPrefix {
        /// The prefix, as given.
        prefix: String,
    },
    /// An IPv6 prefix length outside 32..=128.
    InvalidPrefixLength {
        /// The length, as given.
        length: u8,
    },
    /// A Redis URL that cannot be used. The URL is left out, because it may hold a password.
    InvalidRedisUrl {
        /// What is wrong with it, and what to write instead.
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
    /// A route that is neither `/path` nor `METHOD /path`, or that a router of axum 0.8 could not have.
    InvalidRoute {
        /// The route, as given.
        route: String,
        /// What to write instead.
        advice: String,
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
    /// An empty list of trusted proxies, so that the header would never be read.
    NoTrustedProxy,
    /// The connections to the sentinels use TLS, and those to the master that they name would not.
    PlaintextMaster {
        /// The master's name.
        master: String,
    },
    /// A prefix that contains every address, so that every client would be trusted.
    PrefixOfEverybody {
        /// The prefix, as given.
        prefix: String,
    },
    /// A resolution is set on an algorithm that keeps no records.
    ResolutionWithoutLog {
        /// The policy's name.
        policy: String,
    },
    /// A secret that could be guessed. It is left out.
    SecretTooShort {
        /// Its length in bytes.
        length: usize,
        /// The least.
        least: usize,
    },
    /// A check of more charges than one call of the store takes.
    TooManyCharges {
        /// The most that a check may have.
        most: usize,
    },
    /// A cost for a policy that the layer or the route does not have.
    UnknownPolicy {
        /// The name, as given.
        policy: String,
        /// The names of the policies that it has.
        known: Vec<String>,
    },
    /// A window longer than [`Policy::MAX_WINDOW`](crate::Policy::MAX_WINDOW).
    WindowTooLong {
        /// The policy's name.
        policy: String,
        /// The window, as given.
        window: Duration,
    },
    /// A window of zero, or below the microsecond that stores count in.
    WindowTooShort {
        /// The policy's name.
        policy: String,
        /// The window, as given.
        window: Duration,
    },
    /// A token bucket that holds nothing.
    ZeroBurst {
        /// The policy's name.
        policy: String,
    },
    /// A limit of 0, which would refuse everything.
    ZeroLimit {
        /// The policy's name.
        policy: String,
    },
    /// A local fallback for a service without instances.
    ZeroInstances,
    /// A pool without a connection.
    ZeroPoolSize,
}
