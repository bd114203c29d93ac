//! Requests without a usable key.

use std::{borrow::Cow, fmt};

use http::HeaderName;

/// A request without a usable key.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeyError {
    /// The client's address is one of those that are refused, see [`ClientIp::deny`](crate::ClientIp::deny). The answer is 403.
    AddressDenied,
    /// The header names fewer proxies than the request must have passed.
    ChainTooShort(HeaderName),
    /// The header is there but cannot be read.
    MalformedHeader(HeaderName),
    /// Something else that the key is made of is not there.
    Missing(Cow<'static, str>),
    /// The extension is not there. Is the layer that inserts it outside this one?
    MissingExtension(&'static str),
    /// The header is not there.
    MissingHeader(HeaderName),
    /// The connection's address is not known. The message says how to provide it.
    NoPeerAddress,
    /// The header has a name in the place of the client's address: `unknown`, `_hidden`.
    OpaqueClient(HeaderName),
    /// The header is there more than once.
    RepeatedHeader(HeaderName),
    /// The header names more proxies in a row than there can be.
    TooManyHops(HeaderName),
}

impl KeyError {
    /// Says that `what` is missing.
    pub fn missing(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Missing(what.into())
    }

    /// Whether the request simply has no key, which [`MissingKey`](crate::MissingKey) is about.
    ///
    /// Not so if it has something that cannot be used.
    pub fn is_missing(&self) -> bool {
        match self {
            Self::Missing(_) | Self::MissingExtension(_) | Self::MissingHeader(_) | Self::NoPeerAddress => true,
            Self::AddressDenied
            | Self::ChainTooShort(_)
            | Self::MalformedHeader(_)
            | Self::OpaqueClient(_)
            | Self::RepeatedHeader(_)
            | Self::TooManyHops(_) => false,
        }
    }

    /// A missing key is no error where nothing limits the request.
    pub(crate) fn unless_missing(self) -> Result<(), Self> {
        if self.is_missing() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressDenied => f.write_str("requests from this address are refused"),
            Self::ChainTooShort(name) => write!(f, "header {name} names too few proxies"),
            Self::MalformedHeader(name) => write!(f, "header {name} cannot be read"),
            Self::Missing(what) => write!(f, "{what} is missing"),
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
            Self::OpaqueClient(name) => write!(f, "header {name} does not tell the client's address"),
            Self::RepeatedHeader(name) => write!(f, "header {name} is there more than once"),
            Self::TooManyHops(name) => write!(f, "header {name} names too many proxies"),
        }
    }
}

impl std::error::Error for KeyError {}
