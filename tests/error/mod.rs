//! What a `main` that returns an error prints: the `Debug` of the error.

use std::{error::Error, fs};

use tollgate::{GlobalKey, LiveLimits, Policy, RateLimitLayer};

use crate::live::files::Directory;
use crate::support::app::{down_limiter, limiter, per_minute};

/// What `fn main() -> Result<(), Box<dyn Error>>` prints after `Error: `.
fn printed(error: impl Error + Send + Sync + 'static) -> String {
    let error: Box<dyn Error + Send + Sync> = error.into();
    format!("{error:?}")
}

#[test]
fn a_main_that_returns_a_wrong_configuration_prints_what_is_wrong_and_what_to_write() {
    for error in [
        Policy::per_minute("per client", 60).unwrap_err(),
        RateLimitLayer::new(limiter(), per_minute(5), GlobalKey).with_cost(6).validated().unwrap_err(),
        RateLimitLayer::new(limiter(), per_minute(5), GlobalKey).fail_local().validated().unwrap_err(),
    ] {
        assert_eq!(printed(error.clone()), error.to_string());
    }
}

#[tokio::test]
async fn a_main_that_returns_a_failed_check_prints_the_cause_and_whether_units_may_be_charged() {
    let error = down_limiter().without_notices().check("k", &per_minute(5), 1).await.unwrap_err();
    let printed = printed(error.clone());
    assert!(printed.starts_with(&error.to_string()), "{printed}");
    assert!(printed.ends_with(" (Unavailable; the check was not charged)"), "{printed}");
    let charged = format!("{:?}", error.charge_unknown());
    assert!(charged.ends_with(" (Unavailable; the check may have been charged)"), "{charged}");
}

#[test]
fn a_main_that_returns_the_mistakes_of_a_watched_file_prints_all_of_them() {
    let directory = Directory::new();
    let path = directory.path("limits.toml");
    fs::write(&path, "policies.p.rate = 'fast'").unwrap();
    let error = LiveLimits::watch(&path, |text| toml::from_str(text)).unwrap_err();
    let printed = printed(error);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("policies.p.rate: "), "{printed}");
    assert!(lines[1].starts_with("default.policies: no policy"), "{printed}");
}

#[test]
fn a_main_that_returns_the_error_of_a_watched_file_prints_its_path_and_the_reason() {
    let error = LiveLimits::watch("/no/such/limits.toml", |text| toml::from_str(text)).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the limits in /no/such/limits.toml cannot be read: No such file"), "{text}");
    assert_eq!(printed(error), text);
}
