//! Warnings about the setup of a limiter.

use std::{fmt, time::Duration};

use crate::key::KeyError;

/// A setup that works, but probably not as intended. The `Display` of a warning says what to do.
///
/// A mistake that is detectable without a request is a [`ConfigError`](crate::ConfigError) instead.
///
/// # Examples
///
/// An observer that collects warnings, for a test of the setup:
///
/// ```
/// use std::sync::Mutex;
/// use tollgate::observe::{Event, Observer};
///
/// #[derive(Default)]
/// struct Warnings(Mutex<Vec<String>>);
///
/// impl Observer for Warnings {
///     fn on_event(&self, event: &Event<'_>) {
///         if let Event::Warning(warning) = event {
///             self.0.lock().expect("no panic under the lock").push(warning.to_string());
///         }
///     }
/// }
/// # let warnings = Warnings::default();
/// # warnings.on_event(&Event::Warning(tollgate::observe::Warning::GuessableKeys));
/// # assert_eq!(warnings.0.lock().unwrap().len(), 1);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// A request was charged twice, because it passes two layers of one limiter with the same policy and key. Checked
    /// in the first 1 000 requests of a layer.
    ChargedTwice {
        /// The policy's name.
        policy: String,
    },
    /// The ends of holds were given up: the store has not answered them within the time-to-live of their holds, or more
    /// than 10 000 waited for an answer. The store ends these holds by itself, unless an end has reached it. Reported
    /// once a minute at most.
    EndsGivenUp {
        /// The number of holds since the last report.
        ends: u64,
    },
    /// The Redis server may drop the keys of limits when its memory is full.
    Eviction {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// A request has a header that proxies add, but is charged to the address of its connection. Checked in the first
    /// 1 000 requests.
    ForwardedHeader {
        /// The header's name.
        header: &'static str,
    },
    /// A request of a trusted proxy lacks the header with the client's address. Such requests are refused, or treated
    /// as [`MissingKey`](crate::MissingKey) says. Checked in all requests, reported once.
    ForwardedHeaderMissing {
        /// The header's name.
        header: String,
    },
    /// Keys are hashed without a secret in Redis, see `RedisStoreBuilder::key_secret`.
    GuessableKeys,
    /// A hold has reached its [longest age](crate::policy::Holds::with_longest) while its request or its job went on.
    /// The hold of a request was settled, and its response ended with an error. Reported once for a limiter; observers
    /// see [each such hold](super::HoldEnd::TooLong).
    HeldTooLong {
        /// The name of the policy.
        policy: String,
        /// The longest age.
        longest: Duration,
    },
    /// Redis refuses to count the instances of the service, which
    /// [`Limiter::with_local_discovered`](crate::Limiter::with_local_discovered) asks for.
    InstancesUnknown {
        /// The Redis key of the sorted set of instances.
        key: String,
        /// The message of Redis.
        reason: String,
    },
    /// A request without a peer address, probably like all others, is exempt or shares one bucket
    /// ([`MissingKey`](crate::MissingKey)). A layer that refuses such requests reports a
    /// [refusal](super::Event::Refusal) instead.
    NoPeerAddress,
    /// All of the first 1 000 requests came from one address.
    OneAddress {
        /// Number of requests from the address.
        requests: u32,
    },
    /// A layer refuses nothing, because only [shadow policies](crate::Policy::with_shadow) apply to a request. Checked
    /// in all requests. Reported once for a layer and those derived from it, and once more after each change of live
    /// limits.
    OnlyShadow {
        /// The name of one of the policies.
        policy: String,
    },
    /// The upstreams of a throttled client have paused more keys than a limiter remembers, so it gives up the pauses
    /// that end first. Reported once for a limiter.
    PausesFull {
        /// The largest number of paused keys.
        keys: usize,
    },
    /// A [`MemoryStore`](crate::MemoryStore) has no room for a new key, because all of its counts are live.
    /// [`MemoryStore::when_full`](crate::MemoryStore::when_full) decides what the key gets.
    StoreFull {
        /// The capacity in keys.
        capacity: usize,
    },
    /// No request is charged under a policy of a file of limits: no entry of the file charges it, and the file does not
    /// leave it to code. Reported once, when a `LimitsConfig` makes its first layer, and for each change of live
    /// limits.
    UnchargedPolicy {
        /// The policy's name.
        policy: String,
        /// An exempt route that covers every request that the default would charge; `None` if the default does not
        /// charge the policy.
        exempt: Option<String>,
    },
    /// A handler has put a cost on the [bill](crate::middleware::Bill::set_cost_of) of a request under a name of which
    /// no policy holds units for the request, so the cost is not charged. Reported once for a limiter, when the bill is
    /// dropped.
    UnknownNameOnBill {
        /// The name, as the handler has given it.
        name: String,
        /// The names of the policies under which units were held for the request.
        known: Vec<String>,
    },
    /// A source of plans has answered with the name of a policy that live limits do not have, so the default plan
    /// applies. Reported once for each name.
    UnknownPlan {
        /// The name, as the source has answered.
        plan: String,
        /// The name of the default plan.
        default: String,
    },
    /// No request of the first 10 000 matched a route of the table.
    UnmatchedRoute {
        /// The route, as given.
        route: String,
        /// Number of requests so far.
        requests: u32,
    },
    /// A request runs without its slot of a [concurrency limit](crate::Policy::concurrent), because the store gave no
    /// verdict and the layer [fails open](crate::RateLimitLayer::fail_open). Reported once for a layer and those
    /// derived from it.
    WithoutSlot {
        /// The name of the policy.
        policy: String,
    },
}

