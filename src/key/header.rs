//! Extractors that read a header: a tenant's name, a caller's API key; and how a client that is refused for a missing
//! credential can authenticate.

use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION, request::Parts};

use super::error::{KeyError, KeyFault};
use super::{extractor::KeyExtractor, subject::Key};
use crate::error::{ConfigError, FirstMistake};

/// Charges the value of a header.
///
/// The value is trusted: use this extractor behind a proxy or a layer that sets or checks the header. Otherwise any
/// client can spend from the budget of any other. A repeated header is an error, because it is not clear which value to
/// charge. Blanks around the value are ignored (RFC 9110, section 5.5).
///
/// Do not use a header whose value changes between requests of one sender: each new value has a new budget.
///
/// # Examples
///
/// A gateway sets `x-tenant` on every request:
///
/// ```
/// use tollgate::{HeaderKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_tenant = Policy::per_minute("per-tenant", 600)?;
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     per_tenant,
///     HeaderKey::new("x-tenant")?,
/// );
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// Creates the extractor of the header `name`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `name` is not a valid header name, or if `name` is `authorization`, whose value is a
    /// credential and has several spellings.
    pub fn new(name: &str) -> Result<Self, ConfigError> {
        key_header(name).map(Self)
    }

    /// Returns the key that requests with this header value are charged to, for
    /// [`Limiter::reset`](crate::Limiter::reset) and [`Limiter::peek`](crate::Limiter::peek).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HeaderKey, Limiter, Policy};
    ///
    /// # async fn lift(limiter: Limiter, per_tenant: Policy) -> Result<(), Box<dyn std::error::Error>> {
    /// let key = HeaderKey::new("x-tenant")?.key_of("acme");
    /// limiter.reset(key, &per_tenant).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of(&self, value: impl AsRef<[u8]>) -> Key {
        Key::new(without_blanks(value.as_ref()))
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        single(&parts.headers, &self.0).map(|value| Some(self.key_of(value)))
    }
}

/// Charges the caller's API key, and stores only a hash of the key.
///
/// Put the layer **inside** authentication, because outside authentication each invented key has a new budget. Add a
/// limit by address outside authentication for clients that guess keys.
///
/// Do not charge tokens that are refreshed, such as OAuth access tokens, session tokens and JWTs, because each new
/// token has a new budget. Charge the account that authentication has found, with an
/// [`ExtensionKey`](crate::ExtensionKey). Do the same if one account may have many API keys.
///
/// Blanks around the value are ignored (RFC 9110, section 5.5).
///
/// A request without the key is refused with 401 and a [challenge](Self::with_challenge), unless the layer's
/// [`MissingKey`](crate::MissingKey) lets it pass. gRPC clients get `UNAUTHENTICATED`.
///
/// # Examples
///
/// ```
/// use tollgate::{ApiKey, Limiter, MemoryStore, Policy, RateLimitLayer};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let per_key = Policy::per_minute("per-key", 600)?;
/// let limit = RateLimitLayer::new(
///     Limiter::new(MemoryStore::new()),
///     per_key,
///     ApiKey::bearer(),
/// );
/// # let _ = limit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ApiKey {
    location: Location,
    /// The value of `WWW-Authenticate` for a request without the key; `None` if the key is no credential.
    challenge: Option<HeaderValue>,
    mistake: FirstMistake,
}

#[derive(Clone, Debug)]
enum Location {
    Bearer,
    Header(HeaderName),
}

impl ApiKey {
    /// Reads the token of `Authorization: Bearer …` (RFC 6750, section 2.1).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{ApiKey, Key};
    ///
    /// assert_eq!(ApiKey::bearer().key_of("abc"), Key::hashed("abc"));
    /// ```
    pub fn bearer() -> Self {
        Self::new(Location::Bearer, BEARER)
    }

    /// Reads the header `name`, for example `x-api-key`.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if `name` is not a valid header name, or if `name` is `authorization`. Use
    /// [`bearer`](Self::bearer) for that header, because `Bearer a`, `bearer a` and `Bearer  a` are one token.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ApiKey;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let key = ApiKey::header("x-api-key")?;
    /// # let _ = key;
    /// # Ok(())
    /// # }
    /// ```
    pub fn header(name: &str) -> Result<Self, ConfigError> {
        let header = key_header(name)?;
        let challenge = of_header(&header);
        Ok(Self::new(Location::Header(header), challenge))
    }

