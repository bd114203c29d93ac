//! Policy sources: fixed policies, or policies that a closure chooses for each request.

use std::{any::Any, fmt, ops::Deref, sync::Arc};

use http::request::Parts;
use smallvec::SmallVec;

use crate::{error::ConfigError, key::Key, policy::limit::Policy};

/// Chooses the policies of a request: a [`Policy`], an array or `Vec` of them, or a closure
/// `Fn(&Parts, &Key)` that returns one of these, for plans and tenants. In [`from_fn`], its arguments need no types.
///
/// The choice decides what a request may spend, so base it on data that clients cannot choose: the key, or an extension
/// that authentication has inserted. Do not read a plan from a header, because a client can send any header.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tollgate::{
///     ExtensionKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer,
/// };
///
/// /// Inserted by authentication, with the plan that the account has paid for.
/// #[derive(Clone)]
/// struct Account {
///     id: u64,
///     is_paid: bool,
/// }
///
/// impl From<&Account> for Key {
///     fn from(account: &Account) -> Key {
///         Key::from(account.id)
///     }
/// }
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// // One name, so that both plans share a count: after an upgrade, units that
/// // were spent before still count.
/// let (free, paid) =
///     (Policy::per_minute("plan", 10)?, Policy::per_minute("plan", 1_000)?);
/// let plan = move |parts: &Parts, _: &Key| match parts.extensions.get::<Account>()
/// {
///     Some(account) if account.is_paid => paid.clone(),
///     _ => free.clone(),
/// };
/// let layer = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     plan,
///     ExtensionKey::<Account>::new(),
/// );
/// # Ok(())
/// # }
/// ```
///
/// A type that looks the plan of a key up, in a table that the service loads from its database:
///
/// ```
/// use std::collections::HashMap;
/// use http::request::Parts;
/// use tollgate::{Key, Policy, policy::{Policies, PolicySource}};
///
/// struct Plans {
///     by_account: HashMap<Key, Policy>,
///     free: Policy,
/// }
///
/// impl PolicySource for Plans {
///     fn policies(&self, _: &Parts, account: &Key) -> Policies {
///         self.by_account.get(account).unwrap_or(&self.free).clone().into()
///     }
/// }
/// ```
///
/// A `Result` is not accepted; the compiler's message says to add `?`:
///
/// ```compile_fail,E0277
/// use tollgate::{GlobalKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// let limiter = Limiter::new(MemoryStore::new());
/// let layer = RateLimitLayer::new(limiter, Policy::per_minute("all", 60), GlobalKey); // add `?` to the policy
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source of policies",
    label = "expected a `Policy`, `[Policy; N]`, `Vec<Policy>` or a closure `Fn(&Parts, &Key)` that returns one",
    note = "if this is a `Result`, add `?`: `Policy::per_minute(\"per-client\", 60)?`",
    note = "if this is an `Option`, decide what `None` means: another policy, or no layer \
            (`tower::util::option_layer`)",
    note = "if this is a `Policies`, return it from a closure: `policy::from_fn(move |_, _| policies.clone())`",
    note = "if this is a reference, such as `&plans`, give the layer a `.clone()` of it"
)]
pub trait PolicySource: Send + Sync + 'static {
    /// The policies for one request by `key`. [`Policies::unlimited`] limits nothing, and [`Policy::blocked`] lets
    /// nothing pass. If the list is empty otherwise, the response is 500.
    fn policies(&self, parts: &Parts, key: &Key) -> Policies;

    /// The policies, if they are the same for every request, so that mistakes are found before the first request.
    /// Defaults to `None`: the policies depend on the request.
    fn fixed(&self) -> Option<&[Policy]> {
        None
    }

    /// The policies, if they are alternatives of one another and the same for every request. Hidden, because only
    /// [`FirstOf`](crate::policy::FirstOf) has them.
    #[doc(hidden)]
    fn alternatives(&self) -> Option<&[Policy]> {
        None
    }

    /// As [`policies`](Self::policies), for a request that uses a version of live limits, which is `origin`. Hidden,
    /// because only plans find policies in limits. Type-erased, so that this module imports no limits.
    #[doc(hidden)]
    fn policies_in(&self, parts: &Parts, key: &Key, _: Option<&(dyn Any + Send + Sync)>) -> Policies {
        self.policies(parts, key)
    }

    /// What passes the reports of the source to the observers of the limiter. Hidden, because only plans report.
    /// Type-erased, so that this module imports no observer.
    #[doc(hidden)]
    fn reporter(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }

    /// Returns the mistake in the settings of the source, which is a mistake of each layer that has it. Defaults to
    /// none.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: what is wrong, and what to write instead.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// The policies of a source that are the same for every request.
