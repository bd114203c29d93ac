//! Settlements that come after the end of their holds, on Redis.

use std::time::{Duration, Instant};

use tollgate::{Limiter, ManualClock, Policy, policy::HoldSettings, store::SettleAnswer};

use super::with_clock;
use crate::support::{ALGORITHMS, redis_server::RedisServer};

const TTL: Duration = Duration::from_secs(30);

/// What a hold of 4 units charges in all, if `actual` units are settled after its end.
const CASES: [(bool, u64, u64); 5] = [(false, 9, 9), (false, 25, 25), (false, 1, 4), (true, 9, 9), (true, 0, 0)];

#[tokio::test]
async fn what_a_late_settlement_is_above_the_charge_at_the_end_is_charged() {
    let (server, clock) = (RedisServer::start(), ManualClock::default());
    clock.set_us(1_767_225_600_000_000);
    let limiter = Limiter::new(with_clock(&server, &clock));
    for (number, (algorithm, (released, actual, charged))) in
        ALGORITHMS.into_iter().flat_map(|one| CASES.map(|case| (one, case))).enumerate()
    {
        let (key, case) = (format!("k{number}"), format!("{algorithm:?}, {released:?}, {actual}"));
        let holds = HoldSettings::new().with_ttl(TTL).with_unsettled_released(released);
        let policy = Policy::per_hour("tokens", 20).unwrap().with_algorithm(algorithm).with_holds(holds);
        let hold = limiter.hold(&*key, &policy, 4).await.unwrap().into_result().unwrap();
        clock.advance(TTL);
        assert_eq!(hold.settle(actual).await.unwrap(), SettleAnswer::Expired, "{case}");
        let (left, start) = (20_u64.saturating_sub(charged), Instant::now());
        while limiter.peek(&*key, &policy).await.unwrap().available() != Some(left) {
            assert!(start.elapsed() < Duration::from_secs(10), "{case}: the late units are not charged");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(limiter.credit(&*key, &policy, u64::MAX).await.unwrap(), charged, "{case}: once");
    }
}
