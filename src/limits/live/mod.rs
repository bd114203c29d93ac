//! [`LiveLimits`]: limits that are replaced while the service runs, and the reports of it.

#[cfg(feature = "watch")]
mod watch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, path::Path, sync::Arc};

use arc_swap::ArcSwap;

use crate::key::{GlobalKey, KeyExtractor};
use crate::middleware::{Followers, RateLimitLayer, Rules, RulesOwner};
use crate::observe::{Event, LimitsChange, Other, Reporter};
use crate::{error::ConfigError, limiter::Limiter, limits::LimitsConfig, policy::Policy};
#[cfg(feature = "plans")]
use std::{
    any::Any,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError, Weak},
};

#[cfg(feature = "watch")]
pub use self::watch::LimitsFileError;

/// Limits that can be replaced while the service runs.
///
/// Layers made by [`layer`](Self::layer) read the limits once per request, with one atomic load. Clones are cheap and
/// share the limits.
///
/// # Rules
///
/// 1. A request reads the limits once, when it starts, and uses them to its end: for its charges, also under plans of
///    these limits, its failure policy and the fields of its response. Two layers around one handler read the limits
///    one after the other.
/// 2. New limits are checked before any of them takes effect, against every layer that follows them. If they do not
///    fit, all old limits stay in force.
/// 3. A count belongs to a policy's name, algorithm, window or calendar, resolution and number of shards. As long as
///    these stay the same, the count stays, whatever else changes.
/// 4. What a setter of a layer changes stays in force. All other settings follow the limits.
/// 5. A request that waits in [`Limiter::acquire`] keeps the policy that it was given.
///
/// # What a change means
///
/// | change | effect on the next request |
/// | --- | --- |
/// | limit lowered | units that were spent before count. A client that has spent more than the new limit is denied, with 0 available units, until enough units have left the window |
/// | limit raised | units that were spent before count, and the added units are available at once. A denial that a store remembers under the old limit does not apply |
/// | limit of a token bucket changed | the time until the bucket is full stays. At a higher rate this time is worth more units, so 6 missing units of 10 a minute become 12 of 20 a minute |
/// | burst changed | the time until the bucket is full stays, and the depth of the bucket is the new one |
/// | algorithm, window, calendar or resolution changed | the policy starts a new count at 0. The old count stays in the store until it expires, and is used again if the change is taken back before. A ban by hand belongs to the old count: the client is admitted, until the change is taken back or the client is [banned](crate::Limiter::ban) again |
/// | `shards` changed | the policy starts new counts at 0, so a client may spend the limit once more in this window |
/// | duration of a ban changed | denials count from 0, and bans end |
/// | duration of the longest ban changed | applies to the next ban |
/// | denials of a ban changed | denials that were counted before count. A raised number may end a ban |
/// | `shadow` switched | the count stays. Requests that do not fit are refused, or let through, from now on |
/// | `lease` added, changed or removed | the count stays. Instances that have read the file see the blocks of others only if their policy has holds: [`Policy::with_lease`](crate::Policy::with_lease) says in which steps to do it |
/// | `blocked` switched | requests are refused, or judged again, from now on |
/// | `count-rejected` switched | denials count, or count no longer, from now on. Those that were counted stay |
/// | policy removed | requests are not charged under it. Its count expires in the store |
/// | policy added | its count starts at 0, unless a policy of this form was in use within the last window |
/// | route added or removed, cost changed | the new cost is charged. Units that were charged before stay as they are |
/// | `exempt` switched | a route that becomes exempt is not charged. A route that is no longer exempt is charged from now on |
/// | failure policy changed | applies to checks that start from now on |
/// | header style changed | applies to the responses of requests that start from now on |
///
/// While a count stays, a client is never admitted more than the largest limit in force in a window in which the limit
/// changes. A new count admits its whole limit, whatever was spent under the old one. Instances of a service read a
/// file at slightly different times; each applies the limits that it has read.
///
/// # Examples
///
/// ```
/// use tollgate::{Limiter, LiveLimits, MemoryStore, PeerIp, limits::LimitsConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let read = |text| toml::from_str::<LimitsConfig>(text);
/// let live = LiveLimits::new(read(
///     "policies.per-client.rate = '60/min'\ndefault.policies = ['per-client']",
/// )?);
/// let limit = live.layer(Limiter::new(MemoryStore::new()), PeerIp::new())?;
///
/// // The layer admits 120 requests a minute from now on. Requests that were
/// // counted before still count.
/// live.replace(read(
///     "policies.per-client.rate = '120/min'\ndefault.policies = ['per-client']",
/// )?)?;
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
///
///
/// A file that is read again when it changes (feature `watch`):
///
/// ```no_run
/// # #[cfg(feature = "watch")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tollgate::{Limiter, LiveLimits, MemoryStore, PeerIp};
///
/// let live = LiveLimits::watch("limits.toml", |text| toml::from_str(text))?;
/// let limit = live.layer(Limiter::new(MemoryStore::new()), PeerIp::new())?;
/// # let _ = limit;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "watch"))]
/// # fn main() {}
/// ```
///
/// A file that is read again on SIGHUP, with all mistakes as the error:
///
/// ```no_run
/// use tokio::signal::unix::{SignalKind, signal};
/// use tollgate::{LiveLimits, limits::LimitsConfig};
///
/// # type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// fn read() -> Result<LimitsConfig, BoxError> {
///     let text = std::fs::read_to_string("limits.toml")?;
///     Ok(toml::from_str(&text)?)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let live = LiveLimits::new(read()?);
/// let mut hangups = signal(SignalKind::hangup())?;
/// while hangups.recv().await.is_some() {
///     match read().and_then(|limits| Ok(live.replace(limits)?)) {
///         Ok(()) => println!("new limits are in force"),
///         Err(error) => eprintln!("the old limits stay in force: {error}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct LiveLimits(Arc<Shared>);