#[derive(Clone, Copy)]
pub(crate) struct KnownPolicies<'a> {
    pub(crate) list: &'a [Policy],
    /// Whether the first policy that has room is charged alone.
    pub(crate) are_alternatives: bool,
}

/// The policies of `source` if they are the same for every request; `None` if they depend on the request.
pub(crate) fn known_policies(source: &dyn PolicySource) -> Option<KnownPolicies<'_>> {
    let known = |are_alternatives| move |list| KnownPolicies { list, are_alternatives };
    source.fixed().map(known(false)).or_else(|| source.alternatives().map(known(true)))
}

/// A [`PolicySource`] that is shared by clones.
#[derive(Clone)]
pub(crate) struct SharedSource(Arc<dyn PolicySource>);

impl SharedSource {
    pub(crate) fn new(policies: impl PolicySource) -> Self {
        Self(Arc::new(policies))
    }
}

impl Deref for SharedSource {
    type Target = dyn PolicySource;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for SharedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match known_policies(&**self) {
            Some(known) => known.list.fmt(f),
            None => f.write_str("chosen per request"),
        }
    }
}

/// The policies of one request. Made from a policy, or from an array, a `Vec` or a slice of policies.
#[derive(Clone, Debug)]
pub struct Policies {
    pub(crate) list: SmallVec<[Policy; 1]>,
    /// Whether the list is empty by intention, see [`unlimited`](Self::unlimited).
    pub(crate) is_unlimited: bool,
    /// Whether the first policy that has room is charged alone, see [`FirstOf`](crate::policy::FirstOf).
    pub(crate) are_alternatives: bool,
}

impl Policies {
    fn of(list: SmallVec<[Policy; 1]>) -> Self {
        Self { list, is_unlimited: false, are_alternatives: false }
    }

    /// Creates the policies of a request that is not limited by its key: the plan of an internal service, or of a
    /// customer without a limit. An empty list is a mistake, because it may be one.
    ///
    /// A request passes without a check if all of its keys are unlimited or exempt. It has no decision and no RateLimit
    /// fields, and observers get the [event](crate::observe::Event) `exemption` with the outcome `unlimited`. A denied
    /// address is refused all the same. A check of such a plan is allowed without a call of the store. Its opposite is
    /// [`Policy::blocked`](crate::Policy::blocked).
    ///
    /// # Examples
    ///
    /// A table of plans with both ends:
    ///
    /// ```
    /// use tollgate::{
    ///     Key, MemoryStore, PeerIp, Policy, RateLimitLayer,
    ///     policy::{self, Policies},
    /// };
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let (free, suspended) =
    ///     (Policy::per_minute("free", 60)?, Policy::blocked("suspended")?);
    /// let plans = policy::from_fn(move |_, client: &Key| match client {
    ///     // In a service: what its database says about the client.
    ///     client if *client == Key::from("127.0.0.1") => Policies::unlimited(),
    ///     client if *client == Key::from("198.51.100.9") => suspended.clone().into(),
    ///     _ => free.clone().into(),
    /// });
    /// let limit = RateLimitLayer::new(MemoryStore::new(), plans, PeerIp::new())
    ///     .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unlimited() -> Self {
        Self { is_unlimited: true, ..Self::of(SmallVec::new()) }
    }
}

