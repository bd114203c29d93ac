//! The trait of key extractors, and the wrapper that sets what a missing key means.

use http::request::Parts;

use super::{error::KeyError, missing::MissingKey, subject::Key};

/// Finds the [`Key`] in a request.
///
/// Implemented by the extractors of this crate, by closures, by tuples (one compound key of all parts) and by
/// `Box<dyn KeyExtractor>`.
///
/// Each key is a budget of its own. A key made of something that the client writes as it likes, such as the path, the
/// query or a header that is not checked, gives the client a fresh budget for each spelling. Take the key from what the
/// server knows: the address, an extension that authentication has inserted, the route that was matched
/// ([`MatchedPathKey`](crate::MatchedPathKey)).
///
/// **`None` exempts the request**: nothing that belongs to this key limits it. Return it for requests that are to pass
/// without a limit, never for those whose key you did not find: `parts.headers.get("x-user").map(..)` would let
/// everyone past the limit who leaves the header out. A key that should be there and is not is [`KeyError::missing`].
///
/// # Examples
///
/// ```
/// use http::{Method, request::Parts};
/// use tollgate::{Key, KeyExtractor, key::KeyError};
///
/// /// Inserted by authentication.
/// #[derive(Clone)]
/// struct Account {
///     id: u64,
///     is_staff: bool,
/// }
///
/// fn assert_extractor(_: impl KeyExtractor) {}
///
/// // Always a key: all reads share one budget, all writes another.
/// assert_extractor(|parts: &Parts| Key::from(if parts.method == Method::GET { "reads" } else { "writes" }));
/// // No key is an error, answered as the layer says.
/// assert_extractor(|parts: &Parts| match parts.extensions.get::<Account>() {
///     Some(account) => Ok(Key::from(account.id)),
///     None => Err(KeyError::missing("an account")),
/// });
/// // `None`: the request is exempt. Requests without an account are not.
/// assert_extractor(|parts: &Parts| match parts.extensions.get::<Account>() {
///     Some(account) if account.is_staff => None,
///     Some(account) => Some(Key::from(account.id)),
///     None => Some(Key::from("anonymous")),
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find a key in a request",
    label = "expected `PeerIp::default()` or the like, a tuple of them, or a closure `Fn(&Parts) -> impl IntoExtraction`",
    note = "if this is a `Result`, add `?`: `HeaderKey::new(\"x-tenant\")?`",
    note = "`ExtensionKey<T>` needs `for<'a> &'a T: Into<Key>`: write `impl From<&T> for Key`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Finds the key, or `None` if the request is **exempt**: nothing that belongs to this key limits it.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the request should have a key but has none that can be used.
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError>;

    /// Where keys come from, so that an observer can be [warned](crate::observe::Warning) if they do not tell clients
    /// apart. Asked in the first requests only. Defaults to [`KeyOrigin::Other`], of which nothing is expected.
    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Other
    }

    /// What this request gets, whose key is [missing](KeyError::is_missing). Defaults to `None`, which leaves it to the
    /// layer ([`RateLimitLayer::on_missing_key`](crate::RateLimitLayer::on_missing_key)).
    ///
    /// Asked only after [`extract`](Self::extract) has returned such an error. To set it, wrap the extractor by
    /// [`on_missing_key`](Self::on_missing_key).
    fn missing_key(&self, parts: &Parts) -> Option<MissingKey> {
        let _ = parts;
        None
    }

    /// Refuses a request that nothing limits, because its route or its key is exempt.
    ///
    /// Defaults to letting it pass. [`ClientIp`](crate::ClientIp) refuses the addresses of
    /// [`ClientIp::deny`](crate::ClientIp::deny), and, if there are any, requests whose address it cannot read. A
    /// closure has the default, also a closure that calls a `ClientIp`.
    ///
    /// # Errors
    ///
    /// Any error refuses the request, except one that [says that the key is missing](KeyError::is_missing): requests
    /// that nothing limits, such as health checks, need no key.
    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        let _ = parts;
        Ok(())
    }

    /// Sets what a request without this key gets, in place of the layer's
    /// [own setting](crate::RateLimitLayer::on_missing_key).
    ///
    /// In a tuple, the first part whose key is missing decides for the whole key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HeaderKey, KeyExtractor, MissingKey};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let by_tenant = HeaderKey::new("x-tenant")?.on_missing_key(MissingKey::ShareOneBucket);
    /// # let _ = by_tenant;
    /// # Ok(())
    /// # }
    /// ```
    fn on_missing_key(self, missing: MissingKey) -> OnMissingKey<Self>
    where
        Self: Sized,
    {
        OnMissingKey { extractor: self, missing }
    }
}

/// Where a [`KeyExtractor`] has its keys from.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum KeyOrigin {
    /// The client's address, as a trusted proxy has passed it on.
    Forwarded,
    /// Anything else: one key for all requests may be right.
    #[default]
    Other,
    /// The address of the connection's other end.
    Peer,
}

/// An extractor that says what a request without its key gets; made by [`KeyExtractor::on_missing_key`].
#[derive(Clone, Copy, Debug)]
pub struct OnMissingKey<K> {
    extractor: K,
    missing: MissingKey,
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
