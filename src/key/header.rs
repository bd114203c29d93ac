//! Keys from headers: a tenant's name, a caller's API key.

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

use super::{Key, KeyError, KeyExtractor};
use crate::error::ConfigError;

/// Charges the value of a header.
///
/// The value is believed as it is: use it behind something that sets or checks the header, or anybody can spend from
/// anybody's budget. A repeated header is an error, for it is not clear whom to charge.
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// Creates the extractor.
    ///
    /// # Errors
    ///
    /// [`ConfigError::InvalidHeaderName`] if `name` cannot be a header's.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        header_name(name).map(Self)
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        single(&parts.headers, &self.0).map(|value| Some(Key::new(value)))
    }
}

/// Charges the caller's API key, of which only a hash is kept.
///
/// Put the layer **behind** authentication: before it, every key that somebody makes up is a fresh budget. A limit by
/// address, in front, is for those who try.
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
    /// [`ConfigError::InvalidHeaderName`] if `name` cannot be a header's.
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        header_name(name).map(Place::Header).map(Self)
    }
}

impl KeyExtractor for ApiKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let secret = match &self.0 {
            Place::Bearer => bearer(single(&parts.headers, &AUTHORIZATION)?)?,
            Place::Header(name) => single(&parts.headers, name)?.as_bytes(),
        };
        Ok(Some(Key::hashed(secret)))
    }
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| ConfigError::InvalidHeaderName { name: name.to_owned() })
}

/// The header's one value; an empty one counts as missing.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a HeaderValue, KeyError> {
    let value = single_line(headers, name)?.filter(|value| !value.is_empty());
    value.ok_or_else(|| KeyError::MissingHeader(name.clone()))
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
fn bearer(value: &HeaderValue) -> Result<&[u8], KeyError> {
    let missing = || KeyError::MissingHeader(AUTHORIZATION);
    let (scheme, token) = value.as_bytes().split_at_checked("bearer ".len()).ok_or_else(missing)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(missing());
    }
    Ok(token)
}
