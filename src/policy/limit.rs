//! The policy: its value and its getters.

use std::sync::{Arc, OnceLock};
use std::{any::Any, fmt, hash::BuildHasher, time::Duration};

use foldhash::fast::FixedState;

use crate::error::{ConfigError, FirstMistake};
use crate::key::{Key, partition::PartitionKey};
use crate::policy::definition::{Definition, Special, near_units};
use crate::policy::{Algorithm, calendar::CalendarWindows};

/// A limit of units per window, counted by an [`Algorithm`]: at most [2^40 units](Self::MAX_LIMIT) in at most
/// [366 days](Self::MAX_WINDOW).
///
/// Clones share one allocation. The policy's name appears in headers, problem documents and Redis keys.
///
/// # Changing a policy
///
/// Counts are kept under the policy's name, algorithm, window or calendar, resolution and number of shards. A new limit
/// or burst therefore applies at once to what is already counted. After it is lowered, a client that has spent more
/// than the new limit waits until enough has left the window; after it is raised, clients gain the difference. Old and
/// new processes may run side by side: each applies its own limit to the shared counts. Another window, calendar,
/// resolution, algorithm or number of shards starts a fresh count, so that for the length of one window a client may
/// spend both limits.
///
/// A token bucket stores spent units as time, so a higher rate makes the same time worth more units. Denials that
/// [count](Policy::with_denials_counted) remove no units that other policies on the same count have admitted. The
/// highest limit under which a log was charged since it was last empty bounds the log's memory: after a limit is
/// lowered, the old limit bounds the memory until the log is empty.
///
/// # Mistakes
///
/// No setter returns a `Result`. A policy keeps the first mistake in its settings, and [`validated`](Self::validated)
/// returns it. Settings that have to fit together, such as a burst and the algorithm, may come in any order.
///
/// A policy with a mistake limits nothing and lets nothing pass. It is a mistake of each
/// [layer](crate::RateLimitLayer#mistakes), [client](crate::ThrottleLayer#mistakes) and [`Check`](crate::Check) with
/// it, and plans with it are unusable. Each call of a [`Limiter`](crate::Limiter) with it returns an error of kind
/// [`InvalidCall`](crate::ErrorKind::InvalidCall), and every failure policy refuses the check.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Algorithm, Policy};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_client = Policy::per_minute("per-client", 60)?;
/// let bursts = Policy::per_second("bursts", 100)?
///     .with_algorithm(Algorithm::TokenBucket)
///     .with_burst(20);
/// let daily = Policy::per_day("daily", 1_000_000)?
///     .with_resolution(Duration::from_secs(86));
/// # let _ = (per_client, bursts.validated()?, daily.validated()?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Policy(Arc<Inner>);

