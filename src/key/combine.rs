//! Closures, tuples and boxes as key extractors.

use http::request::Parts;

use super::{
    error::KeyError,
    extractor::{KeyExtractor, KeyOrigin},
    subject::Key,
};
use crate::error::ConfigError;

/// The return types of a closure that is a [`KeyExtractor`]. Not exported: only this crate implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    label = "this closure has to return a `Key`, a `String`, an `Option` of either, or a `Result<_, KeyError>` of \
             these",
    note = "`Key::from(..)` takes text, bytes, addresses and integers; other errors become a `KeyError` by \
            `.map_err(|_| KeyError::missing(\"..\"))`"
)]
pub trait IntoExtraction {
    /// Converts the value into the return type of [`KeyExtractor::extract`].
    ///
    /// # Errors
    ///
    /// The error of the value, if the value is a `Result` with an error.
    fn into_extraction(self) -> Result<Option<Key>, KeyError>;
}

impl IntoExtraction for Key {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        Ok(Some(self))
    }
}

impl IntoExtraction for String {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        Ok(Some(self.into()))
    }
}

impl<T: IntoExtraction> IntoExtraction for Option<T> {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        self.map_or(Ok(None), T::into_extraction)
    }
}

impl<T: IntoExtraction> IntoExtraction for Result<T, KeyError> {
    fn into_extraction(self) -> Result<Option<Key>, KeyError> {
        self?.into_extraction()
    }
}

impl<F, T> KeyExtractor for F
where
    F: Fn(&Parts) -> T + Send + Sync + 'static,
    T: IntoExtraction,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        self(parts).into_extraction()
    }
}

/// Creates a key extractor that calls `f`: a closure whose argument needs no type.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, key::{self, KeyError}};
///
/// let tenant = key::from_fn(|parts| {
///     let host = parts.uri.host().ok_or_else(|| KeyError::missing("a host"))?;
///     Ok(Key::from(host))
/// });
/// # fn assert_extractor(_: impl tollgate::KeyExtractor) {}
/// # assert_extractor(tenant);
/// ```
pub fn from_fn<T: IntoExtraction>(f: impl Fn(&Parts) -> T + Send + Sync + 'static) -> impl KeyExtractor {
    f
}

impl KeyExtractor for Box<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
        (**self).extract(parts)
    }

    fn origin(&self) -> KeyOrigin {
        (**self).origin()
    }

    fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
        (**self).check_denied(parts)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        (**self).validate()
    }
}

macro_rules! tuple {
    ($($part:ident $key:ident),+) => {
        /// Extracts all keys and joins them into one compound key. If one extractor exempts the request, the request is
        /// exempt.
        impl<$($part: KeyExtractor),+> KeyExtractor for ($($part,)+) {
            fn extract(&self, parts: &Parts) -> Result<Option<Key>, KeyError> {
                let ($($key,)+) = self;
                $(let Some($key) = $key.extract(parts)? else { return Ok(None) };)+
                Ok(Some(Key::join([$($key),+])))
            }

            /// Returns the mistake of the first extractor that has one.
            fn validate(&self) -> Result<(), ConfigError> {
                let ($($key,)+) = self;
                $($key.validate()?;)+
                Ok(())
            }

            /// Returns the first origin that is not [`KeyOrigin::Other`].
            fn origin(&self) -> KeyOrigin {
                let ($($key,)+) = self;
                let origins = [$($key.origin()),+];
                origins.into_iter().find(|&origin| origin != KeyOrigin::Other).unwrap_or_default()
            }

            /// Refuses the request if one of the extractors refuses it.
            fn check_denied(&self, parts: &Parts) -> Result<(), KeyError> {
                let ($($key,)+) = self;
                $($key.check_denied(parts).or_else(KeyError::unless_missing)?;)+
                Ok(())
            }
        }
    };
}

tuple!(A a, B b);
tuple!(A a, B b, C c);
tuple!(A a, B b, C c, D d);
