//! How a store on a cluster finds the masters of its slots and waits for them, in a simulated world.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Check, ErrorKind, Limiter, Policy, failure::BreakerSettings, store::RedisStoreBuilder};

use super::redis_world::{all_fit, builder, error, master, run};

/// What a server replies, as in `redis_world.rs`.
type Reply = Option<(u64, String)>;

/// "bar" is in a slot of the master `a`, "foo" in one of the master `other`.
fn layout(other: &str) -> String {
    ["*2\r\n".to_owned(), master(0, 8_191, "a"), master(8_192, 16_383, other)].concat()
}

/// The replies of `script`, and otherwise the layout with the masters `a` and `b`.
fn cluster(script: impl Fn(&str, &str) -> Reply + 'static) -> impl Fn(&str, &str) -> Reply + 'static {
    move |address: &str, command: &str| {
        script(address, command).or_else(|| (command == "CLUSTER").then(|| (0, layout("b"))))
    }
}

fn limiter(builder: RedisStoreBuilder) -> Limiter {
    Limiter::new(builder.open_cluster(["redis://seed"]).unwrap())
}

/// A breaker that opens when checks time out, and not for other failures.
fn of_timeouts() -> BreakerSettings {
    let of_timeouts = BreakerSettings::default().with_consecutive_timeouts(1).with_consecutive_failures(0);
    of_timeouts.with_failure_rate_min_samples(0)
}

#[test]
fn a_master_that_serves_no_slot_or_is_silent_is_replaced_and_others_keep_their_connections() {
    for reply in ["-CLUSTERDOWN Hash slot not served\r\n", ""] {
        let (has_failed, dials) = (Cell::new(false), Rc::new(Cell::new(0)));
        let seen = Rc::clone(&dials);
        let script = move |address: &str, command: &str| match (address, command) {
            ("a:6379", "HELLO") => {
                seen.set(seen.get() + 1);
                None
            }
            ("b:6379", "EVALSHA") => {
                has_failed.set(true);
                Some((0, reply.to_owned()))
            }
            ("b:6379", "CLUSTER") => Some((0, String::new())),
            (_, "CLUSTER") if has_failed.get() => Some((0, layout("c"))),
            _ => None,
        };
        run(cluster(script), async {
            let (limiter, mut last) = (limiter(builder()), String::new());
            for _ in 0..100 {
                last = error(&limiter).await;
                sleep(Duration::from_millis(20)).await;
            }
            assert!(last.contains("asked c:6379"), "{reply}: {last}");
        });
        assert_eq!(dials.get(), 1, "{reply}");
    }
}

#[test]
fn checks_of_a_master_that_cannot_be_dialled_get_its_error_until_the_others_name_a_successor() {
    let has_successor = Rc::new(Cell::new(false));
    let seen = Rc::clone(&has_successor);
    let script = move |address: &str, command: &str| match (address, command) {
        ("b:6379", "DIAL") => Some((0, "b is away".to_owned())),
        (_, "CLUSTER") if seen.get() => Some((0, layout("c"))),
        _ => None,
    };
    run(cluster(script), async {
        let limiter = limiter(builder());
        for _ in 0..50 {
            // No check waits until its deadline for a refresh of the slot map, which has to pause.
            let error = error(&limiter).await;
            assert!(error.contains("b is away"), "{error}");
            sleep(Duration::from_millis(20)).await;
        }
        has_successor.set(true);
        // The pause after the last refresh passes, so that the next check begins another one and waits for it.
        sleep(Duration::from_secs(1)).await;
        let error = error(&limiter).await;
        assert!(error.contains("asked c:6379"), "{error}");
    });
}

#[test]
fn a_check_of_several_slots_waits_for_the_first_dials_of_those_that_decide() {
    const DIAL: Duration = Duration::from_secs(1);
    let policy = Policy::per_hour("p", 10).unwrap();
    let shadow = policy.clone().with_shadow(true);
    for (of_a, of_b, waits) in [(&policy, &shadow, false), (&shadow, &policy, true), (&shadow, &shadow, true)] {
        let script = |address: &str, command: &str| match (address, command) {
            ("b:6379", "HELLO") => Some((1_000, "%1\r\n+proto\r\n:3\r\n".to_owned())),
            (_, "EVALSHA") => Some((0, all_fit())),
            _ => None,
        };
        run(cluster(script), async {
            let (limiter, start) = (limiter(builder()), Instant::now());
            let check = Check::new("bar", of_a, 0).and("foo", of_b, 0);
            assert!(limiter.check_all(check).await.unwrap().is_allowed());
            assert_eq!(start.elapsed() >= DIAL, waits, "{:?}", start.elapsed());
        });
    }
}

#[test]
fn a_check_that_a_node_refuses_is_sent_once_with_alternatives_and_without() {
    let [p, q] = ["p", "q"].map(|name| Policy::per_hour(name, 10).unwrap());
    for check in [Check::new("foo", &p, 1), Check::first_of("foo", [&p, &q], 1)] {
        let calls = Rc::new(Cell::new(0));
        let seen = Rc::clone(&calls);
        let script = move |_: &str, command: &str| {
            seen.set(seen.get() + u32::from(command == "EVALSHA"));
            (command == "EVALSHA").then(|| (0, "-ERR broken\r\n".to_owned()))
        };
        run(cluster(script), async {
            let error = limiter(builder()).check_all(check).await.unwrap_err().to_string();
            assert!(error.contains("ERR broken"), "{error}");
        });
        assert_eq!(calls.get(), 1);
    }
}

#[test]
fn callers_that_leave_before_the_deadline_do_not_open_the_breaker_of_a_silent_slot() {
    let script = |address: &str, command: &str| match (address, command) {
        ("b:6379", "EVALSHA") => Some((0, String::new())),
        (_, "EVALSHA") => Some((0, all_fit())),
        _ => None,
    };
    run(cluster(script), async {
        let limiter = limiter(builder().breaker(of_timeouts())).without_notices();
        let policy = Policy::per_hour("p", 10).unwrap();
        for (patience_ms, is_open) in [(20, false), (20, false), (20, false), (1_000, true)] {
            let check = Check::new("bar", &policy, 0).and("foo", &policy, 0);
            let _ = timeout(Duration::from_millis(patience_ms), limiter.check_all(check)).await;
            // The tasks of the check end a little later.
            sleep(Duration::from_millis(100)).await;
            assert_eq!(limiter.is_breaker_open(), is_open, "{patience_ms}");
        }
    });
}

/// Each check asks the silent master first, and then the one that answers.
#[test]
fn law_8_many_checks_of_a_silent_master_and_of_another_one_are_left_to_the_failure_policy_and_to_the_breaker() {
    let script = |address: &str, command: &str| match (address, command) {
        ("a:6379", "EVALSHA") => Some((0, String::new())),
        (_, "EVALSHA") => Some((0, all_fit())),
        _ => None,
    };
    run(cluster(script), async {
        let limiter = limiter(builder().breaker(of_timeouts())).without_notices();
        let policy = Policy::per_hour("p", 10).unwrap();
        let check = || Check::new("bar", &policy, 0).and("foo", &policy, 0);
        let checks: JoinSet<_> = (0..600).map(|_| limiter.check_all(check())).collect();
        for decision in checks.join_all().await {
            assert_eq!(decision.unwrap_err().kind(), ErrorKind::Deadline);
        }
        // The tasks of the checks end a little later.
        sleep(Duration::from_millis(100)).await;
        assert!(limiter.is_breaker_open());
        assert!(limiter.check("foo", &policy, 0).await.unwrap().is_allowed());
    });
}