/// The state that all clones, the layers and the watching thread share.
struct Shared {
    current: ArcSwap<LimitsConfig>,
    /// Changes only under the lock of `followers`.
    version: AtomicU64,
    followers: Followers,
    /// The policies that plans need as their default, while the plans exist. Changes only under the lock of
    /// `followers`.
    #[cfg(feature = "plans")]
    required: Mutex<Vec<Weak<str>>>,
    reporter: Reporter,
}

/// A version of live limits, which the rules that come from it keep for plans.
#[cfg(feature = "plans")]
struct RulesOrigin {
    owner: Weak<Shared>,
    limits: Arc<LimitsConfig>,
}

impl LiveLimits {
    /// Creates limits that only [`replace`](Self::replace) changes.
    #[cfg_attr(feature = "watch", doc = "[`watch`](Self::watch) follows a file.")]
    pub fn new(limits: LimitsConfig) -> Self {
        Self(Arc::new(Shared {
            current: ArcSwap::from_pointee(limits),
            version: AtomicU64::new(1),
            followers: Followers::default(),
            #[cfg(feature = "plans")]
            required: Mutex::default(),
            reporter: Reporter::default(),
        }))
    }

    /// Creates a layer that follows these limits, for the key that `key` extracts.
    ///
    /// From now on the limits report to `limiter`: to its observers, the [event](crate::observe::Event)
    /// `limits_change`, and by its [notices](crate::observe#what-a-limiter-reports-by-itself). Limits without a layer
    /// write lines by themselves about files that are refused or cannot be read.
    ///
    /// Every setter of the layer applies to it. What a setter changes stays in force when the limits are replaced; all
    /// other settings follow the limits. `limit.clone().with_cost(10)` costs 10 whatever the limits say about the
    /// cost, and its policies follow. A [route](RateLimitLayer::route) that the limits have as well is an error of
    /// [`validated`](RateLimitLayer::validated) or of [`replace`](Self::replace).
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the limits contain `on-store-failure = "local"` and the limiter has no [local
    /// fallback](Limiter::with_local_fallback).
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{
    ///     Router,
    ///     routing::{get, post},
    /// };
    /// use tollgate::{
    ///     ApiKey, ConfigError, Limiter, LiveLimits, PeerIp, Policy,
    ///     rejection::PlainText,
    /// };
    ///
    /// fn app(live: &LiveLimits, limiter: Limiter) -> Result<Router, ConfigError> {
    ///     let limit = live
    ///         .layer(limiter, PeerIp::new())?
    ///         .and(Policy::per_day("per-account", 10_000)?, ApiKey::bearer())
    ///         .with_rejection(PlainText::default())
    ///         .validated()?;
    ///     Ok(Router::new()
    ///         .route("/watch", get(|| async {}).layer(limit.clone()))
    ///         .route("/login", post(|| async {}).layer(limit.fail_closed())))
    /// }
    /// ```
    pub fn layer<K: KeyExtractor>(
        &self,
        limiter: impl Into<Limiter>,
        key: K,
    ) -> Result<RateLimitLayer<K>, ConfigError> {
        let limiter = limiter.into();
        let follower = {
            let mut followers = self.0.followers.lock();
            let rules = self.0.rules(&self.0.current.load_full(), &limiter)?;
            followers.add(rules, limiter.clone(), Arc::clone(&self.0) as Arc<dyn RulesOwner>)
        };
        self.0.reporter.follow(limiter.shared_listener());
        self.0.report_warnings();
        Ok(RateLimitLayer::following(limiter, follower, key))
    }

    /// Replaces the limits. Each request that starts after the return is judged by the new limits.
    ///
    /// Nothing changes before the new limits are checked against all layers that follow them. Replacements by several
    /// threads take effect one after the other.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the new limits do not fit a layer: a policy with the name of one that
    /// [`and`](RateLimitLayer::and) has added, a cost set in code above the new limit, a missing local fallback, or
    /// holds that a layer needs and cannot have. Also if they lack the default plan of `Plans::of_limits`. The old
    /// limits stay in force for all layers.
    ///
    pub fn replace(&self, limits: LimitsConfig) -> Result<(), ConfigError> {
        let result = self.0.replace(limits);
        self.0.report(&change(None, &result));
        result.map(drop)
    }

    /// The limits in force.
    #[cfg(feature = "plans")]
    pub(crate) fn current(&self) -> Arc<LimitsConfig> {
        self.0.current.load_full()
    }

    /// The version of these limits that a request uses whose rules are of this origin: that of the rules, or the one in
    /// force if the rules come from no version of these limits.
    #[cfg(feature = "plans")]
    pub(crate) fn of_request(&self, origin: Option<&(dyn Any + Send + Sync)>) -> Arc<LimitsConfig> {
        let origin = origin.and_then(|origin| origin.downcast_ref::<RulesOrigin>());
        let own = origin.filter(|origin| ptr::eq(origin.owner.as_ptr(), Arc::as_ptr(&self.0)));
        own.map_or_else(|| self.current(), |origin| Arc::clone(&origin.limits))
    }

    /// The policy of this name in the limits in force, for checks without a layer. Ignores the case of the name.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Limiter, LiveLimits};
    ///
    /// async fn run(
    ///     live: &LiveLimits,
    ///     limiter: &Limiter,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     // Looked up for each check, so that a job that runs for days follows
    ///     // the limits too.
    ///     let policy =
    ///         live.policy("exports").ok_or("the limits have no policy `exports`")?;
    ///     let _ = limiter.check("tenant:3", &policy, 1).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn policy(&self, name: &str) -> Option<Policy> {
        self.0.current.load().policy(name).cloned()
    }

    /// The policy of this name. As long as the name is kept, limits without such a policy are refused.
    #[cfg(feature = "plans")]
    pub(crate) fn require(&self, name: &Arc<str>) -> Result<Policy, ConfigError> {
        let _followers = self.0.followers.lock();
        let policy = self.0.current.load().require(name)?.clone();
        self.0.required().push(Arc::downgrade(name));
        Ok(policy)
    }

    /// The number of the limits in force: 1 for the first ones, one more for each replacement.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }
}

impl Shared {
    /// Reports a change, and what is probably wrong with limits that it has put into force.
    fn report(&self, change: &LimitsChange) {
        self.send(&Event::other(Other::LimitsChange(change)));
        if matches!(change, LimitsChange::Accepted { .. }) {
            self.report_warnings();
        }
    }

