//! Requests without a key.

use http::request::Parts;

use super::{Key, KeyError, KeyExtractor, KeyOrigin};

/// What a request without a key gets.
///
/// Only a [missing](KeyError::is_missing) key is meant; one that is there but cannot be used is always refused.
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

/// An extractor that says what a request without its key gets; made by [`KeyExtractor::on_missing_key`].
#[derive(Clone, Copy, Debug)]
pub struct OnMissingKey<K> {
    extractor: K,
    missing: MissingKey,
}

impl<K> OnMissingKey<K> {
    pub(super) fn new(extractor: K, missing: MissingKey) -> Self {
        Self { extractor, missing }
    }
}

impl<K: KeyExtractor> KeyExtractor for OnMissingKey<K> {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.extractor.extract(parts)
    }

    fn origin(&self) -> KeyOrigin {
        self.extractor.origin()
    }

    fn missing_key(&self, _: &Parts) -> Option<MissingKey> {
        Some(self.missing)
    }

    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        self.extractor.check_denied(parts)
    }
}
