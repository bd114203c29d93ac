//! Warnings about the setup of a limiter.

use std::{fmt, time::Duration};

use crate::key::{KeyError, KeyFault};

/// A setup that works, but probably not as intended. The `Display` of a warning says what to do.
///
/// A mistake that is detectable without a request is a [`ConfigError`](crate::ConfigError) instead.
///
/// | cause | what was seen |
/// | --- | --- |
/// | `charged_twice` | a request was charged twice, because it passes two layers of one limiter with the same policy and key |
/// | `ends_given_up` | the ends of holds were given up, because the store has not answered them |
/// | `eviction` | the Redis server may drop the keys of limits when its memory is full |
/// | `forwarded_header` | a request has a header that proxies add, but is charged to the address of its connection |
/// | `forwarded_header_missing` | a request of a trusted proxy lacks the header with the client's address |
/// | `guessable_keys` | keys are hashed without a secret in Redis |
/// | `held_too_long` | a hold has reached its [longest age](crate::policy::HoldSettings::with_longest) while its work went on |
/// | `instances_unknown` | Redis refuses to count the instances of the service |
/// | `no_peer_address` | a request without a peer address passes, or shares one count |
/// | `nothing_to_settle` | a layer settles what requests hold, and the policy of a request has no holds |
/// | `one_address` | all of the first 1 000 requests came from one address |
/// | `only_shadow` | a layer refuses nothing, because only [shadow policies](crate::Policy::with_shadow) apply |
/// | `pauses_full` | upstreams have paused more keys than a limiter remembers |
/// | `store_full` | a memory store has no room for a new key |
/// | `uncharged_policy` | no request is charged under a policy of a file of limits |
/// | `unknown_name_on_bill` | a handler has put a cost on the bill under a name that no policy has |
/// | `unknown_plan` | a source of plans has named a policy that the limits do not have |
/// | `unmatched_route` | no request of the first 10 000 matched a route of the table |
/// | `without_slot` | a request runs without its slot of a [concurrency limit](crate::Policy::concurrent) |
///
/// A warning is reported once for each layer, limiter or store, and `ends_given_up` once a minute at most.
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
///         if let Some(warning) = event.warning() {
///             self.0
///                 .lock()
///                 .expect("no panic under the lock")
///                 .push(warning.to_string());
///         }
///     }
/// }
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    cause: &'static str,
    text: String,
}

impl Warning {
    fn new(cause: &'static str, text: String) -> Self {
        Self { cause, text }
    }