    /// The policies that plans need. Names that are no longer kept are removed.
    #[cfg(feature = "plans")]
    fn required(&self) -> MutexGuard<'_, Vec<Weak<str>>> {
        // Entries are added and removed as a whole, so a poisoned lock is usable.
        let mut required = self.required.lock().unwrap_or_else(PoisonError::into_inner);
        required.retain(|name| name.strong_count() > 0);
        required
    }

    /// Reports what is probably wrong with the limits in force, once.
    fn report_warnings(&self) {
        let limits = self.current.load_full();
        let warnings = limits.unreported_warnings().iter();
        warnings.for_each(|warning| self.send(&Event::of_warning(warning.clone())));
    }

    /// Sends a report. No lock is held, so an observer may replace the limits.
    fn send(&self, event: &Event<'_>) {
        if let Some(listener) = self.reporter.listener() {
            listener.on_event(event);
        }
    }

    /// Replaces the limits of all followers, or of none. Returns the new version.
    fn replace(self: &Arc<Self>, limits: LimitsConfig) -> Result<u64, ConfigError> {
        let limits = Arc::new(limits);
        let mut followers = self.followers.lock();
        #[cfg(feature = "plans")]
        self.required().iter().filter_map(Weak::upgrade).try_for_each(|name| limits.require(&name).map(drop))?;
        let following = followers.alive();
        let derived = following.iter().map(|follower| follower.derive(self.rules(&limits, follower.limiter())?));
        let derived = derived.collect::<Result<Vec<_>, ConfigError>>()?;
        let old: Vec<_> = following.iter().zip(derived).map(|(follower, rules)| follower.swap(rules)).collect();
        let old_limits = self.current.swap(limits);
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        // Values are dropped after the lock is released, because they may contain values of the user.
        drop(followers);
        drop((following, old, old_limits));
        Ok(version)
    }

    /// The rules of a layer that has these limits and no further settings.
    fn rules(self: &Arc<Self>, limits: &Arc<LimitsConfig>, limiter: &Limiter) -> Result<Rules, ConfigError> {
        let rules = limits.unreported_layer(limiter.clone(), GlobalKey)?.rules();
        #[cfg(feature = "plans")]
        let origin = RulesOrigin { owner: Arc::downgrade(self), limits: Arc::clone(limits) };
        #[cfg(feature = "plans")]
        let rules = rules.with_origin(Arc::new(origin));
        Ok(rules)
    }
}

impl RulesOwner for Shared {
    fn followers(&self) -> &Followers {
        &self.followers
    }
}

impl fmt::Debug for LiveLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveLimits")
            .field("version", &self.version())
            .field("current", &*self.0.current.load())
            .finish_non_exhaustive()
    }
}

/// The report of an attempt to replace the limits, which has returned the new version. `file` is the watched file.
fn change(file: Option<&Path>, result: &Result<u64, ConfigError>) -> LimitsChange {
    let file = file.map(Path::to_owned);
    match result {
        Ok(version) => LimitsChange::Accepted { file, version: *version },
        Err(error) => LimitsChange::Refused { file, reason: error.to_string() },
    }
}
