//! Secrets and certificates that may change while the process runs: a source is asked at each dial.

use std::{io, sync::Arc};

/// A fixed value, or a closure of the caller that returns the present one.
pub(crate) enum Source<T> {
    #[cfg(feature = "tls")]
    Fixed(Arc<T>),
    Asked(Arc<dyn Fn() -> io::Result<T> + Send + Sync>),
}

impl<T> Source<T> {
    #[cfg(feature = "tls")]
    pub(crate) fn fixed(value: T) -> Self {
        Self::Fixed(Arc::new(value))
    }

    pub(crate) fn asked(source: impl Fn() -> io::Result<T> + Send + Sync + 'static) -> Self {
        Self::Asked(Arc::new(source))
    }

    /// The present value.
    pub(crate) fn get(&self) -> io::Result<Arc<T>> {
        match self {
            #[cfg(feature = "tls")]
            Self::Fixed(value) => Ok(Arc::clone(value)),
            Self::Asked(source) => source().map(Arc::new),
        }
    }
}

impl<T> Clone for Source<T> {
    fn clone(&self) -> Self {
        match self {
            #[cfg(feature = "tls")]
            Self::Fixed(value) => Self::Fixed(Arc::clone(value)),
            Self::Asked(source) => Self::Asked(Arc::clone(source)),
        }
    }
}
