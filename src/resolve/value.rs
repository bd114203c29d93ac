//! What a closure of [`resolve`](super::resolve) may return.

use std::fmt;

/// The output of a [`resolve`](super::resolve) closure's future: `Option<T>` or `Result<Option<T>, E>`, where `T` is
/// the extension to insert.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the result of a resolution",
    label = "expected `Option<T>` or `Result<Option<T>, E>`",
    note = "`T` has to be `Clone + Send + Sync + 'static`, and `E` has to be `Display`"
)]
pub trait IntoResolved {
    /// The extension to insert.
    type Value: Clone + Send + Sync + 'static;

    /// Converts into the extension, or the text of the error.
    ///
    /// # Errors
    ///
    /// The text of the closure's error. It appears in logs.
    fn into_resolved(self) -> Result<Option<Self::Value>, String>;
}

impl<T: Clone + Send + Sync + 'static> IntoResolved for Option<T> {
    type Value = T;

    fn into_resolved(self) -> Result<Option<T>, String> {
        Ok(self)
    }
}

impl<T: Clone + Send + Sync + 'static, E: fmt::Display> IntoResolved for Result<Option<T>, E> {
    type Value = T;

    fn into_resolved(self) -> Result<Option<T>, String> {
        self.map_err(|error| error.to_string())
    }
}
