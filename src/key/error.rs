//! Errors of key extractors.

use std::{borrow::Cow, fmt};

use http::{HeaderName, HeaderValue};

use crate::error::ConfigError;

/// Why a request has no usable key.
///
/// # Examples
///
/// A custom extractor reports a missing key, so that the layer's [`MissingKey`](crate::MissingKey) applies:
///
/// ```
/// use http::request::Parts;
/// use tollgate::{Key, key::KeyError};
///
/// fn tenant(parts: &Parts) -> Result<Key, KeyError> {
///     let host = parts.uri.host().ok_or_else(|| KeyError::missing("a host"))?;
///     Ok(Key::from(host))
/// }
/// let (parts, ()) = http::Request::get("/").body(())?.into_parts();
/// assert!(tenant(&parts).unwrap_err().is_missing());
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyError(pub(crate) KeyFault);

/// What is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum KeyFault {
    /// The client's address is on the list of [`ClientIp::deny`](crate::ClientIp::deny). The response is 403.
    AddressDenied,
    /// The key is refused; made by [`KeyError::denied`]. The response is 403.
    Denied,
    /// The header contains fewer addresses than the extractor expects, for example fewer than 2 for
    /// [`ClientIp::x_forwarded_for(2)`](crate::ClientIp::x_forwarded_for).
    ChainTooShort(HeaderName),
    /// The header is present but cannot be parsed.
    MalformedHeader(HeaderName),
    /// The key of a custom extractor is missing; made by [`KeyError::missing`].
    Missing(Cow<'static, str>),
    /// The header that identifies the caller is missing or has no credential. The response is 401 with the challenge.
    MissingCredential {
        /// The header.
        header: HeaderName,
        /// The value of `WWW-Authenticate` (RFC 9110, section 11.6.1), which tells the client how to authenticate.
        challenge: HeaderValue,
    },
    /// The extractor has a mistake in its settings, see [`KeyExtractor::validate`](crate::KeyExtractor::validate). The
    /// response is 500.
    Misconfigured(ConfigError),
    /// The extension is missing. The response is 500, because the layer that inserts the extension must be outside the
    /// limit. The name of the type is for the log, and no client gets it.
    MissingExtension(&'static str),
    /// The header is missing.
    MissingHeader(HeaderName),
    /// The address of the connection's peer is not known. The message says how to provide the address.
    NoPeerAddress,
    /// The header contains a name in place of the client's address: `unknown`, `_hidden`.
    OpaqueClient(HeaderName),
    /// The header is present more than once.
    RepeatedHeader(HeaderName),
    /// The header contains more than 64 trusted addresses in a row.
    TooManyHops(HeaderName),
}

impl KeyError {
    /// Creates the error of a custom extractor for a missing key. `what` names the missing value.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::KeyError;
    ///
    /// assert_eq!(KeyError::missing("a session").to_string(), "a session is missing");
    /// ```
    pub fn missing(what: impl Into<Cow<'static, str>>) -> Self {
        Self(KeyFault::Missing(what.into()))
    }

    /// Creates the error of a custom extractor for a missing credential. The response is 401 with `challenge` as its
    /// `WWW-Authenticate` (RFC 9110, section 11.6.1), which tells the client how to authenticate.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{HeaderValue, header::COOKIE};
    /// use tollgate::key::KeyError;
    ///
    /// let error =
    ///     KeyError::missing_credential(COOKIE, HeaderValue::from_static("Session"));
    /// assert_eq!((error.cause(), error.is_missing()), ("missing_credential", true));
    /// ```
    pub fn missing_credential(header: HeaderName, challenge: HeaderValue) -> Self {
        Self(KeyFault::MissingCredential { header, challenge })
    }

    /// Creates the error of a custom extractor for a header that is there and cannot be parsed. The response is 400.
    pub fn malformed(header: HeaderName) -> Self {
        Self(KeyFault::MalformedHeader(header))
    }

    /// Creates the error of a custom extractor for a key that is refused, such as a revoked API key. The response is
    /// 403.
    ///
    /// A closure is not called on [exempt](crate::Route::exempt) routes. An extractor that refuses keys there too
    /// implements [`KeyExtractor::check_denied`](crate::KeyExtractor::check_denied). A plan that refuses its accounts
    /// is a [blocked](crate::Policy::blocked) policy. For addresses, use [`ClientIp::deny`](crate::ClientIp::deny).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use tollgate::{
    ///     ApiKey, Key, KeyExtractor,
    ///     key::{self, KeyError},
    /// };
    ///
    /// let (api_key, revoked) =
    ///     (ApiKey::bearer(), HashSet::from([ApiKey::bearer().key_of("sk-stolen")]));
    /// let but_the_revoked =
    ///     key::from_fn(move |parts| match api_key.extract(parts)? {
    ///         Some(key) if revoked.contains(&key) => Err(KeyError::denied()),
    ///         key => Ok(key),
    ///     });
    /// # fn assert_extractor(_: impl KeyExtractor) {}
    /// # assert_extractor(but_the_revoked);
    /// ```
    pub fn denied() -> Self {
        Self(KeyFault::Denied)
    }

    /// The cause in one word, for metrics, logs and the application's own responses.
    ///
    /// | word | what is wrong | the response |
    /// | --- | --- | --- |
    /// | `address_denied` | the client's address is on the list of [`ClientIp::deny`](crate::ClientIp::deny) | 403 |
    /// | `denied` | a custom extractor refuses the key | 403 |
    /// | `chain_too_short` | the header contains fewer addresses than the extractor expects | 400 |
    /// | `malformed_header` | the header cannot be parsed | 400 |
    /// | `misconfigured` | the extractor has a mistake in its settings | 500 |
    /// | `missing` | the key of a custom extractor is missing | 400 |
    /// | `missing_credential` | the header that identifies the caller is missing or has no credential | 401 |
    /// | `missing_extension` | the layer that inserts the extension is not outside the limit | 500 |
    /// | `missing_header` | the header is missing | 400 |
    /// | `no_peer` | the address of the connection's peer is not known; the message says how to provide it | 400 |
    /// | `opaque_client` | the header contains a name in place of the address: `unknown`, `_hidden` | 400 |
    /// | `repeated_header` | the header is present more than once | 400 |
    /// | `too_many_hops` | the header contains more than 64 trusted addresses in a row | 400 |
    pub fn cause(&self) -> &'static str {
        match self.0 {
            KeyFault::AddressDenied => "address_denied",
            KeyFault::Denied => "denied",
            KeyFault::ChainTooShort(_) => "chain_too_short",
            KeyFault::MalformedHeader(_) => "malformed_header",
            KeyFault::Misconfigured(_) => "misconfigured",
            KeyFault::Missing(_) => "missing",
            KeyFault::MissingCredential { .. } => "missing_credential",
            KeyFault::MissingExtension(_) => "missing_extension",
            KeyFault::MissingHeader(_) => "missing_header",
            KeyFault::NoPeerAddress => "no_peer",
            KeyFault::OpaqueClient(_) => "opaque_client",
            KeyFault::RepeatedHeader(_) => "repeated_header",
            KeyFault::TooManyHops(_) => "too_many_hops",
        }
    }

    /// Whether the request has no key, so that [`MissingKey`](crate::MissingKey) applies. `false` if the key is present
    /// but cannot be used.
    pub fn is_missing(&self) -> bool {
        match &self.0 {
            KeyFault::Missing(_)
            | KeyFault::MissingCredential { .. }
            | KeyFault::MissingExtension(_)
            | KeyFault::MissingHeader(_)
            | KeyFault::NoPeerAddress => true,
            KeyFault::AddressDenied
            | KeyFault::Denied
            | KeyFault::ChainTooShort(_)
            | KeyFault::MalformedHeader(_)
            | KeyFault::Misconfigured(_)
            | KeyFault::OpaqueClient(_)
            | KeyFault::RepeatedHeader(_)
            | KeyFault::TooManyHops(_) => false,
        }
    }

    /// Turns the error of a missing key into `Ok`, because a request that no policy limits needs no key.
    pub(crate) fn unless_missing(self) -> Result<(), Self> {
        if self.is_missing() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            KeyFault::AddressDenied => f.write_str("requests from this address are refused"),
            KeyFault::Denied => f.write_str("requests with this key are refused"),
            KeyFault::ChainTooShort(name) => write!(f, "header {name} contains too few addresses"),
            KeyFault::MalformedHeader(name) => write!(f, "header {name} is malformed"),
            KeyFault::Misconfigured(mistake) => mistake.fmt(f),
            KeyFault::Missing(what) => write!(f, "{what} is missing"),
            KeyFault::MissingCredential { header, .. } => write!(f, "header {header} has no credential"),
            KeyFault::MissingExtension(name) => write!(
                f,
                "extension {name} is missing; the layer that inserts it must run before (outside) the rate limit"
            ),
            KeyFault::MissingHeader(name) => write!(f, "header {name} is missing"),
            KeyFault::NoPeerAddress => f.write_str(
                "the peer address is not known; serve the router with \
                 `into_make_service_with_connect_info::<SocketAddr>()`, or insert a `SocketAddr` or `IpAddr` \
                 extension into each request",
            ),
            KeyFault::OpaqueClient(name) => write!(f, "header {name} does not contain the client's address"),
            KeyFault::RepeatedHeader(name) => write!(f, "header {name} is present more than once"),
            KeyFault::TooManyHops(name) => write!(f, "header {name} contains too many addresses"),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<ConfigError> for KeyError {
    fn from(mistake: ConfigError) -> Self {
        Self(KeyFault::Misconfigured(mistake))
    }
}
