//! Windows that a client has computed from a wrong time: the script refuses them, and the client repeats what it asked.

use std::time::{Duration, UNIX_EPOCH};

use tollgate::{Calendar, Check, Limiter, Policy, RedisStore, policy::HoldSettings};

use super::super::{holds::check, stepped_clock::SteppedServer};
use super::anchored;
use crate::support::{patient, redis_server::calls};

const LIMIT: u64 = 10;
const DAY: i64 = 86_400;

fn monthly() -> Policy {
    Policy::calendar("billing", LIMIT, Calendar::monthly()).unwrap()
}

fn store(stepped: &SteppedServer) -> RedisStore {
    patient().plain_keys().deny_cache(false).open(&stepped.server.url()).unwrap()
}

/// The number of calls of the script that a step makes.
async fn calls_of<T>(stepped: &SteppedServer, step: impl Future<Output = T>) -> (u64, T) {
    let before = calls(&stepped.server, "evalsha") + calls(&stepped.server, "eval");
    let output = step.await;
    (calls(&stepped.server, "evalsha") + calls(&stepped.server, "eval") - before, output)
}

#[tokio::test]
async fn a_client_whose_clock_is_months_behind_asks_once_more_and_then_knows_the_time() {
    let Some(mut stepped) = SteppedServer::start() else { return };
    stepped.step(70 * DAY);
    let (store, policy) = (store(&stepped), monthly());
    let warm = Policy::per_hour("warm", 1_000).unwrap();
    check(&store, &Check::new("k", &warm, 1)).await;
    for (key, expected) in [("a", 2), ("b", 1), ("b", 1)] {
        let (calls, verdict) = calls_of(&stepped, check(&store, &Check::new(key, &policy, 4))).await;
        assert_eq!((calls, verdict.allowed), (expected, true), "{key}");
        let at = |time_us| UNIX_EPOCH + Duration::from_micros(time_us);
        let window = policy.calendar_window(at(verdict.time_us)).unwrap();
        assert_eq!(at(verdict.time_us + verdict.outcomes[0].reset_us), window.end, "{key}");
    }
    let denied = check(&store, &Check::new("b", &policy, 3)).await;
    assert_eq!((denied.allowed, denied.outcomes[0].available), (false, 2));
    // The next month.
    stepped.step(31 * DAY);
    let (calls, verdict) = calls_of(&stepped, check(&store, &Check::new("b", &policy, LIMIT))).await;
    assert_eq!((calls, verdict.allowed), (2, true));
}

#[tokio::test]
async fn checks_that_share_a_call_with_a_stale_window_are_charged_once() {
    let Some(mut stepped) = SteppedServer::start() else { return };
    stepped.step(70 * DAY);
    let (limiter, monthly) = (Limiter::new(store(&stepped)).without_notices(), monthly());
    let (plain, yearly) = (Policy::per_hour("plain", 30).unwrap(), Policy::calendar("year", 70, Calendar::yearly()));
    let yearly = yearly.unwrap();
    let checks = (0..120_u64).map(|number| {
        let key = format!("k{}", number % 3);
        let check = match number % 4 {
            0 => Check::new(key, &plain, 1),
            1 => Check::new(key, &monthly, 1),
            2 => Check::new(key.clone(), &plain, 1).and("all", &yearly, 1).and(key, &monthly, 1),
            _ => Check::new("all", &yearly, 1),
        };
        let limiter = limiter.clone();
        tokio::spawn(async move { (number % 4, limiter.check_all(check).await.unwrap().is_allowed()) })
    });
    let mut admitted = [0; 4];
    for check in checks.collect::<Vec<_>>() {
        let (kind, allowed) = check.await.unwrap();
        admitted[kind as usize] += u64::from(allowed);
    }
    let spent = async |key: &str, policy: &Policy| {
        policy.limit() - limiter.peek(key, policy).await.unwrap().available().unwrap()
    };
    let mut of_keys = [0, 0];
    for key in ["k0", "k1", "k2"] {
        of_keys[0] += spent(key, &plain).await;
        of_keys[1] += spent(key, &monthly).await;
    }
    assert_eq!(of_keys, [admitted[0] + admitted[2], admitted[1] + admitted[2]]);
    assert_eq!(spent("all", &yearly).await, admitted[2] + admitted[3]);
    assert_eq!(of_keys[1], 3 * LIMIT, "each key has spent its month");
}

#[tokio::test]
async fn holds_and_changes_by_hand_find_the_window_of_their_time() {
    let Some(mut stepped) = SteppedServer::start() else { return };
    let limiter = Limiter::new(store(&stepped)).without_notices();
    let holding = monthly().with_holds(HoldSettings::new().with_ttl(Duration::from_secs(300 * 86_400)));
    let available = async |key: &str, policy: &Policy| limiter.peek(key, policy).await.unwrap().available().unwrap();
    assert!(limiter.check("k", &holding, 3).await.unwrap().is_allowed());
    let hold = limiter.hold("k", &holding, 4).await.unwrap().into_result().unwrap();
    assert_eq!(available("k", &holding).await, LIMIT - 7);
    assert!(limiter.check("hand", &monthly(), 6).await.unwrap().is_allowed());

    stepped.step(35 * DAY);
    // What was charged has passed with its window, and the hold is settled in the next one.
    hold.settle(2).await.unwrap();
    assert_eq!(available("k", &holding).await, LIMIT - 2);
    limiter.record("hand", &monthly(), 5).await.unwrap();
    assert_eq!(available("hand", &monthly()).await, LIMIT - 5);
    assert_eq!(limiter.credit("hand", &monthly(), 2).await.unwrap(), 2);

    stepped.step(35 * DAY);
    assert_eq!(limiter.credit("hand", &monthly(), 2).await.unwrap(), 0, "that window has passed");
    limiter.ban("hand", &monthly(), Duration::from_secs(60)).await.unwrap();
    let banned = limiter.check("hand", &monthly(), 1).await.unwrap();
    assert_eq!((banned.is_allowed(), banned.retry_after() <= Some(Duration::from_secs(60))), (false, true));
    assert!(limiter.unban("hand", &monthly()).await.unwrap());
    assert_eq!(available("hand", &monthly()).await, LIMIT);
}

/// A hold that ends before the window of the check is charged to a window that has passed.
#[tokio::test]
async fn a_hold_that_ends_unsettled_is_charged_to_the_window_of_its_end() {
    let Some(mut stepped) = SteppedServer::start() else { return };
    let (store, hour_us) = (store(&stepped), 3_600_000_000);
    let now_us = check(&store, &Check::new("k", &monthly(), 0)).await.time_us;
    // The window begins in ten hours.
    let policy = anchored(LIMIT, now_us + 10 * hour_us);
    for ttl_hours in [9, 11] {
        let ttl = HoldSettings::new().with_ttl(Duration::from_secs(ttl_hours * 3_600));
        let made = Check::hold(format!("{ttl_hours}"), &policy.clone().with_holds(ttl), 4);
        assert!(check(&store, &made).await.allowed);
    }
    stepped.step(12 * 3_600);
    for (ttl_hours, left) in [(9, LIMIT), (11, LIMIT - 4)] {
        let policy = policy.clone().with_holds(HoldSettings::new().with_ttl(Duration::from_secs(ttl_hours * 3_600)));
        let peek = check(&store, &Check::new(format!("{ttl_hours}"), &policy, 0)).await;
        assert_eq!(peek.outcomes[0].available, left, "{ttl_hours} hours");
    }
}
