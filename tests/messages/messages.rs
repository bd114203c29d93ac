//! What the compiler says about the likely mistakes of users.
//!
//! A `.stderr` file has the words that the compiler takes from this crate, and those that a user needs, in their order.
//! The rest of the output is the compiler's own, which changes with its version.
#![allow(clippy::unwrap_used)]

use std::{env, fs, process::Command};

/// Compiles the mistake, and asserts that the output has each line of its `.stderr` file, one after the other.
fn assert_says(mistake: &str) {
    let output = Command::new(env!("CARGO"))
        .args(["rustc", "--locked", "--quiet", "--profile", "check", "--package", "tollgate-messages", "--lib", "--"])
        .args(["--cfg", &format!("mistake=\"{mistake}\"")])
        .env("CARGO_TERM_COLOR", "never")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{mistake} compiles:\n{said}");
    let expected = fs::read_to_string(format!("{}/{mistake}.stderr", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut rest = &*said;
    for words in expected.lines() {
        let Some(at) = rest.find(words) else { panic!("{mistake}: not said here: {words}\n{said}") };
        rest = &rest[at + words.len()..];
    }
}

#[test]
fn a_denial_that_is_dropped_is_a_warning_that_says_what_to_call() {
    assert_says("dropped_denial");
}

#[test]
fn a_body_that_the_rejection_cannot_make_is_named_with_the_rejections_that_can() {
    assert_says("body_without_bytes");
}

#[test]
fn a_service_that_cannot_be_cloned_is_named_where_the_layer_wraps_it() {
    assert_says("service_without_clone");
}

#[test]
fn a_closure_that_returns_no_key_is_told_what_a_key_is() {
    assert_says("closure_as_key");
}

#[test]
fn a_missing_question_mark_is_named() {
    assert_says("missing_question_mark");
}

#[test]
fn policies_without_a_closure_are_told_of_one() {
    assert_says("policies_as_source");
}

#[test]
fn a_source_by_reference_is_told_to_be_cloned() {
    assert_says("source_by_reference");
}

#[test]
fn the_name_of_a_plan_is_told_of_the_plans_of_limits() {
    assert_says("plan_by_name");
}

#[test]
fn an_item_of_a_feature_that_is_missing_is_named_with_the_feature() {
    assert_says("missing_feature");
}
