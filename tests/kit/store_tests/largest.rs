//! The largest limit: units beyond 32 bits are counted exactly, and a cost above the limit is a denial.

use std::time::Duration;

use tollgate::store::CountChange::{Credit, Record};
use tollgate::store::{HoldChange, SettleAnswer};
use tollgate::{Check, Policy, clock::Clock, policy::HoldSettings};

use super::agreement::{Oracles, Seen};
use crate::failure::{NotPassed, Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

const MOST: u64 = Policy::MAX_LIMIT;
const WORD: u64 = 1 << 32;
const WINDOW: Duration = Duration::from_secs(60);

/// Costs at the bounds of 32 bits and of the largest limit.
const COSTS: [u64; 12] =
    [1, WORD - 1, WORD, WORD + 1, MOST - 3 * WORD - 2, 1, MOST - 1, MOST, MOST + 1, u64::MAX, 0, MOST / 2];
/// The time before each cost, in milliseconds. Charges leave the window one by one, and all at once.
const STEPS: [[u64; 12]; 3] = [
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 1, 7_000, 1, 20_000, 30_000, 2_999, 4_001, 1, 1, 26_000, 33_000],
    [59_999, 1, 60_000, 1, 61_000, 1, 60_000, 60_001, 1, 30_000, 30_000, 1],
];

/// Policies of the largest limit: one for each algorithm, and those with a resolution, a smaller burst and counted
/// denials as far as the store has them.
fn policies(store: &TestedStore) -> Result<Vec<Policy>, NotPassed> {
    let mut policies = Vec::new();
    for algorithm in store.algorithms()? {
        let policy = |kind: &str| {
            Policy::new(format!("{algorithm:?}-{kind}"), MOST, WINDOW).map(|policy| policy.with_algorithm(algorithm))
        };
        policies.push(policy("plain")?);
        if policies.last().is_some_and(|plain| plain.burst().is_some()) {
            policies.push(policy("burst")?.with_burst(MOST - 1));
        } else if policies.last().is_some_and(|plain| plain.resolution().is_some())
            && store.requires(Feature::Resolution).is_ok()
        {
            policies.push(policy("resolution")?.with_resolution(WINDOW / 100));
        }
        if store.requires(Feature::CountRejected).is_ok() {
            policies.push(policy("rejected")?.with_denials_counted(true));
        }
    }
    Ok(policies)
}

pub(super) async fn law_12_charges_up_to_the_largest_limit_agree_with_the_oracle(store: TestedStore) -> Tested {
    for policy in policies(&store)? {
        let mut oracles = Oracles::default();
        for (number, steps) in STEPS.iter().enumerate() {
            for (cost, step) in COSTS.iter().zip(steps) {
                store.clock.advance(Duration::from_millis(*step));
                let check = Check::new("k", &policy, *cost);
                let (decision, expected) = (store.check_all(check.clone()).await?, oracles.decide(&check, now(&store)));
                ensure_eq!(Seen::all(&decision), expected, "{}, round {number}: a cost of {cost}", policy.name());
            }
        }
    }
    Ok(())
}

pub(super) async fn law_12_changes_by_hand_up_to_the_largest_limit_agree_with_the_oracle(store: TestedStore) -> Tested {
    store.requires(Feature::CountChanges)?;
    for policy in policies(&store)? {
        let mut oracles = Oracles::default();
        let changes = [
            Record(WORD + 1),
            Record(MOST),
            Credit(WORD),
            Record(u64::MAX),
            Credit(MOST - 1),
            Record(1),
            Credit(u64::MAX),
        ];
        for (change, cost) in changes.into_iter().zip(COSTS) {
            store.clock.advance(Duration::from_millis(1_700));
            let changed = store.change_count("k", &policy, change).await?;
            let expected = oracles.change("k", &policy, change, now(&store));
            ensure_eq!(changed, expected, "{}: {change:?}", policy.name());
            store.clock.advance(Duration::from_millis(1));
            let check = Check::new("k", &policy, cost);
            let (decision, expected) = (store.check_all(check.clone()).await?, oracles.decide(&check, now(&store)));
            ensure_eq!(Seen::all(&decision), expected, "{}: a cost of {cost} after {change:?}", policy.name());
        }
    }
    Ok(())
}

pub(super) async fn holds_up_to_the_largest_limit_are_exact(store: TestedStore) -> Tested {
    store.requires_holds()?;
    for algorithm in store.algorithms()? {
        let policy = Policy::new("p", MOST, WINDOW)?.with_algorithm(algorithm).with_holds(HoldSettings::new());
        let key = format!("{algorithm:?}");
        let (large, small) =
            (store.hold(&*key, &policy, MOST - WORD).await?, store.hold(&*key, &policy, WORD - 1).await?);
        ensure_eq!(store.peek(&*key, &policy).await?.available(), Some(1), "{key}: available beside the holds");
        for (cost, fits) in [(2, false), (u64::MAX, false), (1, true)] {
            let decision = store.check(&*key, &policy, cost).await?;
            ensure_eq!(decision.is_allowed(), fits, "{key}: a cost of {cost} beside the holds");
        }
        let settled = store.change_hold(&large, HoldChange::Settle(WORD + 1)).await?;
        ensure_eq!(settled, SettleAnswer::Settled, "{key}: the large hold");
        let left = MOST - (WORD + 1) - (WORD - 1) - 1;
        ensure_eq!(store.peek(&*key, &policy).await?.available(), Some(left), "{key}: available after a settlement");
        let settled = store.change_hold(&small, HoldChange::Settle(u64::MAX)).await?;
        ensure_eq!(settled, SettleAnswer::Settled, "{key}: the small hold");
        let denied = store.check(&*key, &policy, 1).await?;
        ensure!(!denied.is_allowed() && denied.available() == Some(0), "{key}: after more units than any limit");
    }
    Ok(())
}

fn now(store: &TestedStore) -> u64 {
    store.clock.now_us()
}