struct Inner {
    definition: Definition,
    /// See [`Policy::listed_as`].
    listed_as: Option<Box<str>>,
    /// A hash of the name and the [form](Policy::form), for look-ups.
    name_hash: u64,
    /// See [`Policy::unit_time`].
    unit_time: (u64, u64),
    /// See [`Policy::capacity`].
    capacity: u64,
    /// See [`Policy::near_units`].
    near_units: u64,
    /// See [`Policy::is_direct`].
    is_direct: bool,
    /// The first mistake in the definition.
    mistake: FirstMistake,
    /// The policy that counts denials, if they lead to a ban.
    ban: Option<Policy>,
    /// The policies of the shards; empty without shards.
    shards: Box<[Policy]>,
    /// The same policy as a shadow policy, see [`Policy::shadow`].
    shadow: OnceLock<Policy>,
    /// A value that another module derives from this policy, see [`Policy::derived`].
    derived: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Policy {
    /// The name of the policy.
    pub fn name(&self) -> &str {
        &self.definition().name
    }

    /// The limit, in units per window. 0 if the policy is [blocked](Self::blocked).
    pub fn limit(&self) -> u64 {
        self.definition().limit
    }

    /// The length of the window. A [concurrency limit](Self::concurrent) and a [blocked](Self::blocked) policy have
    /// none, and the windows of a [calendar](Self::calendar) have no common length.
    pub fn window(&self) -> Option<Duration> {
        let has_length = !self.is_concurrent() && !self.is_blocked() && self.calendar_windows().is_none();
        has_length.then(|| self.window_length())
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.definition().algorithm
    }

    /// The resolution of a [sliding window log](Algorithm::SlidingWindowLog). It is 1 µs unless
    /// [`with_resolution`](Self::with_resolution) sets another. `None` for the other algorithms.
    pub fn resolution(&self) -> Option<Duration> {
        let is_log = self.algorithm() == Algorithm::SlidingWindowLog;
        is_log.then(|| Duration::from_micros(self.resolution_us()))
    }

    /// The burst of a [token bucket](Algorithm::TokenBucket). It equals the limit unless
    /// [`with_burst`](Self::with_burst) sets another. `None` for the other algorithms.
    pub fn burst(&self) -> Option<u64> {
        (self.algorithm() == Algorithm::TokenBucket).then_some(self.definition().burst.value)
    }

    /// The largest cost that can ever pass at once: the burst of a token bucket, otherwise the limit. Of a policy with
    /// [shards](Self::with_shards), what its smallest shard can hold.
    pub fn capacity(&self) -> u64 {
        self.0.capacity
    }

    /// Whether denied requests are counted: `false` unless set by [`with_denials_counted`](Self::with_denials_counted).
    pub fn denials_counted(&self) -> bool {
        self.definition().denials_counted
    }

    /// The unit that clients see, set by [`with_unit`](Self::with_unit). `None` means that the policy counts requests.
    pub fn unit(&self) -> Option<&str> {
        self.definition().unit.as_deref()
    }

    /// The partition key of `key`, if the policy discloses one to clients.
    pub(crate) fn partition_key(&self, key: &Key) -> Option<PartitionKey> {
        self.definition().partition_keys.as_ref().and_then(|keys| keys.of(key))
    }

    /// The length of the window. Of a calendar, that of the longest one; of a concurrency limit, the time in which its
    /// counts are kept.
    pub(crate) fn window_length(&self) -> Duration {
        Duration::from_micros(self.definition().window_us)
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.definition().window_us
    }

    /// The window divided by the limit, the time in which a token bucket gains a unit: whole microseconds, and the
    /// remainder.
    pub(crate) fn unit_time(&self) -> (u64, u64) {
        self.0.unit_time
    }

    pub(crate) fn resolution_us(&self) -> u64 {
        self.definition().resolution_us.value
    }

    /// Algorithm, window and resolution: counts of policies that differ in one of them are incompatible, and so are
    /// those of different calendars.
    pub(crate) fn form(&self) -> (Algorithm, u64, u64) {
        self.definition().form()
    }

    /// The policy that counts denials, if they lead to a ban.
    pub(crate) fn ban(&self) -> Option<&Self> {
        self.0.ban.as_ref()
    }

    /// Whether a denial counts against the caller.
    pub(crate) fn counts_denials(&self) -> bool {
        self.definition().denials_counted || self.ban().is_some()
    }

    /// Whether this policy counts another policy's denials.
    pub(crate) fn is_ban(&self) -> bool {
        self.definition().is_ban
    }

    /// One instance's share of the policy, rounded up to whole units: with more instances than units, each instance may
    /// spend one unit.
    pub(crate) fn share(&self, instances: u32) -> Self {
        self.clone().change(|d| {
            d.limit = d.limit.div_ceil(instances.into());
            d.burst.value = d.burst.value.div_ceil(instances.into());
        })
    }

    /// The policies of the shards; empty without shards.
    #[inline]
    pub(crate) fn shard_policies(&self) -> &[Self] {
        &self.0.shards
    }

    /// The same policy under a name that no user can choose, so that it has its own counts.
    pub(crate) fn renamed(&self, purpose: &str) -> Self {
        self.clone().change(|d| d.name = format!("{} {purpose}", d.name).into())
    }

    /// The same policy under another name, which is valid. Costs still find it under its first name.
    #[cfg(all(feature = "plans", feature = "serde"))]
    pub(crate) fn named(&self, name: &str) -> Self {
        let listed_as = self.listed_as().unwrap_or(self.name());
        let definition = Definition { name: name.into(), ..self.definition().clone() };
        Self::judged(definition, &self.0.mistake, Some(listed_as.into()))
    }

    /// The name of the policy in the limits that it comes from, if it is counted under another one. Policies are equal
    /// whatever it is, because it is no part of how they count.
    pub(crate) fn listed_as(&self) -> Option<&str> {
        self.0.listed_as.as_deref()
    }

    /// The policy of the pauses beside this policy: a bucket of `burst_us` microseconds that fills in real time.
    pub(crate) fn pauses(&self, burst_us: u64) -> Self {
        let name = format!("{} pause", self.name()).into();
        let plain = Definition::plain(name, 1_000_000, 1_000_000);
        Self::from(Definition { algorithm: Algorithm::TokenBucket, burst: Special::set(burst_us), ..plain })
    }

    /// Whether both policies share their counts: they have the same name and form.
    #[inline]
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        // Both are usually clones of one policy.
        self.is_clone_of(other) || self.has_same_form(other)
    }

    /// The first mistake in the definition.
    #[inline]
    pub(super) fn first_mistake(&self) -> &FirstMistake {
        &self.0.mistake
    }

