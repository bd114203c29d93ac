//! The words of a file as text of their types, for arguments and environment variables; rates as text.

use std::fmt::{Debug, Display};
use std::{str::FromStr, time::Duration};

use tollgate::{Algorithm, ConfigError, FailurePolicy, HeaderStyle, MissingKey, Policy};

/// Asserts that each value is written as its word, and read from it, and that another text is an error with all words.
#[track_caller]
fn are_words<T>(kind: &str, pairs: &[(&str, T)])
where
    T: FromStr<Err = ConfigError> + Display + Debug + PartialEq,
{
    for (word, value) in pairs {
        assert_eq!((value.to_string(), word.parse::<T>().as_ref()), ((*word).to_owned(), Ok(value)));
    }
    let words: Vec<String> = pairs.iter().map(|(word, _)| format!("{word:?}")).collect();
    for text in ["", "Open", "draft-12", " log"] {
        let error = text.parse::<T>().unwrap_err().to_string();
        assert_eq!(error, format!("{text:?} is no {kind}; write one of {}", words.join(", ")));
    }
}

#[test]
fn values_are_written_as_the_words_of_a_file_and_read_from_them() {
    are_words(
        "algorithm",
        &[
            ("log", Algorithm::SlidingWindowLog),
            ("counter", Algorithm::SlidingWindowCounter),
            ("fixed", Algorithm::FixedWindow),
            ("token-bucket", Algorithm::TokenBucket),
        ],
    );
    are_words(
        "failure policy",
        &[("open", FailurePolicy::Open), ("closed", FailurePolicy::Closed), ("local", FailurePolicy::Local)],
    );
    are_words(
        "style of header fields",
        &[
            ("draft-11", HeaderStyle::Draft11),
            ("draft-07", HeaderStyle::Draft07),
            ("draft-06", HeaderStyle::Draft06),
            ("draft-03", HeaderStyle::Draft03),
            ("x-ratelimit", HeaderStyle::XRateLimitDelta),
            ("x-ratelimit-epoch", HeaderStyle::XRateLimitEpoch),
            ("envoy", HeaderStyle::EnvoyCompat),
            ("tower-governor", HeaderStyle::TowerGovernorCompat),
            ("openai", HeaderStyle::OpenAi),
            ("none", HeaderStyle::None),
            ("hidden", HeaderStyle::Hidden),
        ],
    );
    are_words(
        "setting for requests without a key",
        &[("reject", MissingKey::Reject), ("exempt", MissingKey::Exempt), ("share-one-key", MissingKey::ShareOneKey)],
    );
    assert_eq!(format!("{:>8}|{:<8}", FailurePolicy::Open, Algorithm::FixedWindow), "    open|fixed   ");
}

#[test]
fn a_policy_is_parsed_from_the_rate_that_a_file_would_have() {
    for (rate, limit, window) in [
        ("10/s", 10, Duration::from_secs(1)),
        ("60/min", 60, Duration::from_secs(60)),
        ("100/hour", 100, Duration::from_secs(3_600)),
        ("9500/day", 9_500, Duration::from_secs(86_400)),
        ("3/500ms", 3, Duration::from_millis(500)),
        ("10/minute", 10, Duration::from_secs(60)),
        ("10 per minute", 10, Duration::from_secs(60)),
        ("5/m", 5, Duration::from_secs(60)),
        ("100/30d", 100, Duration::from_secs(30 * 86_400)),
    ] {
        assert_eq!(Policy::parse("p", rate).unwrap(), Policy::new("p", limit, window).unwrap(), "{rate}");
    }
    for (rate, message) in [
        ("60", r#"is not a rate; write "10/s", "60/min", "100/hour", "9500/day" or "3/500ms""#),
        (
            "10 per month",
            "is not a rate; write \"10/s\", \"60/min\", \"100/hour\", \"9500/day\" or \"3/500ms\", or create a quota of \
             the calendar with `Policy::calendar`",
        ),
        ("0 per minute", "lets nothing through; write 1 unit or more"),
        ("0/s", "lets nothing through; write 1 unit or more"),
        ("1099511627777/s", "is out of range; write at most 1099511627776 units"),
    ] {
        let error = Policy::parse("p", rate).unwrap_err();
        assert_eq!((error.to_string(), error.policy_name()), (format!("policy \"p\": {rate:?} {message}"), Some("p")));
    }
    let error = Policy::parse("p", "1/400d").unwrap_err().to_string();
    assert!(error.ends_with("is too long; use at most 366 days"), "{error}");
    let error = Policy::parse("per client", "60/min").unwrap_err().to_string();
    assert!(error.starts_with("policy name \"per client\" is not usable in a header: "), "{error}");
}
