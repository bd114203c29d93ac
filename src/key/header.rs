//! Keys from headers: a tenant's name, a caller's API key.

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

use super::{error::KeyError, extractor::KeyExtractor, subject::Key};
use crate::error::ConfigError;

/// Charges the value of a header.
///
/// The value is believed as it is: use it behind something that sets or checks the header, or anybody can spend from
/// anybody's budget. A repeated header is an error, because it is not clear whom to charge. Blanks around the value are
/// not part of it (RFC 9110, section 5.5).
///
/// A header that changes while its sender stays the same is the wrong key: each new value is a new budget.
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// Creates the extractor.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHeaderName`] if `name` cannot be a header's, [`ConfigError::AuthorizationHeader`] if it is
    /// `authorization`, whose value is a secret and has several spellings.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        key_header(name).map(Self)
    }

    /// The key that requests with this value are charged to, to [reset](crate::Limiter::reset) or to peek at it.
    pub fn key_of(&self, value: impl AsRef<[u8]>) -> Key {
        Key::new(without_blanks(value.as_ref()))
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        single(&parts.headers, &self.0).map(|value| Some(self.key_of(value)))
    }
}

/// Charges the caller's API key, of which only a hash is kept.
///
/// Put the layer **behind** authentication: before it, every made-up key is a fresh budget. A limit by address, in
/// front, holds for clients that try keys.
///
/// Tokens that are refreshed are the wrong key, because each refresh is a new budget: access tokens of OAuth, session
/// tokens, JWTs. Charge the account that authentication has found, by an [`ExtensionKey`](crate::ExtensionKey). The
/// same holds if one account may have many API keys.
///
/// Blanks around the value are not part of it (RFC 9110, section 5.5).
#[derive(Clone, Debug)]
pub struct ApiKey(Place);

#[derive(Clone, Debug)]
enum Place {
    Bearer,
    Header(HeaderName),
}

impl ApiKey {
    /// Reads the token of `Authorization: Bearer …` (RFC 6750, section 2.1).
    pub fn bearer() -> Self {
        Self(Place::Bearer)
    }

    /// Reads the header `name`, `x-api-key` for example.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHeaderName`] if `name` cannot be a header's, [`ConfigError::AuthorizationHeader`] if it is
    /// `authorization`: `Bearer a`, `bearer a` and `Bearer  a` are one token, which [`bearer`](Self::bearer) reads.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        key_header(name).map(Place::Header).map(Self)
    }

    /// The key that requests with this token are charged to, to [reset](crate::Limiter::reset) or to peek at it.
    ///
    /// For [`bearer`](Self::bearer) it is the token alone, without its scheme.
    pub fn key_of(&self, token: impl AsRef<[u8]>) -> Key {
        Key::hashed(without_blanks(token.as_ref()))
    }
}

impl KeyExtractor for ApiKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let secret = match &self.0 {
            Place::Bearer => bearer(single(&parts.headers, &AUTHORIZATION)?)?,
            Place::Header(name) => single(&parts.headers, name)?,
        };
        Ok(Some(self.key_of(secret)))
    }
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| ConfigError::InvalidHeaderName { name: name.to_owned() })
}

/// The name of a header whose whole value is a key.
fn key_header(name: &str) -> Result<HeaderName, ConfigError> {
    let header = header_name(name)?;
    if header == AUTHORIZATION {
        return Err(ConfigError::AuthorizationHeader { name: name.to_owned() });
    }
    Ok(header)
}

/// The header's one value; an empty one counts as missing.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], KeyError> {
    let value = single_line(headers, name)?.map(|value| without_blanks(value.as_bytes()));
    value.filter(|value| !value.is_empty()).ok_or_else(|| KeyError::MissingHeader(name.clone()))
}

/// Without the blanks and tabs around a value. HTTP/1.1 servers take them off, HTTP/2 servers do not.
fn without_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The header's one line, if there is one.
pub(super) fn single_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, KeyError> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (_, Some(_)) => Err(KeyError::RepeatedHeader(name.clone())),
        (line, None) => Ok(line),
    }
}

/// Another scheme is no API key at all: missing, not malformed.
fn bearer(value: &[u8]) -> Result<&[u8], KeyError> {
    let missing = || KeyError::MissingHeader(AUTHORIZATION);
    let (scheme, token) = value.split_at_checked("bearer ".len()).ok_or_else(missing)?;
    let token = without_blanks(token);
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(missing());
    }
    Ok(token)
}
