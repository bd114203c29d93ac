//! Requests without a key.

/// What a request without a key gets.
///
/// Only a [missing](crate::key::KeyError::is_missing) key is meant. A request whose key cannot be
/// used is always refused.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum MissingKey {
    /// The request is not limited by what the key belongs to.
    ///
    /// This holds for *every* reason: a router that is served without connection information exempts all requests from
    /// a limit by [`PeerIp`](crate::PeerIp). Observers count them
    /// ([`Observer::on_exempt`](crate::observe::Observer::on_exempt)).
    Exempt,
    /// The request is refused with 400.
    #[default]
    Reject,
    /// All requests without a key share one budget: one of them can use it up for all others.
    ShareOneBucket,
}
