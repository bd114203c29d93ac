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
#[non_exhaustive]
pub enum KeyError {
    /// The client's address is on the list of [`ClientIp::deny`](crate::ClientIp::deny). The response is 403.
    AddressDenied,
    /// The header contains fewer addresses than the extractor expects, for example fewer than 2 for
    /// [`ClientIp::x_forwarded_for_hops(2)`](crate::ClientIp::x_forwarded_for_hops).
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
        Self::Missing(what.into())
    }

    /// Whether the request has no key, so that [`MissingKey`](crate::MissingKey) applies. `false` if the key is present
    /// but cannot be used.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Missing(_)
            | Self::MissingCredential { .. }
            | Self::MissingExtension(_)
            | Self::MissingHeader(_)
            | Self::NoPeerAddress => true,
            Self::AddressDenied
            | Self::ChainTooShort(_)
            | Self::MalformedHeader(_)
            | Self::Misconfigured(_)
            | Self::OpaqueClient(_)
            | Self::RepeatedHeader(_)
            | Self::TooManyHops(_) => false,
        }
    }

    /// Turns the error of a missing key into `Ok`, because a request that no policy limits needs no key.
    pub(crate) fn unless_missing(self) -> Result<(), Self> {
        if self.is_missing() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressDenied => f.write_str("requests from this address are refused"),
            Self::ChainTooShort(name) => write!(f, "header {name} contains too few addresses"),
            Self::MalformedHeader(name) => write!(f, "header {name} is malformed"),
            Self::Misconfigured(mistake) => mistake.fmt(f),
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::MissingCredential { header, .. } => write!(f, "header {header} has no credential"),
            Self::MissingExtension(name) => write!(
                f,
                "extension {name} is missing; the layer that inserts it must run before (outside) the rate limit"
            ),
            Self::MissingHeader(name) => write!(f, "header {name} is missing"),
            Self::NoPeerAddress => f.write_str(
                "the peer address is not known; serve the router with \
                 `into_make_service_with_connect_info::<SocketAddr>()`, or insert a `SocketAddr` or `IpAddr` \
                 extension into each request",
            ),
            Self::OpaqueClient(name) => write!(f, "header {name} does not contain the client's address"),
            Self::RepeatedHeader(name) => write!(f, "header {name} is present more than once"),
            Self::TooManyHops(name) => write!(f, "header {name} contains too many addresses"),
        }
    }
}

impl std::error::Error for KeyError {}

impl From<ConfigError> for KeyError {
    fn from(mistake: ConfigError) -> Self {
        Self::Misconfigured(mistake)
    }
}
