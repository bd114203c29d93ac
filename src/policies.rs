//! Which policies a request is counted under.

use std::{fmt, ops::Deref, sync::Arc};

use http::request::Parts;
use smallvec::{SmallVec, smallvec};

use crate::{key::Key, policy::Policy};

/// Chooses the policies of a request: a [`Policy`], an array or `Vec` of them, or a closure
/// `Fn(&Parts, &Key) -> impl Into<Policies>` for plans and tenants.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tollgate::{ApiKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let (free, paid) = (Policy::per_minute("free", 10)?, Policy::per_minute("paid", 1_000)?);
/// let plan = move |parts: &Parts, _: &Key| match parts.headers.get("x-plan") {
///     Some(plan) if plan == "paid" => paid.clone(),
///     _ => free.clone(),
/// };
/// let layer = RateLimitLayer::new(Limiter::new(MemoryStore::new()), plan, ApiKey::bearer());
/// # Ok(())
/// # }
/// ```
pub trait PolicySource: Send + Sync + 'static {
    /// The policies for one request by `key`. None at all is a mistake, answered with 500: to exempt a request, let
    /// its key extractor or its route say so.
    fn policies(&self, parts: &Parts, key: &Key) -> Policies;

    /// The policies, if they are the same for every request, so that mistakes are found before the first one.
    fn fixed(&self) -> Option<&[Policy]> {
        None
    }
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
        match self.fixed() {
            Some(policies) => policies.fmt(f),
            None => f.write_str("chosen per request"),
        }
    }
}

/// The policies of one request.
#[derive(Clone, Debug)]
pub struct Policies(pub(crate) SmallVec<[Policy; 1]>);

impl From<Policy> for Policies {
    fn from(policy: Policy) -> Self {
        Self(smallvec![policy])
    }
}

impl<const N: usize> From<[Policy; N]> for Policies {
    fn from(policies: [Policy; N]) -> Self {
        Self(policies.into_iter().collect())
    }
}

impl From<Vec<Policy>> for Policies {
    fn from(policies: Vec<Policy>) -> Self {
        Self(policies.into())
    }
}

impl From<&[Policy]> for Policies {
    fn from(policies: &[Policy]) -> Self {
        Self(policies.into())
    }
}

impl PolicySource for Policy {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.clone().into()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(std::slice::from_ref(self))
    }
}

impl<const N: usize> PolicySource for [Policy; N] {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.as_slice().into()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(self)
    }
}

impl PolicySource for Vec<Policy> {
    fn policies(&self, _: &Parts, _: &Key) -> Policies {
        self.as_slice().into()
    }

    fn fixed(&self) -> Option<&[Policy]> {
        Some(self)
    }
}

impl<F, T> PolicySource for F
where
    F: Fn(&Parts, &Key) -> T + Send + Sync + 'static,
    T: Into<Policies>,
{
    fn policies(&self, parts: &Parts, key: &Key) -> Policies {
        self(parts, key).into()
    }
}