    /// The warning in one word, for metrics and logs: one of the table above.
    pub fn cause(&self) -> &'static str {
        self.cause
    }

    /// Whether a limiter reports the warning by itself. Hashes without a secret weaken privacy and no limit, so that
    /// warning goes to observers only.
    pub(super) fn is_notice(&self) -> bool {
        self.cause != "guessable_keys"
    }

    /// A request was charged twice, because it passes two layers of one limiter with the same policy and key. Checked
    /// in the first 1 000 requests of a layer.
    pub(crate) fn charged_twice(policy: &str) -> Self {
        let text = format!(
            "a request was charged twice under policy {policy:?}: it passes two layers with this policy and the \
             same key; remove one of them, or give it a policy with another name"
        );
        Self::new("charged_twice", text)
    }

    /// The ends of holds were given up: the store has not answered them within the time-to-live of their holds, or more
    /// than 10 000 waited for an answer. The store ends these holds by itself, unless an end has reached it. Reported
    /// once a minute at most.
    pub(crate) fn ends_given_up(ends: u64) -> Self {
        let text = format!(
            "the ends of {ends} holds were given up, because the store has not answered them: their units stay taken \
             until their time-to-live, and are then charged or given back as their policies say; see why the store \
             does not answer, or give the policies a shorter time-to-live"
        );
        Self::new("ends_given_up", text)
    }

    /// The Redis server may drop the keys of limits when its memory is full.
    #[cfg(feature = "redis")]
    pub(crate) fn eviction(policy: &str) -> Self {
        let text = format!(
            "the server's maxmemory-policy is {policy}: when memory is full it drops keys, and a limit whose key \
             is dropped starts anew; set maxmemory-policy to noeviction, or give the limiter a separate server"
        );
        Self::new("eviction", text)
    }

    /// A request has a header that proxies add, but is charged to the address of its connection. Checked in the first
    /// 1 000 requests.
    pub(crate) fn forwarded_header(header: &str) -> Self {
        let text = format!(
            "a request has the header {header}, but the address of its connection is charged; behind a proxy that \
             is the proxy, and all clients share one budget: take the address from the header with `ClientIp`, \
             through trusted proxies only. Without a proxy, a client has made the header up, and the setup is right"
        );
        Self::new("forwarded_header", text)
    }

    /// A request of a trusted proxy lacks the header with the client's address. Such requests are refused, or treated
    /// as [`MissingKey`](crate::MissingKey) says. Checked in all requests, reported once.
    pub(crate) fn forwarded_header_missing(header: &str) -> Self {
        let text = format!(
            "a request from a trusted proxy has no header {header}, so its client is unknown: let the proxy set \
             the header, or exempt the routes that the proxy itself requests, such as a health check; \
             `ClientIp::peer_if_missing` charges such requests to the proxy"
        );
        Self::new("forwarded_header_missing", text)
    }

    /// Keys are hashed without a secret in Redis, see `RedisStoreBuilder::key_secret`.
    #[cfg(feature = "redis")]
    pub(crate) fn guessable_keys() -> Self {
        let text = "keys go to Redis as hashes without a secret, so anyone with access to Redis can find short keys by \
             trial: addresses, user ids, weak credentials; set `RedisStoreBuilder::key_secret`, the same for all \
             instances (or set `plain_keys` if all keys but credentials may be read)";
        Self::new("guessable_keys", text.to_owned())
    }

    /// A hold has reached its [longest age](crate::policy::HoldSettings::with_longest) while its request or its job
    /// went on. The hold of a request was settled, and its response ended with an error. Reported once for a limiter;
    /// observers see [each such hold](super::Event#names).
    pub(crate) fn held_too_long(policy: &str, longest: Duration) -> Self {
        let text = format!(
            "a hold under policy {policy:?} has reached its longest age of {longest:?}, so it was ended although \
             its work goes on: a request gets 504, or its response body fails; if such work is usual, set a longer \
             age with `HoldSettings::with_longest`, otherwise see whether clients read what they ask for"
        );
        Self::new("held_too_long", text)
    }

    /// Redis refuses to count the instances of the service, which
    /// [`Limiter::with_local_fallback`](crate::Limiter::with_local_fallback) asks for.
    #[cfg(feature = "redis")]
    pub(crate) fn instances_unknown(key: &str, reason: &str) -> Self {
        let text = format!(
            "Redis does not count the instances of this service in {key:?} ({reason}), so checks that fail local \
             are refused in an outage; grant its user +eval +time +zadd +zremrangebyscore +pexpire +zcard for this key, \
             delete the key if another program has written it, or give the number of instances with \
             `Limiter::with_local_fallback`"
        );
        Self::new("instances_unknown", text)
    }

    /// A request without a peer address, probably like all others, is exempt or shares one bucket
    /// ([`MissingKey`](crate::MissingKey)). A layer that refuses such requests reports a
    /// [refusal](super::Event#names) instead.
    pub(crate) fn no_peer_address() -> Self {
        let text = format!(
            "requests without a peer address pass without this limit, or share one bucket, as `MissingKey` says: \
             {}",
            KeyError(KeyFault::NoPeerAddress)
        );
        Self::new("no_peer_address", text)
    }

    /// All of the first 1 000 requests came from one address.
    pub(crate) fn one_address(requests: u32) -> Self {
        let text = format!(
            "all of the first {requests} requests came from one address, probably a proxy's, so that all clients \
             share one budget: take the address from the header that the proxy sets, with `ClientIp`; if the layer \
             does so already, make sure that the proxy sets the header and that all proxies are trusted"
        );
        Self::new("one_address", text)
    }

    /// A layer refuses nothing, because only [shadow policies](crate::Policy::with_shadow) apply to a request. Checked
    /// in all requests. Reported once for a layer and those derived from it, and once more after each change of live
    /// limits.
    pub(crate) fn only_shadow(policy: &str) -> Self {
        let text = format!(
            "a layer refuses nothing, because only shadow policies such as {policy:?} apply to a request; that is \
             right while a limit is tried: enforce the limit with `with_shadow(false)`, or shadow = false in its \
             file"
        );
        Self::new("only_shadow", text)
    }

    /// A layer settles what requests hold, and nothing was held for a request, because the policy that its source has
    /// returned has no holds. Reported once for a layer and those derived from it.
    pub(crate) fn nothing_to_settle(policy: &str) -> Self {
        let text = format!(
            "a layer settles what requests hold, but the source of its policies has returned policy {policy:?}, which \
             has no holds: such a request is charged its estimate, whatever its bill says; call `.with_holds(..)` on \
             the policy, also on those of all plans"
        );
        Self::new("nothing_to_settle", text)
    }

    /// The upstreams of a throttled client have paused more keys than a limiter remembers, so it gives up the pauses
    /// that end first. Reported once for a limiter.
    pub(crate) fn pauses_full(keys: usize) -> Self {
        let text = format!(
            "upstreams have paused more than {keys} keys: the pauses that end first are given up, so these \
             upstreams are called although they have asked not to be; take the key of `ThrottleLayer::with_key` \
             from a part of the request that has fewer values, such as the host, or call fewer upstreams at a time"
        );
        Self::new("pauses_full", text)
    }

    /// A [`MemoryStore`](crate::MemoryStore) has no room for a new key, because all of its counts are live.
    /// [`MemoryStore::when_full`](crate::MemoryStore::when_full) decides what the key gets.
    pub(crate) fn store_full(capacity: usize) -> Self {
        let text = format!(
            "the memory store is full: it has room for {capacity} keys, and the counts of all are live. A new key \
             now gets what `MemoryStore::when_full` says: by default the place of a live count, whose client \
             starts anew. Give the store room for all clients of one window with `MemoryStore::with_capacity`; if \
             clients can make keys up, choose `WhenFull::ShareOneKey` or `WhenFull::Deny`"
        );
        Self::new("store_full", text)
    }

    /// No request is charged under a policy of a file of limits: no entry of the file charges it, and the file does not
    /// leave it to code. `exempt` is an exempt route that covers every request that the default would charge; `None` if
    /// the default does not charge the policy. Reported once, when a `LimitsConfig` makes its first layer, and for each
    /// change of live limits.
    #[cfg(feature = "serde")]
    pub(crate) fn uncharged_policy(policy: &str, exempt: Option<&str>) -> Self {
        let text = match exempt {
            None => format!(
                "no entry of the limits charges policy {policy:?}, so it limits no request: name it in the policies of \
                 a route or of default, or leave it out; if a plan or a job charges it, write in-code = true in it"
            ),
            Some(route) => format!(
                "no request is charged under policy {policy:?}, because the exempt route {route:?} covers every \
                 request that default would charge: leave exempt out there, or name in default.policies only policies \
                 that other routes charge"
            ),
        };
        Self::new("uncharged_policy", text)
    }

    /// A handler has put a cost on the [bill](crate::middleware::Bill::set_cost_of) of a request under a name of which
    /// no policy holds units for the request, so the cost is not charged. Reported once for a limiter, when the bill is
    /// dropped.
    pub(crate) fn unknown_name_on_bill(name: &str, known: &[String]) -> Self {
        let text = format!(
            "a handler has put a cost on the bill under {name:?}, but its request holds units under {known:?} \
             alone, so that cost is not charged: write the name of one of these policies in `Bill::set_cost_of` \
             or `Bill::add_to`, or hold units under {name:?}"
        );
        Self::new("unknown_name_on_bill", text)
    }

    /// A source of plans has answered with the name of a policy that live limits do not have, so the default plan
    /// applies. Reported once for each name.
    #[cfg(all(feature = "plans", feature = "serde"))]
    pub(crate) fn unknown_plan(plan: &str, default: &str) -> Self {
        let text = format!(
            "the limits have no policy {plan:?}, which the source of plans has named, so its keys get the default \
             plan {default:?}: add the policy {plan:?} to the limits, or correct the name where the source gets it"
        );
        Self::new("unknown_plan", text)
    }

    /// No request of the first 10 000 matched a route of the table.
    pub(crate) fn unmatched_route(route: &str, requests: u32) -> Self {
        let text = format!(
            "no request of the first {requests} matched the route {route:?}; unless the route is just rare, check \
             its method, and write the router's whole template with its nesting (`/api/users/{{id}}`)"
        );
        Self::new("unmatched_route", text)
    }

    /// A request runs without its slot of a [concurrency limit](crate::Policy::concurrent), because the store gave no
    /// verdict and the layer [fails open](crate::RateLimitLayer::fail_open). Reported once for a layer and those
    /// derived from it.
    pub(crate) fn without_slot(policy: &str) -> Self {
        let text = format!(
            "a request runs without a slot of the concurrency limit {policy:?}, because the store gave no verdict \
             and the layer fails open: more requests than the limit may run at once, until those that started \
             without a slot have ended; choose `fail_closed` or `fail_local` if that must not happen"
        );
        Self::new("without_slot", text)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
