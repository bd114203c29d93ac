//! Holds: units that count as spent until they are settled, released or expired. Skipped on stores without holds.

use std::time::Duration;

use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{Algorithm, Check, Policy, policy::HoldSettings};

use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::tested_store::TestedStore;

const TTL: Duration = Duration::from_secs(30);
const MICROSECOND: Duration = Duration::from_micros(1);

/// Ten units a minute, with holds that live for half a minute.
fn policy(algorithm: Algorithm, released: bool) -> Result<Policy, NotPassed> {
    let holds = HoldSettings::new().with_ttl(TTL).with_unsettled_released(released);
    Ok(Policy::per_minute("held", 10)?.with_algorithm(algorithm).with_holds(holds))
}

pub(super) async fn an_open_hold_counts_in_full_until_it_is_settled(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), policy(algorithm, false)?);
        let hold = store.hold(&key, &policy, 8).await?;
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(2), "{key}: available beside a hold of 8");
        ensure!(!store.check(&key, &policy, 3).await?.is_allowed(), "{key}: 3 of 2 units passed beside a hold");
        ensure!(store.check(&key, &policy, 2).await?.is_allowed(), "{key}: the last 2 units were denied");
        ensure_eq!(store.change_hold(&hold, HoldChange::Settle(3)).await?, SettleAnswer::Settled, "{key}");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(5), "{key}: available after a settlement of 3");
        let released = store.hold(&key, &policy, 5).await?;
        ensure_eq!(store.change_hold(&released, HoldChange::Settle(0)).await?, SettleAnswer::Settled, "{key}");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(5), "{key}: available after a release");
    }
    Ok(())
}

pub(super) async fn a_settlement_above_the_hold_is_charged_in_full(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), policy(algorithm, false)?);
        let hold = store.hold(&key, &policy, 2).await?;
        ensure!(store.check(&key, &policy, 6).await?.is_allowed());
        ensure_eq!(store.change_hold(&hold, HoldChange::Settle(9)).await?, SettleAnswer::Settled, "{key}");
        let denied = store.check(&key, &policy, 1).await?;
        ensure_eq!((denied.is_allowed(), denied.available()), (false, Some(0)), "{key}: 15 of 10 units are charged");
        let wait = denied.retry_after().unwrap_or_default();
        store.clock.advance(wait.saturating_sub(MICROSECOND));
        ensure!(!store.check(&key, &policy, 1).await?.is_allowed(), "{key}: a unit passed before the excess had left");
        store.clock.advance(MICROSECOND);
        ensure!(store.check(&key, &policy, 1).await?.is_allowed(), "{key}: denied at retry_after");
    }
    Ok(())
}

pub(super) async fn a_hold_is_settled_once_however_often_it_is_sent(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), policy(algorithm, false)?);
        let hold = store.hold(&key, &policy, 5).await?;
        ensure_eq!(store.change_hold(&hold, HoldChange::Settle(4)).await?, SettleAnswer::Settled, "{key}");
        for change in [HoldChange::Settle(4), HoldChange::Settle(0), HoldChange::Renew] {
            ensure_eq!(store.change_hold(&hold, change).await?, SettleAnswer::Expired, "{key}: {change:?} once more");
        }
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(6), "{key}: available after one settlement of 4");
    }
    Ok(())
}

pub(super) async fn a_hold_ends_at_its_time_to_live_charged_or_released(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        for (released, left) in [(false, 3), (true, 10)] {
            let (key, policy) = (format!("{algorithm:?} {released:?}"), policy(algorithm, released)?);
            let hold = store.hold(&key, &policy, 7).await?;
            store.clock.advance(TTL.saturating_sub(MICROSECOND));
            let before = store.peek(&key, &policy).await?.available();
            ensure!(before <= Some(3), "{key}: {before:?} of 10 units available beside an open hold of 7");
            store.clock.advance(MICROSECOND);
            ensure_eq!(store.peek(&key, &policy).await?.available(), Some(left), "{key}: available at the end");
            ensure_eq!(store.change_hold(&hold, HoldChange::Settle(0)).await?, SettleAnswer::Expired, "{key}");
            ensure_eq!(store.peek(&key, &policy).await?.available(), Some(left), "{key}: a late settlement changed it");
            // A new window, because the windows of a fixed window are aligned to the clock.
            store.clock.advance(Duration::from_secs(90));
        }
    }
    Ok(())
}

pub(super) async fn a_renewed_hold_lives_for_another_time_to_live(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), policy(algorithm, true)?);
        let hold = store.hold(&key, &policy, 7).await?;
        for _ in 0..3 {
            store.clock.advance(TTL.saturating_sub(MICROSECOND));
            ensure_eq!(store.change_hold(&hold, HoldChange::Renew).await?, SettleAnswer::Settled, "{key}: renewal");
            ensure_eq!(store.peek(&key, &policy).await?.available(), Some(3), "{key}: available beside a hold of 7");
        }
        store.clock.advance(TTL);
        ensure_eq!(store.change_hold(&hold, HoldChange::Renew).await?, SettleAnswer::Expired, "{key}: too late");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(10), "{key}: available after the end");
    }
    Ok(())
}

pub(super) async fn law_3_a_denied_check_holds_nothing(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), policy(algorithm, false)?);
        let narrow = Policy::per_minute("narrow", 1)?.with_algorithm(algorithm);
        let check = |cost| Check::hold(&*key, &policy, 6).and(&*key, &narrow, cost);
        ensure!(!store.check_all(check(2)).await?.is_allowed(), "{key}: 2 of 1 units passed");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(10), "{key}: available after the denial");
        ensure!(store.check_all(check(1)).await?.is_allowed(), "{key}: denied although all fits");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(4), "{key}: available beside a hold of 6");
        ensure_eq!(store.peek(&key, &narrow).await?.available(), Some(0), "{key}: the charge beside the hold");
    }
    Ok(())
}

pub(super) async fn slots_are_held_at_once_and_never_charged(store: TestedStore) -> Tested {
    store.requires_holds()?;
    let slots = Policy::concurrent("slots", 3)?.with_holds(HoldSettings::new().with_ttl(TTL));
    for round in 0..20 {
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(store.hold("slots", &slots, 1).await?);
        }
        let fourth = store.check_all(Check::hold("slots", &slots, 1)).await?;
        ensure!(!fourth.is_allowed(), "round {round}: a fourth slot of 3");
        ensure!(
            fourth.retry_after().is_some(),
            "round {round}: a slot may become free, so there is a wait: {fourth:?}"
        );
        for slot in held {
            ensure_eq!(store.change_hold(&slot, HoldChange::Settle(0)).await?, SettleAnswer::Settled, "round {round}");
        }
    }
    Ok(())
}

pub(super) async fn a_reset_ends_open_holds(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let (key, policy) = (format!("{algorithm:?}"), policy(algorithm, false)?);
        let hold = store.hold(&key, &policy, 7).await?;
        ensure!(store.reset(&key, &policy).await?, "{key}: the reset found nothing");
        ensure_eq!(store.change_hold(&hold, HoldChange::Settle(7)).await?, SettleAnswer::Expired, "{key}");
        ensure_eq!(store.peek(&key, &policy).await?.available(), Some(10), "{key}: available after the reset");
    }
    Ok(())
}
