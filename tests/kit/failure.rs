//! How a test of the suite ends other than by passing, and the macros that end it.

use std::fmt;

use tollgate::{ConfigError, Error};

/// The result of one test of the suite.
pub(super) type Tested = Result<(), NotPassed>;

/// Why a test did not pass.
#[derive(Debug)]
pub(super) enum NotPassed {
    /// The store is wrong. The text says what was found and what was expected.
    Failed(String),
    /// The test needs what the store or the fixture lacks. The text names it.
    Skipped(String),
}

impl NotPassed {
    pub(super) fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl From<Error> for NotPassed {
    fn from(error: Error) -> Self {
        Self::Failed(format!("the store gave no verdict: {error}"))
    }
}

impl From<ConfigError> for NotPassed {
    fn from(error: ConfigError) -> Self {
        Self::failed(error)
    }
}

/// Fails the test unless the condition is true. The message is the condition, or the arguments of `format!`.
macro_rules! ensure {
    ($condition:expr $(,)?) => {
        $crate::failure::ensure!($condition, "expected {}", stringify!($condition))
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            let message = format!($($message)+);
            return Err($crate::failure::NotPassed::Failed(format!("{message} ({}:{})", file!(), line!())));
        }
    };
}

/// Fails the test unless both values are equal. The message has both, and the arguments of `format!` if there are any.
macro_rules! ensure_eq {
    ($actual:expr, $expected:expr $(,)?) => {
        $crate::failure::ensure_eq!($actual, $expected, "{}", stringify!($actual))
    };
    ($actual:expr, $expected:expr, $($context:tt)+) => {
        match (&$actual, &$expected) {
            (actual, expected) => {
                let context = format_args!($($context)+);
                $crate::failure::ensure!(actual == expected, "{context}: {actual:?}, expected {expected:?}");
            }
        }
    };
}

pub(super) use {ensure, ensure_eq};