impl Warning {
    /// The warning in one word, for metrics and logs.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::ChargedTwice { .. } => "charged_twice",
            Self::EndsGivenUp { .. } => "ends_given_up",
            Self::Eviction { .. } => "eviction",
            Self::ForwardedHeader { .. } => "forwarded_header",
            Self::ForwardedHeaderMissing { .. } => "forwarded_header_missing",
            Self::GuessableKeys => "guessable_keys",
            Self::HeldTooLong { .. } => "held_too_long",
            Self::InstancesUnknown { .. } => "instances_unknown",
            Self::NoPeerAddress => "no_peer_address",
            Self::OneAddress { .. } => "one_address",
            Self::OnlyShadow { .. } => "only_shadow",
            Self::PausesFull { .. } => "pauses_full",
            Self::StoreFull { .. } => "store_full",
            Self::UnchargedPolicy { .. } => "uncharged_policy",
            Self::UnknownNameOnBill { .. } => "unknown_name_on_bill",
            Self::UnknownPlan { .. } => "unknown_plan",
            Self::UnmatchedRoute { .. } => "unmatched_route",
            Self::WithoutSlot { .. } => "without_slot",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChargedTwice { policy } => write!(
                f,
                "a request was charged twice under policy {policy:?}: it passes two layers with this policy and the \
                 same key; remove one of them, or give it a policy with another name"
            ),
            Self::EndsGivenUp { ends } => write!(
                f,
                "the ends of {ends} holds were given up, because the store has not answered them: their units stay taken \
                 until their time-to-live, and are then charged or given back as their policies say; see why the store \
                 does not answer, or give the policies a shorter time-to-live"
            ),
            Self::Eviction { policy } => write!(
                f,
                "the server's maxmemory-policy is {policy}: when memory is full it drops keys, and a limit whose key \
                 is dropped starts anew; set maxmemory-policy to noeviction, or give the limiter a separate server"
            ),
            Self::ForwardedHeader { header } => write!(
                f,
                "a request has the header {header}, but the address of its connection is charged; behind a proxy that \
                 is the proxy, and all clients share one budget: take the address from the header with `ClientIp`, \
                 through trusted proxies only. Without a proxy, a client has made the header up, and the setup is right"
            ),
            Self::ForwardedHeaderMissing { header } => write!(
                f,
                "a request from a trusted proxy has no header {header}, so its client is unknown: let the proxy set \
                 the header, or exempt the routes that the proxy itself requests, such as a health check; \
                 `ClientIp::peer_if_missing` charges such requests to the proxy"
            ),
            Self::GuessableKeys => f.write_str(
                "keys go to Redis as hashes without a secret, so anyone with access to Redis can find short keys by \
                 trial: addresses, user ids, weak credentials; set `RedisStoreBuilder::key_secret`, the same for all \
                 instances (or set `plain_keys` if all keys but credentials may be read)",
            ),
            Self::HeldTooLong { policy, longest } => write!(
                f,
                "a hold under policy {policy:?} has reached its longest age of {longest:?}, so it was ended although \
                 its work goes on: a request gets 504, or its response body fails; if such work is usual, set a longer \
                 age with `Holds::with_longest`, otherwise see whether clients read what they ask for"
            ),
            Self::InstancesUnknown { key, reason } => write!(
                f,
                "Redis does not count the instances of this service in {key:?} ({reason}), so checks that fail local \
                 are refused in an outage; grant its user +time +zadd +zremrangebyscore +pexpire +zcard for this key, \
                 or give the number of instances with `Limiter::with_local`"
            ),
            Self::NoPeerAddress => write!(
                f,
                "requests without a peer address pass without this limit, or share one bucket, as `MissingKey` says: \
                 {}",
                KeyError::NoPeerAddress
            ),
            Self::OneAddress { requests } => write!(
                f,
                "all of the first {requests} requests came from one address, probably a proxy's, so that all clients \
                 share one budget: take the address from the header that the proxy sets, with `ClientIp`; if the layer \
                 does so already, make sure that the proxy sets the header and that all proxies are trusted"
            ),
            Self::OnlyShadow { policy } => write!(
                f,
                "a layer refuses nothing, because only shadow policies such as {policy:?} apply to a request; that is \
                 right while a limit is tried: enforce the limit with `with_shadow(false)`, or shadow = false in its \
                 file"
            ),
            Self::PausesFull { keys } => write!(
                f,
                "upstreams have paused more than {keys} keys: the pauses that end first are given up, so these \
                 upstreams are called although they have asked not to be; take the key of `ThrottleLayer::with_key` \
                 from a part of the request that has fewer values, such as the host, or call fewer upstreams at a time"
            ),
            Self::StoreFull { capacity } => write!(
                f,
                "the memory store is full: it has room for {capacity} keys, and the counts of all are live. A new key \
                 now gets what `MemoryStore::when_full` says: by default the place of a live count, whose client \
                 starts anew. Give the store room for all clients of one window with `MemoryStore::with_capacity`; if \
                 clients can make keys up, choose `WhenFull::ShareOneKey` or `WhenFull::Deny`"
            ),
            Self::UnchargedPolicy { policy, exempt: None } => write!(
                f,
                "no entry of the limits charges policy {policy:?}, so it limits no request: name it in the policies of \
                 a route or of default, or leave it out; if a plan or a job charges it, write in-code = true in it"
            ),
            Self::UnchargedPolicy { policy, exempt: Some(route) } => write!(
                f,
                "no request is charged under policy {policy:?}, because the exempt route {route:?} covers every \
                 request that default would charge: leave exempt out there, or name in default.policies only policies \
                 that other routes charge"
            ),
            Self::UnknownNameOnBill { name, known } => write!(
                f,
                "a handler has put a cost on the bill under {name:?}, but its request holds units under {known:?} \
                 alone, so that cost is not charged: write the name of one of these policies in `Bill::set_cost_of` \
                 or `Bill::add_to`, or hold units under {name:?}"
            ),
            Self::UnknownPlan { plan, default } => write!(
                f,
                "the limits have no policy {plan:?}, which the source of plans has named, so its keys get the default \
                 plan {default:?}: add the policy {plan:?} to the limits, or correct the name where the source gets it"
            ),
            Self::UnmatchedRoute { route, requests } => write!(
                f,
                "no request of the first {requests} matched the route {route:?}; unless the route is just rare, check \
                 its method, and write the router's whole template with its nesting (`/api/users/{{id}}`)"
            ),
            Self::WithoutSlot { policy } => write!(
                f,
                "a request runs without a slot of the concurrency limit {policy:?}, because the store gave no verdict \
                 and the layer fails open: more requests than the limit may run at once, until those that started \
                 without a slot have ended; choose `fail_closed` or `fail_local` if that must not happen"
            ),
        }
    }
}
