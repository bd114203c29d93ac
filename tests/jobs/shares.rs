//! Two limits of one count, and budgets within budgets.

use tollgate::{Algorithm, Check, Decision, Policy};

use crate::support::app::limiter;

/// All but the token bucket, whose limits are rates: a unit of the lower one takes longer to come back.
const ALGORITHMS: [Algorithm; 3] =
    [Algorithm::SlidingWindowLog, Algorithm::SlidingWindowCounter, Algorithm::FixedWindow];

/// Two limits of one name share a count: 20 % are left for what matters.
#[tokio::test]
async fn law_1_the_lower_limit_of_one_count_never_takes_the_last_fifth() {
    for algorithm in ALGORITHMS {
        let limiter = limiter();
        let limit = |units| Policy::per_minute("api", units).unwrap().with_algorithm(algorithm);
        let (checkout, others) = (limit(100), limit(80));
        let passes = async |policy: &Policy| limiter.check("all", policy, 1).await.unwrap().is_allowed();
        let mut passed = [0, 0];
        for _ in 0..10 {
            passed[0] += u32::from(passes(&checkout).await);
        }
        for _ in 0..200 {
            passed[1] += u32::from(passes(&others).await);
        }
        assert_eq!(passed, [10, 70], "{algorithm:?}: both count");
        for _ in 0..200 {
            passed[0] += u32::from(passes(&checkout).await);
            assert!(!passes(&others).await, "{algorithm:?}: the last fifth is not theirs");
        }
        assert_eq!(passed, [30, 70], "{algorithm:?}");
    }
}

#[tokio::test]
async fn law_3_a_refused_child_charges_no_parent() {
    let limiter = limiter();
    let [user, team, org] =
        [("user", 3), ("team", 10), ("org", 100)].map(|(name, limit)| Policy::per_minute(name, limit).unwrap());
    let check = async |name: &str| -> Decision {
        let check = Check::new(name, &user, 1).and("team", &team, 1).and("org", &org, 1);
        limiter.check_all(check).await.unwrap()
    };
    for number in 0..1_000 {
        assert_eq!(check("noisy").await.is_allowed(), number < 3);
    }
    for number in 0..7 {
        assert!(
            check(&format!("user {number}")).await.is_allowed(),
            "the noisy user has spent three units of the team"
        );
    }
    assert!(!check("late").await.is_allowed(), "the team has spent its ten");
    assert_eq!(limiter.peek("org", &org).await.unwrap().available(), Some(90));
}
