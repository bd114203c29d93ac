//! Resets: a count, and a ban, is forgotten.

use std::time::Duration;

use tollgate::Policy;

use crate::failure::{Tested, ensure, ensure_eq};
use crate::{feature::Feature, tested_store::TestedStore};

pub(super) async fn a_reset_removes_one_key_under_one_policy(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = |name| Policy::per_minute(name, 1).map(|policy| policy.with_algorithm(algorithm));
        let (p, q) = (policy("p")?, policy("q")?);
        for (key, policy) in [("a", &p), ("a", &q), ("b", &p)] {
            ensure!(store.check(key, policy, 1).await?.is_allowed(), "{algorithm:?}: the first unit was denied");
        }
        ensure!(store.reset("a", &p).await?, "{algorithm:?}: the reset says that there was no count");
        ensure!(store.check("a", &p, 1).await?.is_allowed(), "{algorithm:?}: the reset left the count as it was");
        ensure!(
            !store.check("a", &q, 1).await?.is_allowed(),
            "{algorithm:?}: the reset removed another policy's count"
        );
        ensure!(!store.check("b", &p, 1).await?.is_allowed(), "{algorithm:?}: the reset removed another key's count");
    }
    Ok(())
}

pub(super) async fn a_reset_reports_whether_there_was_a_count(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 1)?.with_algorithm(algorithm);
        let key = format!("{algorithm:?}");
        ensure!(!store.reset(key.as_str(), &policy).await?, "{key}: nothing was spent yet");
        let _ = store.check(key.as_str(), &policy, 1).await?;
        ensure!(!store.reset("another", &policy).await?, "{key}: another key has no count");
        let per_hour = Policy::per_hour("p", 1)?.with_algorithm(algorithm);
        ensure!(!store.reset(key.as_str(), &per_hour).await?, "{key}: another window has no count");
        ensure!(store.reset(key.as_str(), &policy).await?, "{key}: there was a count");
        ensure!(!store.reset(key.as_str(), &policy).await?, "{key}: the second reset finds nothing");
    }
    Ok(())
}

pub(super) async fn a_reset_lifts_a_ban_and_reports_it(store: TestedStore) -> Tested {
    store.requires(Feature::Bans)?;
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let policy = Policy::per_minute("p", 1)?.with_algorithm(algorithm).ban_after(1, Duration::from_secs(600));
        let _ = store.check(key.as_str(), &policy, 1).await?;
        let banned = store.check(key.as_str(), &policy, 1).await?;
        ensure!(banned.policies()[0].ban.is_some(), "{key}: the first denial does not ban");
        // The count has left its window; the ban is still in force.
        store.clock.advance(Duration::from_secs(120));
        ensure!(store.reset(key.as_str(), &policy).await?, "{key}: the reset says that there was no ban");
        ensure_eq!(store.peek(key.as_str(), &policy).await?.available(), Some(1), "{key}: available after the reset");
    }
    Ok(())
}
