//! Edge cases of costs, keys, limits and rates, among them known bugs of other limiters.

use std::time::Duration;

use tollgate::{Algorithm, Check, ConfigError, Policy};

use super::{ALGORITHMS, Fixture};

pub(crate) async fn a_cost_of_0_always_passes_and_charges_nothing(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 3).unwrap().with_algorithm(algorithm).with_count_rejected(true);
        for _ in 0..10 {
            let fresh = fixture.check(&key, &policy, 0).await;
            assert_eq!((fresh.is_allowed(), fresh.available()), (true, Some(3)));
            assert_eq!((fresh.policies()[0].next, fresh.policies()[0].reset), (Duration::ZERO, Duration::ZERO));
        }
        fixture.check(&key, &policy, 3).await;
        let spent = fixture.check(&key, &policy, 0).await;
        assert_eq!((spent.is_allowed(), spent.available(), spent.retry_after()), (true, Some(0), None));
        assert!(spent.policies()[0].reset > Duration::ZERO);
    }
}

pub(crate) async fn law_4_a_peek_reports_whether_a_cost_of_1_would_pass_and_when(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 3).unwrap().with_algorithm(algorithm).with_count_rejected(true);
        fixture.clock.advance(Duration::from_secs(7));
        assert!(fixture.peek(&key, &policy).await.is_allowed());
        fixture.check(&key, &policy, 2).await;
        assert!(fixture.peek(&key, &policy).await.is_allowed());
        fixture.check(&key, &policy, 1).await;
        for _ in 0..5 {
            // A peek is not counted, and its wait is the wait of a cost of 1.
            let peek = fixture.peek(&key, &policy).await;
            assert_eq!((peek.is_allowed(), peek.available(), peek.violated().count()), (false, Some(0), 1));
            assert_eq!(peek.retry_after(), Some(peek.policies()[0].next));
        }
        let wait = fixture.peek(&key, &policy).await.retry_after().unwrap();
        fixture.clock.advance(wait - Duration::from_micros(1));
        assert!(!fixture.peek(&key, &policy).await.is_allowed());
        fixture.clock.advance(Duration::from_micros(1));
        assert!(fixture.peek(&key, &policy).await.is_allowed());
        assert!(fixture.check(&key, &policy, 1).await.is_allowed());
    }
}

pub(crate) async fn a_peek_at_a_banned_key_reports_the_end_of_the_ban(fixture: Fixture) {
    let ban = Duration::from_secs(600);
    let policy = Policy::per_minute("p", 1).unwrap().ban_after(2, ban).unwrap();
    fixture.check("k", &policy, 1).await;
    for _ in 0..5 {
        assert_eq!(
            fixture.peek("k", &policy).await.retry_after(),
            Some(Duration::from_secs(60)),
            "a peek is no denial"
        );
    }
    for _ in 0..2 {
        fixture.check("k", &policy, 1).await;
    }
    fixture.clock.advance(Duration::from_secs(120));
    let peek = fixture.peek("k", &policy).await;
    assert_eq!((peek.is_allowed(), peek.retry_after()), (false, Some(ban - Duration::from_secs(120))));
    fixture.clock.advance(ban);
    assert!(fixture.peek("k", &policy).await.is_allowed());
}

pub(crate) async fn a_cost_above_the_limit_never_fits_and_has_no_retry_after(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        for count_rejected in [false, true] {
            let key = format!("{algorithm:?} {count_rejected}");
            let policy =
                Policy::per_minute("p", 10).unwrap().with_algorithm(algorithm).with_count_rejected(count_rejected);
            for cost in [11, u32::MAX] {
                let decision = fixture.check(&key, &policy, cost).await;
                assert!(!decision.is_allowed() && decision.policies()[0].never_fits());
                assert_eq!((decision.retry_after(), decision.available()), (None, Some(10)));
            }
            assert!(fixture.check(&key, &policy, 10).await.is_allowed());
        }
    }
    let huge = Policy::per_minute("huge", u32::MAX).unwrap();
    assert_eq!(fixture.check("k", &huge, u32::MAX).await.available(), Some(0));
}

