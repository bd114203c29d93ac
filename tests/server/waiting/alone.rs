//! One process with two hundred waiters on one key.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, Policy};

use crate::load::{Admission, drain, limiter};
use crate::support::{link::Link, measured, redis_server::RedisServer};
use crate::{print_line, undisturbed};

const WAITERS: usize = 200;
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Drains the waiters over a link with `round_trip`, and returns how long that took, and the calls for each admission.
fn run(policy: &Policy, round_trip: Duration) -> (Duration, f64, Vec<Admission>) {
    undisturbed(|| {
        let server = RedisServer::start();
        let url = if round_trip.is_zero() { server.url() } else { Link::to(server.port(), round_trip).url() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (limiter, calls) = limiter(&url).await;
            let before = calls.count();
            let start = Instant::now();
            let admissions = drain(&limiter, policy, WAITERS, MAX_WAIT).await;
            let calls = (calls.count() - before) as f64 / WAITERS as f64;
            (start.elapsed(), calls, admissions)
        })
    })
}

fn is_in_order(admissions: &[Admission]) -> bool {
    admissions.iter().map(|admission| admission.waiter).eq(0..WAITERS)
}

#[test]
fn two_hundred_waiters_drain_in_order_at_the_rate_of_a_bucket_of_one() {
    let policy = Policy::per_second("upstream", 100).unwrap().with_algorithm(Algorithm::TokenBucket);
    let policy = policy.with_burst(1);
    let refill = Duration::from_millis(10);
    for round_trip in [0, 1, 5].map(Duration::from_millis) {
        let (took, calls, admissions) = run(&policy, round_trip);
        let ideal = refill * (WAITERS as u32 - 1);
        let late = took.saturating_sub(ideal).as_secs_f64() * 1e3;
        print_line(&format!(
            "waiting alone round_trip={round_trip:?} took={took:?} late_ms={late:.1} calls_per_admission={calls:.2}"
        ));
        assert!(is_in_order(&admissions));
        assert!(calls <= 2.0, "{calls}");
    }
}

#[test]
fn two_hundred_waiters_drain_in_order_at_the_rate_of_a_log() {
    let policy = Policy::per_second("upstream", 50).unwrap();
    measured(|| {
        let (took, calls, admissions) = run(&policy, Duration::from_millis(1));
        print_line(&format!("waiting alone log took={took:?} calls_per_admission={calls:.2}"));
        assert!(is_in_order(&admissions));
        assert!(calls <= 2.0, "{calls}");
        // Four full windows: at once, and after one, two and three seconds.
        assert!(took >= Duration::from_secs(3), "{took:?}");
        (took >= Duration::from_millis(3_200)).then(|| format!("{took:?}"))
    });
}

/// A check that is too early counts as a denial, and ten of them would ban the key for a minute.
const BAN: Duration = Duration::from_secs(60);

#[test]
fn waiters_are_not_banned_for_asking_too_early() {
    let policy = Policy::per_second("upstream", 100).unwrap().with_algorithm(Algorithm::TokenBucket);
    let policy = policy.with_burst(1).ban_after(10, BAN);
    let (took, calls, admissions) = run(&policy, Duration::ZERO);
    print_line(&format!("waiting alone ban took={took:?} calls_per_admission={calls:.2}"));
    assert!(is_in_order(&admissions));
    assert!(took < BAN, "{took:?}");
}
