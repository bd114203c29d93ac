//! Keys that an outer layer has put into the request, an authenticated user for one.

use std::{any, fmt, marker::PhantomData};

use http::request::Parts;

use super::{error::KeyError, extractor::KeyExtractor, subject::Key};

/// Charges what an outer layer has inserted into the request's extensions.
///
/// `T` is anything that a [`Key`] can be made from by reference: a type of yours, `String`, an integer, or with feature
/// `uuid` a `Uuid`.
///
/// # Examples
///
/// ```
/// use tollgate::{ExtensionKey, Key};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl From<&UserId> for Key {
///     fn from(user: &UserId) -> Key {
///         Key::from(user.0)
///     }
/// }
///
/// let by_user = ExtensionKey::<UserId>::new();
/// ```
pub struct ExtensionKey<T>(PhantomData<fn() -> T>);

impl<T> ExtensionKey<T> {
    /// Creates the extractor.
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T> Default for ExtensionKey<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for ExtensionKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ExtensionKey<T> {}

impl<T> fmt::Debug for ExtensionKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExtensionKey<{}>", any::type_name::<T>())
    }
}

impl<T> KeyExtractor for ExtensionKey<T>
where
    T: Send + Sync + 'static,
    for<'a> &'a T: Into<Key>,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        let value = parts.extensions.get::<T>();
        value.map(|value| Some(value.into())).ok_or_else(|| KeyError::MissingExtension(any::type_name::<T>()))
    }
}
