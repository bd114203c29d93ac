//! The trait of key extractors, which closures, tuples and boxes implement, and the setting for requests without a key.

use http::request::Parts;

use super::{error::KeyError, subject::Key};
use crate::error::{ConfigError, in_words};

/// Finds the [`Key`] in a request.
///
/// Implemented by the extractors of this crate, by closures, by tuples of extractors, which return one compound key,
/// and by `Box<dyn KeyExtractor>`. A closure over `&Parts` returns a [`Key`] or a `String`, an `Option` of either, or a
/// `Result` of these with a [`KeyError`]; in [`from_fn`] its argument needs no type.
///
/// Each key has its own budget. A key made of a value that the client can write at will, such as the path, the query or
/// an unchecked header, gives the client a new budget for each spelling. Take the key from what the server knows: the
/// address, an extension that authentication has inserted, the matched route
/// ([`MatchedPathKey`](crate::MatchedPathKey)).
///
/// **`None` exempts the request**: the policies of this key do not limit it. Return `None` for requests that should
/// pass without a limit, never because the key was not found: with `parts.headers.get("x-user").map(..)`, a client that
/// omits the header has no limit. Return [`KeyError::missing`] for a missing key. Observers receive each exempt request
/// (the [event](crate::observe::Event) `exemption`).
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
/// assert_extractor(|parts: &Parts| {
///     Key::from(if parts.method == Method::GET { "reads" } else { "writes" })
/// });
/// // A missing key is an error. The layer's `MissingKey` decides what the
/// // request gets.
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
/// A struct as an extractor, unlike a closure, has a name for the type of a layer: `RateLimitLayer<Account>`.
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
///         let account: &AccountId = parts
///             .extensions
///             .get()
///             .ok_or_else(|| KeyError::missing("an account"))?;
///         Ok(Some(Key::from(account.0)))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not find a key in a request",
    label = "expected `PeerIp::new()` or the like, a tuple of them, or a closure `Fn(&Parts) -> Key` (or \
             an `Option`, or a `Result<_, KeyError>`)",
    note = "if this is a `Result`, add `?`: `HeaderKey::new(\"x-tenant\")?`",
    note = "`ExtensionKey<T>` needs `for<'a> &'a T: Into<Key>`: write `impl From<&T> for Key`"
)]
pub trait KeyExtractor: Send + Sync + 'static {
    /// Finds the key in the request with the head `parts`. Returns `None` if the request is **exempt** from the
    /// policies of this key.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the key is missing or cannot be used.
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError>;

    /// Returns the mistake in the settings of the extractor, which is a mistake of each
    /// [layer](crate::RateLimitLayer#mistakes) that has it. Defaults to none.
    ///
    /// The extractors of this crate keep the first mistake of their setters for it. Their [`extract`](Self::extract)
    /// returns it as a [`KeyError`] with the cause `misconfigured`, so a closure that calls them refuses each request
    /// too.
    ///
    /// # Errors
    ///
    /// [`ConfigError`]: what is wrong, and what to write instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ClientIp, KeyExtractor};
    ///
    /// assert!(ClientIp::peer().with_ipv6_prefix(56).validate().is_ok());
    /// assert!(ClientIp::peer().with_ipv6_prefix(16).validate().is_err());
    /// ```
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Returns where the keys come from, for [warnings](crate::observe::Warning) about keys that do not distinguish
    /// clients. Called in the first requests only. Defaults to [`KeyOrigin::Other`], which causes no warnings.
    #[doc(hidden)]
    fn origin(&self) -> KeyOrigin {
        KeyOrigin::Other
    }

    /// Decides whether to refuse a request that no policy limits, because its route or its key is exempt.
    ///
    /// Defaults to `Ok`, which lets the request pass. [`ClientIp`](crate::ClientIp) refuses the addresses of
    /// [`ClientIp::deny`](crate::ClientIp::deny) and, if that list is not empty, requests whose address cannot be read.
    /// A closure has the default, even if it calls a `ClientIp`.
    ///
    /// # Errors
    ///
    /// Any error refuses the request, except the error of a [missing key](KeyError::is_missing): requests that no
    /// policy limits, such as health checks, need no key.
    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        let _ = parts;
        Ok(())
    }
}