    #[inline]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Not inlined, so that the comparison of clones is short.
    #[inline(never)]
    fn has_same_form(&self, other: &Self) -> bool {
        self.0.name_hash == other.0.name_hash && self.name() == other.name() && self.has_form_of(other)
    }

    fn has_form_of(&self, other: &Self) -> bool {
        self.form() == other.form() && self.calendar_windows() == other.calendar_windows()
    }

    /// A hash that is equal for policies of the same name and form.
    pub(crate) fn name_hash(&self) -> u64 {
        self.0.name_hash
    }

    /// Whether a caller may have to wait for units of this policy. A shadow policy denies nothing, and a cost of 0
    /// always fits.
    pub(crate) fn delays(&self, cost: u64) -> bool {
        cost > 0 && !self.is_shadow()
    }

    /// Returns an error if the cost can never pass.
    pub(crate) fn check_cost(&self, cost: u64) -> Result<(), ConfigError> {
        if cost > self.capacity() && !self.is_blocked() {
            return Err(ConfigError::cost_above_limit(self.name(), cost, self.capacity(), self.shards()));
        }
        Ok(())
    }

    /// A value that depends on this policy alone: computed by `derive` at the first call, then returned from memory.
    ///
    /// The RateLimit fields keep their constant part here. The value is type-erased, so that this module imports no
    /// HTTP. There is room for one value: a value of another type is computed at each call.
    pub(crate) fn derived<T: Any + Clone + Send + Sync>(&self, derive: impl Fn() -> T) -> T {
        match self.0.derived.get_or_init(|| Box::new(derive())).downcast_ref::<T>() {
            Some(derived) => derived.clone(),
            None => derive(),
        }
    }

    /// Whether checks go to the store as they are: the policy has neither shards nor a lease, and is not blocked.
    #[inline]
    pub(crate) fn is_direct(&self) -> bool {
        self.0.is_direct
    }

    /// The number of spent units at which a key is near the limit. More than any key can spend if there is no such
    /// number.
    pub(crate) fn near_units(&self) -> u64 {
        self.0.near_units
    }

    /// This policy as a shadow policy. Made at the first call, then returned from memory, because a shadow layer asks
    /// for it at each request.
    pub(crate) fn shadow(&self) -> &Self {
        if self.is_shadow() { self } else { self.0.shadow.get_or_init(|| self.clone().change(|d| d.shadow = true)) }
    }

    pub(super) fn definition(&self) -> &Definition {
        &self.0.definition
    }

    /// A policy with a changed definition.
    pub(super) fn change(self, change: impl FnOnce(&mut Definition)) -> Self {
        let mut definition = self.0.definition.clone();
        change(&mut definition);
        Self::judged(definition, &self.0.mistake, self.0.listed_as.clone())
    }

    /// `former` is the first mistake before the last setting, which may have mended it.
    fn judged(definition: Definition, former: &FirstMistake, listed_as: Option<Box<str>>) -> Self {
        let mistake = former.of(definition.mistakes());
        let calendar = definition.calendar.as_ref().map(CalendarWindows::text);
        let name_hash = FixedState::default().hash_one((&definition.name, definition.form(), calendar));
        let ban = definition.ban_definition().map(Self::from);
        let (limit, window_us) = (definition.limit, definition.window_us);
        // A blocked policy has no unit.
        let unit_time = (window_us / limit.max(1), window_us % limit.max(1));
        let capacity = definition.whole_capacity() / u64::from(definition.shards);
        // Shards of a mistake might have no unit.
        let has_shards = definition.shards > 1 && mistake.found().is_ok();
        let shards = if has_shards { shards_of(&definition) } else { Box::default() };
        let near_units = near_units(definition.near_limit, capacity);
        let is_direct = definition.shards == 1 && definition.lease.is_none() && limit > 0;
        let (shadow, derived) = (OnceLock::new(), OnceLock::new());
        Self(Arc::new(Inner {
            definition,
            listed_as,
            name_hash,
            unit_time,
            capacity,
            near_units,
            is_direct,
            mistake,
            ban,
            shards,
            shadow,
            derived,
        }))
    }
}

impl From<Definition> for Policy {
    fn from(definition: Definition) -> Self {
        Self::judged(definition, &FirstMistake::NONE, None)
    }
}

/// The policies of all shards. Neighbours of one size share an allocation.
fn shards_of(definition: &Definition) -> Box<[Policy]> {
    let mut shards: Vec<Policy> = Vec::new();
    for number in 0..definition.shards {
        let shard = definition.shard_definition(number);
        let shard = match shards.last() {
            Some(last) if *last.definition() == shard => last.clone(),
            _ => Policy::from(shard),
        };
        shards.push(shard);
    }
    shards.into()
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.is_clone_of(other) || self.0.definition == other.0.definition && self.0.mistake == other.0.mistake
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.definition.fmt(f)
    }
}
