//! Challenges: how a client that is refused for a missing credential can authenticate.

use http::{HeaderName, HeaderValue};

use crate::error::ConfigError;

/// The challenge of bearer tokens (RFC 6750, section 3), without a realm, because only the service knows its own.
pub(super) const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// The challenge of an API key in a header.
pub(super) fn of_header(name: &HeaderName) -> HeaderValue {
    HeaderValue::try_from(format!("ApiKey header=\"{name}\"")).expect("the name of a header is printable ASCII")
}

/// Parses a challenge as far as a mistake is likely: a scheme, then its parameters after a blank.
pub(super) fn parse(challenge: &str) -> Result<HeaderValue, ConfigError> {
    let scheme = challenge.split(' ').next().unwrap_or_default();
    // The names of schemes and of headers are both tokens (RFC 9110, section 5.6.2).
    let is_token = HeaderName::from_bytes(scheme.as_bytes()).is_ok();
    let is_printable = challenge.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let value = HeaderValue::from_str(challenge).ok().filter(|_| is_token && is_printable);
    value.ok_or_else(|| {
        ConfigError::new(format!(
            "{challenge:?} is no challenge; write the name of a scheme, then its parameters after a blank, such as \
             Bearer realm=\"api\""
        ))
    })
}