/// Where the keys of a [`KeyExtractor`] come from. Only the extractors of addresses say it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum KeyOrigin {
    /// The client's address, from a header of a trusted proxy.
    Forwarded,
    /// Anything else. All requests may have one key by intention, so the layer does not warn.
    #[default]
    Other,
    /// The address of the connection's peer.
    Peer,
}

/// What happens to a request without a key.
///
/// A request whose key is present but cannot be used is always refused; see
/// [`KeyError::is_missing`].
///
/// As text: `reject`, `exempt`, `share-one-key`.
///
/// # Examples
///
/// Requests without a tenant share one budget:
///
/// ```
/// use tollgate::{
///     HeaderKey, Limiter, MemoryStore, MissingKey, Policy, RateLimitLayer,
/// };
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_tenant = Policy::per_minute("per-tenant", 600)?;
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     per_tenant,
///     HeaderKey::new("x-tenant")?,
/// )
/// .on_missing_key(MissingKey::ShareOneKey);
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
    /// [event](crate::observe::Event) `exemption`.
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

/// The return types of a closure that is a [`KeyExtractor`]. Not exported: only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    label = "this closure has to return a `Key`, a `String`, an `Option` of either, or a `Result<_, KeyError>` of \
             these",
    note = "`Key::from(..)` takes text, bytes, addresses and integers; other errors become a `KeyError` by \
            `.map_err(|_| KeyError::missing(\"..\"))`"
)]
pub trait IntoExtraction {
    /// Converts the value into the return type of [`KeyExtractor::extract`].
    ///
    /// # Errors
    ///
    /// The error of the value, if the value is a `Result` with an error.
    fn into_extraction(self) -> Result<Option<Key>, KeyError>;
}

impl IntoExtraction for Key {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        Ok(Some(self))
    }
}

impl IntoExtraction for String {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.into()))
    }
}

impl<T: IntoExtraction> IntoExtraction for Option<T> {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        self.map_or(Ok(None), T::into_extraction)
    }
}

impl<T: IntoExtraction> IntoExtraction for Result<T, KeyError> {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        self?.into_extraction()
    }
}

impl<F, T> KeyExtractor for F
where
    F: Fn(&Parts) -> T + Send + Sync + 'static,
    T: IntoExtraction,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self(parts).into_extraction()
    }
}

/// Creates a key extractor that calls `f`: a closure whose argument needs no type.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, key::{self, KeyError}};
///
/// let tenant = key::from_fn(|parts| {
///     let host = parts.uri.host().ok_or_else(|| KeyError::missing("a host"))?;
///     Ok(Key::from(host))
/// });
/// # fn assert_extractor(_: impl tollgate::KeyExtractor) {}
/// # assert_extractor(tenant);
/// ```
pub fn from_fn<T: IntoExtraction>(f: impl Fn(&Parts) -> T + Send + Sync + 'static) -> impl KeyExtractor {
    f
}

impl KeyExtractor for Box<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        (**self).extract(parts)
    }

    fn origin(&self) -> KeyOrigin {
        (**self).origin()
    }

    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        (**self).check_denied(parts)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }
}

macro_rules! tuple {
    ($($part:ident $key:ident),+) => {
        /// Extracts all keys and joins them into one compound key. If one extractor exempts the request, the request is
        /// exempt.
        ///
        /// For a reset, join the keys of the parts in their order: `Key::join([a.key_of(..), b.key_of(..)])`.
        impl<$($part: KeyExtractor),+> KeyExtractor for ($($part,)+) {
            fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
                let ($($key,)+) = self;
                $(let Some($key) = $key.extract(parts)? else { return Ok(None) };)+
                Ok(Some(Key::join([$($key),+])))
            }

            /// Returns the mistake of the first extractor that has one.
            fn validate(&self) -> Result<(), ConfigError> {
                let ($($key,)+) = self;
                $($key.validate()?;)+
                Ok(())
            }

            /// Returns the first origin that is not [`KeyOrigin::Other`].
            fn origin(&self) -> KeyOrigin {
                let ($($key,)+) = self;
                let origins = [$($key.origin()),+];
                origins.into_iter().find(|&origin| origin != KeyOrigin::Other).unwrap_or_default()
            }

            /// Refuses the request if one of the extractors refuses it.
            fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
                let ($($key,)+) = self;
                $($key.check_denied(parts).or_else(KeyError::unless_missing)?;)+
                Ok(())
            }
        }
    };
}

tuple!(A a, B b);
tuple!(A a, B b, C c);
tuple!(A a, B b, C c, D d);