/// The return type of a closure that is a [`PolicySource`]: a [`Policy`], or an array, `Vec` or slice of policies. Not
/// exported, because only this crate implements it.
///
/// # Examples
///
/// Writes are also limited by a second policy:
///
/// ```
/// use http::{Method, request::Parts};
/// use tollgate::{GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let (all, writes) =
///     (Policy::per_minute("all", 600)?, Policy::per_minute("writes", 60)?);
/// let by_method = move |parts: &Parts, _: &Key| match parts.method {
///     Method::GET => vec![all.clone()],
///     _ => vec![all.clone(), writes.clone()],
/// };
/// let layer =
///     RateLimitLayer::new(Limiter::new(MemoryStore::new()), by_method, GlobalKey);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy or a list of policies",
    label = "this closure has to return a `Policy`, `[Policy; N]`, `Vec<Policy>` or `&[Policy]`",
    note = "create policies before the closure, where their errors can be returned, and clone them in it",
    note = "to exempt a request, return `Policies::unlimited()`, or use `Route::exempt()`",
    note = "if this is the name of a policy, as a plan: enable the feature `serde` of tollgate, and create the plans \
            with `Plans::of_limits`"
)]
pub trait IntoPolicies {
    /// Converts into the form that [`PolicySource::policies`] returns.
    fn into_policies(self) -> Policies;
}

impl Deref for Policies {
    type Target = [Policy];

    fn deref(&self) -> &[Policy] {
        &self.list
    }
}

impl IntoPolicies for Policies {
    fn into_policies(self) -> Policies {
        self
    }
}

impl IntoPolicies for Policy {
    fn into_policies(self) -> Policies {
        Policies::of(SmallVec::from_buf([self]))
    }
}

impl<const N: usize> From<[Policy; N]> for Policies {
    fn from(policies: [Policy; N]) -> Self {
        policies.into_policies()
    }
}

impl From<Policy> for Policies {
    fn from(policy: Policy) -> Self {
        policy.into_policies()
    }
}

impl From<Vec<Policy>> for Policies {
    fn from(policies: Vec<Policy>) -> Self {
        policies.into_policies()
    }
}

impl From<&[Policy]> for Policies {
    fn from(policies: &[Policy]) -> Self {
        policies.into_policies()
    }
}

impl<const N: usize> IntoPolicies for [Policy; N] {
    fn into_policies(self) -> Policies {
        Policies::of(self.into_iter().collect())
    }
}

impl IntoPolicies for Vec<Policy> {
    fn into_policies(self) -> Policies {
        Policies::of(self.into())
    }
}

impl IntoPolicies for &[Policy] {
    fn into_policies(self) -> Policies {
        Policies::of(self.into())
    }
}

impl PolicySource for Policy {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.clone().into_policies()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(std::slice::from_ref(self))
    }
}

impl<const N: usize> PolicySource for [Policy; N] {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.as_slice().into_policies()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(self)
    }
}

impl PolicySource for Vec<Policy> {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.as_slice().into_policies()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(self)
    }
}

impl<F, T> PolicySource for F
where
    F: Fn(&Parts, &Key) -> T + Send + Sync + 'static,
    T: IntoPolicies,
{
    fn policies(&self, parts: &Parts, key: &Key) -> Policies {
        self(parts, key).into_policies()
    }
}

/// Creates a source of policies that calls `f` for each request: a closure whose arguments need no types.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use tollgate::{ApiKey, Key, MemoryStore, Policy, RateLimitLayer, policy};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let api_key = ApiKey::header("x-api-key")?;
/// let free = Policy::per_minute("plan", 10)?;
/// let plans = HashMap::from([(
///     api_key.key_of("ann-1"),
///     Policy::per_minute("plan", 1_000)?,
/// )]);
///
/// let plan =
///     policy::from_fn(move |_, key| plans.get(key).unwrap_or(&free).clone());
/// let limit =
///     RateLimitLayer::new(MemoryStore::new(), plan, api_key).validated()?;
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
pub fn from_fn<T: IntoPolicies>(f: impl Fn(&Parts, &Key) -> T + Send + Sync + 'static) -> impl PolicySource {
    f
}
