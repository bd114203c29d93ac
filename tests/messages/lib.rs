//! The likely mistakes of users, one for each value of `mistake`. None of them compiles.
#![deny(unused_must_use)]

#[cfg(mistake = "body_without_bytes")]
pub mod body_without_bytes;
#[cfg(mistake = "closure_as_key")]
pub mod closure_as_key;
#[cfg(mistake = "dropped_denial")]
pub mod dropped_denial;
#[cfg(mistake = "missing_feature")]
pub mod missing_feature;
#[cfg(mistake = "missing_question_mark")]
pub mod missing_question_mark;
#[cfg(mistake = "plan_by_name")]
pub mod plan_by_name;
#[cfg(mistake = "policies_as_source")]
pub mod policies_as_source;
#[cfg(mistake = "service_without_clone")]
pub mod service_without_clone;
#[cfg(mistake = "source_by_reference")]
pub mod source_by_reference;
