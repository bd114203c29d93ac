//! Alternatives: of several charges, the first that fits is charged.

use tollgate::{Check, Policy};

use crate::failure::{Tested, ensure_eq};
use crate::tested_store::TestedStore;

pub(super) async fn law_3_of_alternatives_the_first_with_room_is_charged_whole(store: TestedStore) -> Tested {
    store.requires_alternatives()?;
    for algorithm in store.algorithms()? {
        let key = format!("{algorithm:?}");
        let policy = |name, limit| Policy::per_minute(name, limit).map(|policy| policy.with_algorithm(algorithm));
        let (first, second, beside) = (policy("first", 5)?, policy("second", 9)?, policy("beside", 6)?);
        for (cost, beside_cost, allowed, left) in [
            (3, 1, true, [2, 9, 5]),
            (3, 1, true, [2, 6, 4]),
            (2, 0, true, [0, 6, 4]),
            (7, 1, false, [0, 6, 4]),
            (1, 5, false, [0, 6, 4]),
            (6, 4, true, [0, 0, 0]),
        ] {
            let check = Check::new(&*key, &beside, beside_cost).and_first_of(&*key, [&first, &second], cost);
            let decision = store.check_all(check).await?;
            ensure_eq!(decision.is_allowed(), allowed, "{key}: {cost} units beside {beside_cost}");
            for (policy, left) in [&first, &second, &beside].into_iter().zip(left) {
                let available = store.peek(&*key, policy).await?.available();
                ensure_eq!(available, Some(left), "{key}: {} after {cost} units beside {beside_cost}", policy.name());
            }
        }
    }
    Ok(())
}
