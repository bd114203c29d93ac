//! Names of a service's own for the fields of a style.

use http::HeaderName;

use super::writer::HeaderWriter;
use crate::error::ConfigError;

impl HeaderWriter {
    /// Sends the RateLimit field `field` of the style under the name `own`: for clients that know other names, or that
    /// should not see whose limiter it is.
    ///
    /// Fields are merged under their own names, so nested layers need the same ones. `Retry-After`, `retry-after-ms`
    /// and `Cache-Control` keep their names. List your own in `Access-Control-Expose-Headers`, because
    /// [`HeaderStyle::names`](crate::HeaderStyle::names) does not have them.
    ///
    /// It is a mistake of each [layer](crate::RateLimitLayer::with_headers) with the writer if the style does not send
    /// `field`, or if another field has the name: one of the style, or one that HTTP or gRPC gives a meaning. The field
    /// then keeps its name.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::HeaderName;
    /// use tollgate::{
    ///     GlobalKey, HeaderStyle, MemoryStore, Policy, RateLimitLayer,
    ///     headers::HeaderWriter,
    /// };
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// let names = [
    ///     ("x-ratelimit-limit", "x-acme-quota"),
    ///     ("x-ratelimit-remaining", "x-acme-left"),
    /// ];
    /// let writer = HeaderWriter::new(HeaderStyle::XRateLimitDelta);
    /// let writer = names.into_iter().fold(writer, |writer, (field, own)| {
    ///     writer
    ///         .with_name(HeaderName::from_static(field), HeaderName::from_static(own))
    /// });
    /// let limit = RateLimitLayer::new(
    ///     MemoryStore::new(),
    ///     Policy::per_minute("all", 60)?,
    ///     GlobalKey,
    /// )
    /// .with_headers(writer)
    /// .validated()?;
    /// # let _ = limit;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_name(mut self, field: HeaderName, own: HeaderName) -> Self {
        if let Some(names) = self.mistake.keep(self.names.with(self.style, field, own)) {
            self.names = names;
        }
        self
    }

    /// What is wrong with a name.
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.mistake.found()
    }
}
