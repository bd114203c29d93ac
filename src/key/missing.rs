//! Requests without a key.

/// What a request without a key gets.
///
/// A key that is present but cannot be used is always refused; see
/// [`KeyError::is_missing`](crate::key::KeyError::is_missing).
///
/// # Examples
///
/// Requests without a tenant share one budget:
///
/// ```
/// use tollgate::{HeaderKey, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_tenant = Policy::per_minute("per-tenant", 600)?;
/// let limit = RateLimitLayer::new(Limiter::new(MemoryStore::new()), per_tenant, HeaderKey::new("x-tenant")?)
///     .on_missing_key(MissingKey::ShareOneBucket);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policies of the missing key do not limit the request.
    ///
    /// This applies whatever the reason: without connection information, a router exempts *all* requests from a limit
    /// by [`PeerIp`](crate::PeerIp). Observers count them
    /// ([`Observer::on_exempt`](crate::observe::Observer::on_exempt)).
    Exempt,
    /// The request is refused with 400.
    #[default]
    Reject,
    /// All requests without a key share one budget. One client can spend it for all others.
    ShareOneBucket,
}