    /// Sets the `WWW-Authenticate` field of the response to a request without the key (RFC 9110, section 11.6.1): an
    /// authentication scheme, then its parameters. Defaults to `Bearer` for [`bearer`](Self::bearer), and to
    /// `ApiKey header="x-api-key"` for [`header`](Self::header), with the name of the header.
    ///
    /// The scheme `ApiKey` is not registered with IANA. Generic clients do not know it, and developers read it.
    ///
    /// Without a challenge, `None`, a request without the key gets 400: for secret keys that do not authenticate a
    /// client.
    ///
    /// It is a mistake if `challenge` does not begin with the name of a scheme, or cannot be the value of a header;
    /// the [layer](crate::RateLimitLayer::validated) returns it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::ApiKey;
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let key = ApiKey::bearer().with_challenge(r#"Bearer realm="api.example""#);
    /// let device = ApiKey::header("x-device-id")?.with_challenge(None);
    /// # let _ = (key, device);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_challenge<'a>(mut self, challenge: impl Into<Option<&'a str>>) -> Self {
        self.challenge = challenge.into().and_then(|challenge| self.mistake.keep(parse(challenge)));
        self
    }

    fn new(location: Location, challenge: HeaderValue) -> Self {
        Self { location, challenge: Some(challenge), mistake: FirstMistake::default() }
    }

    /// The error for a request without the key.
    fn missing(&self, error: KeyError) -> KeyError {
        match (error, &self.challenge) {
            (KeyError(KeyFault::MissingHeader(header)), Some(challenge)) => {
                KeyError(KeyFault::MissingCredential { header, challenge: challenge.clone() })
            }
            (error, _) => error,
        }
    }

    /// Returns the key that requests with this token are charged to, for [`Limiter::reset`](crate::Limiter::reset) and
    /// [`Limiter::peek`](crate::Limiter::peek).
    ///
    /// For an extractor made by [`bearer`](Self::bearer), pass the token without `Bearer`.
    pub fn key_of(&self, token: impl AsRef<[u8]>) -> Key {
        Key::hashed(without_blanks(token.as_ref()))
    }
}

impl KeyExtractor for ApiKey {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self.mistake.found()?;
        let secret = match &self.location {
            Location::Bearer => single(&parts.headers, &AUTHORIZATION).and_then(bearer),
            Location::Header(name) => single(&parts.headers, name),
        };
        secret.map(|secret| Some(self.key_of(secret))).map_err(|error| self.missing(error))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        self.mistake.found()
    }
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, ConfigError> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
        ConfigError::new(format!("{name:?} is not a header name; write one without blanks, such as x-api-key"))
    })
}

/// Parses the name of a header whose whole value is a key.
fn key_header(name: &str) -> Result<HeaderName, ConfigError> {
    let header = header_name(name)?;
    if header == AUTHORIZATION {
        return Err(ConfigError::new(format!(
            "the value of {name:?} begins with a scheme that has several spellings; use `ApiKey::bearer()`, which \
             reads the token alone"
        )));
    }
    Ok(header)
}

/// The header's only value, without blanks around it. An empty value counts as missing.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], KeyError> {
    let value = single_line(headers, name)?.map(|value| without_blanks(value.as_bytes()));
    value.filter(|value| !value.is_empty()).ok_or_else(|| KeyError(KeyFault::MissingHeader(name.clone())))
}

/// Removes spaces and tabs around a value. HTTP/1.1 servers remove them, HTTP/2 servers do not.
fn without_blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The header's only line; `None` without the header.
pub(super) fn single_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, KeyError> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (_, Some(_)) => Err(KeyError(KeyFault::RepeatedHeader(name.clone()))),
        (line, None) => Ok(line),
    }
}

/// The token after `Bearer`. With another scheme, the token counts as missing, not as malformed.
fn bearer(value: &[u8]) -> Result<&[u8], KeyError> {
    let missing = || KeyError(KeyFault::MissingHeader(AUTHORIZATION));
    let (scheme, token) = value.split_at_checked("bearer ".len()).ok_or_else(missing)?;
    let token = without_blanks(token);
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(missing());
    }
    Ok(token)
}

/// The challenge of bearer tokens (RFC 6750, section 3), without a realm, because only the service knows its own.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// The challenge of an API key in a header.
fn of_header(name: &HeaderName) -> HeaderValue {
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
