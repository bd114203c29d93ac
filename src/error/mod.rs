//! Errors: of a configuration ([`ConfigError`]) and of a check without a verdict ([`Error`]).

mod check;
mod config;
mod words;

pub(crate) use self::{
    check::StoreEvidence,
    config::FirstMistake,
    words::{OneLine, in_words, value_of, word_of},
};
pub use self::{
    check::{Error, ErrorKind},
    config::ConfigError,
};
