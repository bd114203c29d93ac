//! The trait of key extractors, and the wrapper that sets what a missing key means.

use http::request::Parts;

use super::{error::KeyError, missing::MissingKey, subject::Key};

/// Finds the [`Key`] in a request.
///
/// Implemented by the extractors of this crate, by closures, by tuples (one compound key of all parts) and by
/// `Box<dyn KeyExtractor>`.
///
/// Each key has its own budget. A key made of a value that the client can write at will, such as the path, the query or
/// an unchecked header, gives the client a new budget for each spelling. Take the key from what the server knows: the
/// address, an extension that authentication has inserted, the matched route
/// ([`MatchedPathKey`](crate::MatchedPathKey)).
///
/// **`None` exempts the request**: the policies of this key do not limit it. Return `None` for requests that should
/// pass without a limit, never because the key was not found: with `parts.headers.get("x-user").map(..)`, a client that
/// omits the header has no limit. Return [`KeyError::missing`] for a missing key.
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
/// // A missing key is an error; the layer's `MissingKey` decides what the request gets.
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
///
/// A type of your own, whose name can be written in the type of a layer, `RateLimitLayer<Account>`:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Key, KeyExtractor, key::KeyError};
///
/// /// Inserted by authentication.
/// #[derive(Clone)]
/// struct AccountId(u64);
///
/// struct Account;
///
/// impl KeyExtractor for Account {
///     fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
///         let account: &AccountId = parts.extensions.get().ok_or_else(|| KeyError::missing("an account"))?;
///         Ok(Some(Key::from(account.0)))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find a key in a request",
    label = "expected `PeerIp::default()` or the like, a tuple of them, or a closure `Fn(&Parts) -> impl IntoExtraction`",
    note = "if this is a `Result`, add `?`: `HeaderKey::new(\"x-tenant\")?`",
    note = "`ExtensionKey<T>` needs `for<'a> &'a T: Into<Key>`: write `impl From<&T> for Key`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Finds the key; `None` if the request is **exempt** from the policies of this key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the key is missing or cannot be used.
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError>;

    /// Where the keys come from, for [warnings](crate::observe::Warning) about keys that do not tell clients apart.
    /// Called in the first requests only. Defaults to [`KeyOrigin::Other`], which causes no warnings.
    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Other
    }

    /// What this request gets if its key is [missing](KeyError::is_missing). Defaults to `None`: the setting of the
    /// layer applies ([`RateLimitLayer::on_missing_key`](crate::RateLimitLayer::on_missing_key)).
    ///
    /// Called only after [`extract`](Self::extract) has returned such an error. To set the value for an extractor, wrap
    /// it with [`on_missing_key`](Self::on_missing_key).
    fn missing_key(&self, parts: &Parts) -> Option<MissingKey> {
        let _ = parts;
        None
    }

    /// Refuses a request that no policy limits, because its route or its key is exempt.
    ///
    /// Defaults to `Ok`, which lets the request pass. [`ClientIp`](crate::ClientIp) refuses the addresses of
    /// [`ClientIp::deny`](crate::ClientIp::deny), and, if there are any, requests whose address it cannot read. A
    /// closure has the default, also a closure that calls a `ClientIp`.
    ///
    /// # Errors
    ///
    /// Any error refuses the request, except the error of a [missing key](KeyError::is_missing): requests that no
    /// policy limits, such as health checks, need no key.
    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        let _ = parts;
        Ok(())
    }

    /// Sets what a request without this key gets, in place of the setting of the
    /// [layer](crate::RateLimitLayer::on_missing_key).
    ///
    /// In a tuple, the first part with a missing key decides for the compound key.
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

/// Where the keys of a [`KeyExtractor`] come from.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum KeyOrigin {
    /// The client's address, from a header of a trusted proxy.
    Forwarded,
    /// Anything else. One key for all requests may be intended.
    #[default]
    Other,
    /// The address of the connection's peer.
    Peer,
}

/// An extractor with its own [`MissingKey`] setting; made by [`KeyExtractor::on_missing_key`].
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