pub(crate) async fn hostile_keys_are_keys_like_any_other(fixture: Fixture) {
    let policy = Policy::per_minute("p", 2).unwrap();
    let megabyte = "x".repeat(1 << 20);
    let keys = ["", "{", "}", "{}", "{a}", "a}{b", "a:b", "\r\nFLUSHALL\r\n", "\0", "é", "%", "#", "*", &megabyte];
    for key in keys {
        assert_eq!(fixture.check(key, &policy, 1).await.available(), Some(1), "{key:.20}");
    }
    for key in keys {
        assert_eq!(fixture.check(key, &policy, 1).await.available(), Some(0), "{key:.20}");
        assert!(!fixture.check(key, &policy, 1).await.is_allowed(), "{key:.20}");
    }
}

pub(crate) async fn several_charges_for_one_key_and_policy_add_up(fixture: Fixture) {
    let policy = Policy::per_minute("p", 10).unwrap();
    let check = || Check::new("k", &policy, 4).and("k", &policy, 4).unwrap();
    assert_eq!(fixture.limiter.check_all(check()).await.unwrap().available(), Some(2));
    assert!(!fixture.limiter.check_all(check()).await.unwrap().is_allowed());
    let many = |count: u32| {
        let first = Check::new("k", &Policy::per_minute("p0", 10).unwrap(), 1);
        (1..count).try_fold(first, |check, n| check.and("k", &Policy::per_minute(format!("p{n}"), 10).unwrap(), 1))
    };
    assert!(fixture.limiter.check_all(many(64).unwrap()).await.unwrap().is_allowed());
    assert_eq!(many(65).unwrap_err(), ConfigError::TooManyCharges { most: 64 });
    let namesake = Policy::per_hour("p", 10).unwrap();
    let error = Check::new("k", &policy, 1).and("k", &namesake, 1).unwrap_err();
    assert_eq!(error, ConfigError::DuplicatePolicy { policy: "p".into() });
}

pub(crate) async fn a_reset_removes_one_key_under_one_policy(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let policy = |name| Policy::per_minute(name, 1).unwrap().with_algorithm(algorithm);
        for (key, name) in [("a", "p"), ("a", "q"), ("b", "p")] {
            assert!(fixture.check(key, &policy(name), 1).await.is_allowed());
        }
        assert!(fixture.limiter.reset("a", &policy("p")).await.unwrap());
        assert!(fixture.check("a", &policy("p"), 1).await.is_allowed());
        assert!(!fixture.check("a", &policy("q"), 1).await.is_allowed());
        assert!(!fixture.check("b", &policy("p"), 1).await.is_allowed());
    }
}

pub(crate) async fn a_reset_reports_whether_there_was_a_count_or_a_ban(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        let policy = Policy::per_minute("p", 1).unwrap().with_algorithm(algorithm);
        let banning = policy.clone().ban_after(1, Duration::from_secs(600)).unwrap();
        let key = format!("{algorithm:?}");
        let reset = async |key: &str, policy: &Policy| fixture.limiter.reset(key, policy).await.unwrap();
        assert!(!reset(&key, &policy).await, "nothing was spent yet");
        fixture.check(&key, &policy, 1).await;
        assert!(!reset("another", &policy).await, "another key has no count");
        assert!(
            !reset(&key, &Policy::per_hour("p", 1).unwrap().with_algorithm(algorithm)).await,
            "another window has no count"
        );
        assert!(reset(&key, &policy).await);
        assert!(!reset(&key, &policy).await, "the second reset finds nothing");
        // The count has left its window; the ban is still in force.
        fixture.check(&key, &banning, 1).await;
        assert!(fixture.check(&key, &banning, 1).await.policies()[0].ban.is_some());
        fixture.clock.advance(Duration::from_secs(120));
        assert!(reset(&key, &banning).await, "a ban is found");
    }
}

