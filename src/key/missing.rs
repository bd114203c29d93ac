//! The setting for requests without a key.

use crate::error::in_words;

/// What happens to a request without a key.
///
/// A request whose key is present but cannot be used is always refused; see
/// [`KeyError::is_missing`](crate::key::KeyError::is_missing).
///
/// As text: `reject`, `exempt`, `share-one-key`.
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
///     .on_missing_key(MissingKey::ShareOneKey);
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policies of the missing key do not limit the request.
    ///
    /// The exemption applies whatever the reason for the missing key: a router without connection information exempts
    /// *all* requests from a limit by [`PeerIp`](crate::PeerIp). Observers receive each exempt request: the
    /// [event](crate::observe::OtherEvent#names) `exemption`.
    Exempt,
    /// The request is refused: with 401 if the key is a credential ([`ApiKey`](crate::ApiKey)), and with 400 otherwise.
    #[default]
    Reject,
    /// All requests without a key share one budget. One client can spend the whole budget, and all others are then
    /// refused.
    ShareOneKey,
}

impl MissingKey {
    const WORDS: [(&'static str, Self); 3] =
        [("reject", Self::Reject), ("exempt", Self::Exempt), ("share-one-key", Self::ShareOneKey)];
}

in_words!(MissingKey, "setting for requests without a key");
