//! The messages of [`ConfigError`]: what is wrong, and what to write instead.

use std::{error, fmt};

use crate::error::config::ConfigError;

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AuthorizationHeader { name } => write!(
                f,
                "the value of {name:?} begins with a scheme that has several spellings; use `ApiKey::bearer()`, which \
                 reads the token alone"
            ),
            Self::BanWithShards { policy } => write!(
                f,
                "policy {policy:?}: each shard would count denials by itself, so a policy has either a ban or shards; \
                 leave one of the two out"
            ),
            Self::BurstWithoutTokenBucket { policy } => write!(
                f,
                "policy {policy:?}: only a token bucket has a burst; call `.with_algorithm(Algorithm::TokenBucket)` \
                 first"
            ),
            Self::BurstTooLarge { policy, burst } => {
                write!(f, "policy {policy:?}: a burst of {burst} takes more than 366 days to refill; use a smaller one")
            }
            Self::CertificatesWithoutTls => f.write_str(
                "certificates are set, but the URL is without TLS, so a password would be sent in plain text; \
                 write rediss:// instead of redis://, or leave the certificates out",
            ),
            Self::ZeroCapacity => f.write_str("a memory store with room for 0 keys can count nothing; use at least 1"),
            Self::CostAboveLimit { policy, cost, limit, shards: 1 } => write!(
                f,
                "a cost of {cost} can never pass policy {policy:?}, which lets at most {limit} through at once; \
                 raise the limit or lower the cost"
            ),
            Self::CostAboveLimit { policy, cost, limit, shards } => write!(
                f,
                "a cost of {cost} can never pass policy {policy:?}, whose smallest of {shards} shards lets at most \
                 {limit} through at once; raise the limit, lower the cost or use fewer shards"
            ),
            Self::DuplicatePolicy { policy } => {
                write!(f, "two policies of one check are called {policy:?} and would share their counts; rename one")
            }
            Self::DuplicateRoute { route } => write!(
                f,
                "route {route:?} is in the table already (the names of parameters and trailing slashes are ignored); \
                 leave one of the two out"
            ),
            Self::BodyCannotHold { policy } => write!(
                f,
                "policy {policy:?} holds slots until the response body has ended, and the bodies of this service are \
                 not those of axum; call `.settle(|_| Settle::AtEnd)` on the layer, which wraps them"
            ),
            Self::ConcurrencyNeedsHold { policy } => write!(
                f,
                "policy {policy:?} limits how much runs at once, and a plain check would never give its units back; \
                 call `Limiter::hold` or `Limiter::acquire_hold`, or use the policy in a `RateLimitLayer`, or as the \
                 first one of a `ThrottleLayer` with `hold_until_end`"
            ),
            Self::ExcludesHolds { policy, setting } => write!(
                f,
                "policy {policy:?}: `{setting}` and holds exclude each other; leave out `{setting}`, or what makes the \
                 holds: `with_holds` or `Policy::concurrent`"
            ),
            Self::ExcludesLease { policy, setting } => write!(
                f,
                "policy {policy:?}: `{setting}` and `with_lease` exclude each other; leave one of the two out"
            ),
            Self::HoldBesideCharge { policy } => write!(
                f,
                "one check both holds and charges units of one key under policy {policy:?}; use two checks, or hold \
                 all of them"
            ),
            Self::HoldsNeedBody { policy } => write!(
                f,
                "policy {policy:?} limits how many calls are under way at once, and nothing would give a slot back at \
                 the end of a response; call `ThrottleLayer::hold_until_end`"
            ),
            Self::HoldsNeedHandle { policy } => write!(
                f,
                "the check holds units under policy {policy:?}, and they could never be settled; call \
                 `Limiter::hold_all`, which returns a handle"
            ),
            Self::InvalidBan { policy, denials, duration } => write!(
                f,
                "policy {policy:?}: a ban after {denials} denials for {duration:?} is out of range; use at least 1 \
                 denial and 1 µs to 366 days"
            ),
            Self::InvalidCertificate { setting, reason } => write!(
                f,
                "`{setting}`: {reason}; give it the content of a PEM file, `std::fs::read(path)?`, which has lines \
                 like -----BEGIN CERTIFICATE-----"
            ),
            Self::SystemCertificates { reason } => write!(
                f,
                "the certificates that the operating system trusts: {reason}; correct SSL_CERT_FILE and SSL_CERT_DIR, \
                 install the package ca-certificates, or name the authority of the server with \
                 `RedisStoreBuilder::root_certificates`"
            ),
            Self::InvalidChallenge { challenge } => write!(
                f,
                "{challenge:?} is no challenge; write the name of a scheme, then its parameters after a blank, such as \
                 Bearer realm=\"api\""
            ),
            Self::InvalidDeadline => {
                f.write_str("a deadline of 0 would refuse every check; use a longer one, the default is 50 ms")
            }
            Self::InvalidHashTags { tags } => {
                write!(f, "{tags} hash tags are out of range; use 1 to 1024, about 16 to 32 for each master")
            }
            Self::InvalidHeaderName { name } => {
                write!(f, "{name:?} is not a header name; write one without blanks, such as x-api-key")
            }
            Self::InvalidHolds { policy, setting, duration } => write!(
                f,
                "policy {policy:?}: `{setting}` of its holds is {duration:?}, which is out of range; use 1 µs to 366 \
                 days"
            ),
            Self::InvalidHops { hops } => write!(f, "{hops} hops are out of range; use 1 to 64"),
            Self::InvalidIpPrefix { prefix } => {
                write!(f, "{prefix:?} is not an address or a prefix; write 10.0.0.0/8, fd00::/8 or an address")
            }
            Self::InvalidNat64Prefix { prefix } => write!(
                f,
                "{prefix:?} is not a NAT64 prefix (RFC 6052); write 2001:db8:122::/96 or another one of length 32, 40, \
                 48, 56, 64 or 96 whose bits 64 to 71 are 0"
            ),
            Self::InvalidLease { policy, units, most } => write!(
                f,
                "policy {policy:?}: a lease of {units} units is out of range; use 1 to {most}, what is spent in some \
                 milliseconds"
            ),
            Self::InvalidNearLimit { policy, share } => write!(
                f,
                "policy {policy:?}: {share} is not a share of the limit; write one above 0 and at most 1, such as 0.8 \
                 for 80 %"
            ),
            Self::InvalidPolicyName { name } => write!(
                f,
                "policy name {name:?} is not usable in a header: start with a letter or `*`, go on with letters, \
                 digits or any of !#$%&'*+-.^_`|~:/ up to 64 characters"
            ),
            Self::InvalidPrefix { prefix } => {
                write!(f, "key prefix {prefix:?} has braces, which mark the hash tag; leave them out")
            }
            Self::InvalidPrefixLength { length } => {
                write!(f, "an IPv6 prefix of /{length} is out of range; use 32 to 128, /64 is the default")
            }
            Self::InvalidRedisUrl { reason } => {
                write!(f, "the Redis URL (not shown, it may hold a password) cannot be used: {reason}")
            }
            Self::InvalidResolution { policy, resolution, window } => write!(
                f,
                "policy {policy:?}: a resolution of {resolution:?} is out of range; use 1 µs up to the window, \
                 {window:?}"
            ),
            Self::InvalidRoute { route, advice } => write!(f, "route {route:?} is not understood: {advice}"),
            Self::InvalidShards { policy, shards, most } => write!(
                f,
                "policy {policy:?}: {shards} shards are out of range; use 1 to {most}, because each shard needs a unit \
                 of the limit and of the burst"
            ),
            Self::InvalidUnit { policy, unit } => write!(
                f,
                "policy {policy:?}: unit {unit:?} is not usable in a header; write \"content-bytes\", \
                 \"concurrent-requests\" or the like, a letter and then letters, digits or dashes"
            ),
            Self::LocalWithoutFallback => f.write_str(
                "fail_local needs a limiter with a local fallback: call `Limiter::with_local(MemoryStore::new(), \
                 instances)` or `Limiter::with_local_discovered(MemoryStore::new())` first",
            ),
            Self::NegativeCost { cost } => write!(f, "a cost of {cost} would refund units; use 0 or more"),
            Self::NoPolicy => f.write_str("no policy, so nothing would be limited; give at least one"),
            Self::NoTrustedProxy => f.write_str(
                "the list of trusted proxies is empty, so the header would be ignored and each proxy would be charged \
                 for all its clients; list the addresses of your proxies, or use `ClientIp::peer()` without a proxy, \
                 `ClientIp::behind_unix_socket()` for a proxy on a unix socket",
            ),
            #[cfg(all(feature = "plans", feature = "serde"))]
            Self::PlansWithoutLimits => f.write_str(
                "the plan is the name of a policy, and these plans have no limits to find it in; create them with \
                 `Plans::of_limits`, or return the policy",
            ),
            Self::PlaintextMaster { master } => write!(
                f,
                "the sentinels are reached through TLS, but their master {master:?} is not, so a password would be \
                 sent in plain text; write rediss://{master} for the master"
            ),
            Self::PolicyWithoutHolds { policy } => write!(
                f,
                "policy {policy:?} has no holds; call `.with_holds(Holds::new())` on it, and leave out \
                 `with_count_rejected`, which removes them"
            ),
            Self::PrefixOfEverybody { prefix } => write!(
                f,
                "{prefix:?} contains every address, so every client would be trusted; list your proxies, or call \
                 `PrefixList::dangerously_everybody()`"
            ),
            Self::ResolutionWithoutLog { policy } => {
                write!(
                    f,
                    "policy {policy:?}: only the sliding window log has a resolution; leave out \
                     `.with_resolution(..)` or the other algorithm"
                )
            }
            Self::InvalidFingerprint => f.write_str(
                "this is no fingerprint; write the 22 characters of `key` in a log line, or those behind `$` in a \
                 Redis key",
            ),
            Self::FingerprintsMade => f.write_str(
                "this process has made fingerprints under another secret; call `Fingerprint::set_secret` once, before \
                 the first request",
            ),
            Self::SecretTooShort { length, least } => {
                write!(f, "a secret of {length} bytes could be guessed; use at least {least}")
            }
            Self::InvalidBanDuration { policy, duration } => {
                write!(f, "policy {policy:?}: a ban for {duration:?} is out of range; use 1 µs to 366 days")
            }
            Self::StoreWithoutCountChanges => f.write_str(
                "the store cannot ban a key or change its units by hand; use a `MemoryStore` or a `RedisStore`, or \
                 implement `Store::change_count`",
            ),
            Self::UnitsOfShards { policy } => write!(
                f,
                "policy {policy:?}: its shards have units of their own, so none can be charged or given back by hand; \
                 reset or ban the key instead"
            ),
            Self::ZeroUnits { policy } => {
                write!(f, "policy {policy:?}: 0 units change nothing; charge or give back 1 or more")
            }
            Self::StoreWithoutHolds => f.write_str(
                "the store has no holds; use a `MemoryStore` or a `RedisStore`, or implement `Store::has_holds` and \
                 `Store::change_hold`",
            ),
            Self::StoreMustBeAwaited => f.write_str(
                "try_check needs a store that answers at once, and this one has to wait; write `.check(..).await`, \
                 or use a `MemoryStore`",
            ),
            Self::TooManyCharges { most } => write!(f, "a check may have at most {most} charges; use fewer policies"),
            #[cfg(all(feature = "plans", feature = "serde"))]
            Self::UnknownPlan { plan, known } => write!(
                f,
                "the limits have no policy {plan:?}, which is a plan of `Plans::of_limits`; add it to the limits, or \
                 write one of {known:?}"
            ),
            Self::UnknownPolicy { policy, known } => {
                write!(f, "no policy is called {policy:?}, so its cost would never be charged; write one of {known:?}")
            }
            Self::WindowTooLong { policy, window } => {
                write!(f, "policy {policy:?}: a window of {window:?} is too long; use at most 366 days")
            }
            Self::WindowTooShort { policy, window } => {
                write!(f, "policy {policy:?}: a window of {window:?} is too short; use at least 1 µs")
            }
            Self::ZeroBurst { policy } => {
                write!(f, "policy {policy:?}: a burst of 0 lets nothing through; use 1 or more")
            }
            Self::ZeroHold { policy } => write!(
                f,
                "policy {policy:?}: a hold of 0 units would hold nothing; use 1 or more, the least that the work can \
                 cost"
            ),
            Self::ZeroLimit { policy } => {
                write!(f, "policy {policy:?}: a limit of 0 lets nothing through; use 1 or more")
            }
            Self::ZeroPlanSetting { setting } => {
                write!(f, "`{setting}` with 0 would leave every key with the default plan; use a larger value")
            }
            Self::CostAfterLimits => {
                f.write_str("the cost would replace those of the further limits; call `with_cost` before `and_limit`")
            }
            Self::ZeroWaiters => f.write_str("no caller could wait with a bound of 0 waiters; use at least 1"),
            Self::ZeroCost { policy } => write!(
                f,
                "policy {policy:?}: a cost of 0 would throttle nothing; use 1 or more, or a closure that returns 0 for \
                 the requests to exempt"
            ),
            Self::ZeroInstances => f.write_str("0 instances would leave no share; use at least 1, the instance itself"),
            Self::ZeroPoolSize => f.write_str("a pool of 0 connections can send nothing; use at least 1"),
        }
    }
}

/// The message: a `main` that returns the error prints its `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl error::Error for ConfigError {}