/// Other limiters were off by one, or admitted a cost of 10 at 99 of 100.
pub(crate) async fn every_limit_is_admitted_to_the_last_unit(fixture: Fixture) {
    for algorithm in ALGORITHMS {
        for limit in [1, 2, 3, 99, 100] {
            let key = format!("{algorithm:?} {limit}");
            let policy = Policy::per_minute("p", limit).unwrap().with_algorithm(algorithm);
            for remaining in (0..limit).rev() {
                assert_eq!(fixture.check(&key, &policy, 1).await.available(), Some(remaining), "{key}");
            }
            assert!(!fixture.check(&key, &policy, 1).await.is_allowed(), "{key}");
        }
        let key = format!("{algorithm:?} weighted");
        let policy = Policy::per_minute("p", 100).unwrap().with_algorithm(algorithm);
        assert!(fixture.check(&key, &policy, 99).await.is_allowed());
        assert!(!fixture.check(&key, &policy, 10).await.is_allowed());
    }
}

pub(crate) async fn rejected_requests_count_if_the_policy_says_so(fixture: Fixture) {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::TokenBucket] {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 2).unwrap().with_algorithm(algorithm).with_count_rejected(true);
        assert!(fixture.check(&key, &policy, 2).await.is_allowed());
        // A client that retries every second stays denied …
        for _ in 0..200 {
            fixture.clock.advance(Duration::from_secs(1));
            assert!(!fixture.check(&key, &policy, 2).await.is_allowed(), "{key}");
        }
        // … and a client that waits for the returned time passes.
        let wait = fixture.check(&key, &policy, 2).await.retry_after().unwrap();
        assert_eq!(wait, Duration::from_secs(60));
        fixture.clock.advance(wait);
        assert!(fixture.check(&key, &policy, 2).await.is_allowed(), "{key}");
    }
    // A denial by another policy of the same check counts as well.
    let (counting, other) =
        (Policy::per_minute("c", 10).unwrap().with_count_rejected(true), Policy::per_minute("o", 1).unwrap());
    let check = || Check::new("k", &counting, 1).and("k", &other, 1).unwrap();
    for _ in 0..4 {
        fixture.limiter.check_all(check()).await.unwrap();
    }
    assert_eq!(fixture.peek("k", &counting).await.available(), Some(6));
}

pub(crate) async fn five_thousand_a_second_and_sub_microsecond_rates_hold(fixture: Fixture) {
    let policy =
        |limit| Policy::per_second("p", limit).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(1).unwrap();
    for (limit, micros) in [(5_000, 200), (7, 142_858), (3, 333_334)] {
        let (key, policy) = (limit.to_string(), policy(limit));
        assert!(fixture.check(&key, &policy, 1).await.is_allowed());
        let wait = fixture.check(&key, &policy, 1).await.retry_after().unwrap();
        assert_eq!(wait, Duration::from_micros(micros));
    }
    // Three units a microsecond: a rate that whole microseconds cannot express.
    let fast =
        Policy::per_second("fast", 3_000_000).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(30).unwrap();
    assert!(fixture.check("k", &fast, 30).await.is_allowed());
    fixture.clock.advance(Duration::from_micros(7));
    assert_eq!(fixture.peek("k", &fast).await.available(), Some(21));
}

pub(crate) async fn an_idle_token_bucket_admits_exactly_its_burst(fixture: Fixture) {
    let policy = Policy::per_second("p", 10).unwrap().with_algorithm(Algorithm::TokenBucket).with_burst(4).unwrap();
    for _ in 0..3 {
        let mut admitted = 0;
        for _ in 0..10 {
            admitted += u32::from(fixture.check("k", &policy, 1).await.is_allowed());
        }
        assert_eq!(admitted, 4);
        fixture.clock.advance(Duration::from_secs(3600));
    }
}
