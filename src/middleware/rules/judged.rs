//! The judgement on a layer that its author has not validated.

use std::sync::OnceLock;

use crate::error::ConfigError;

/// Whether a layer with these rules can limit requests, as the first request finds out: a layer with many routes takes
/// longer to check than a request may.
#[derive(Default)]
pub(in crate::middleware) struct Judged(OnceLock<Result<(), ConfigError>>);

impl Judged {
    /// The answer of `judge`, which is called once.
    #[inline]
    pub(in crate::middleware) fn get(
        &self,
        judge: impl FnOnce() -> Result<(), ConfigError>,
    ) -> Result<(), &ConfigError> {
        self.0.get_or_init(judge).as_ref().map(|&()| ())
    }
}

/// A copy of rules is about to be changed, so it is not judged yet.
impl Clone for Judged {
    fn clone(&self) -> Self {
        Self::default()
    }
}
