//! Parallel checks: on several threads, while the clock stands still.

use std::future::Future;

use tokio::task::JoinHandle;
use tollgate::{Check, Policy};

use crate::failure::{NotPassed, Tested, ensure_eq};
use crate::{isolation::panicked, tested_store::TestedStore};

const TASKS: u64 = 32;

/// Runs a task for each number, and adds up what they return.
async fn sum<F, Fut>(task: F) -> Result<u64, NotPassed>
where
    F: Fn(u64) -> Fut,
    Fut: Future<Output = Result<u64, NotPassed>> + Send + 'static,
{
    let tasks: Vec<JoinHandle<_>> = (0..TASKS).map(|number| tokio::spawn(task(number))).collect();
    let mut sum = 0;
    for task in tasks {
        sum += match task.await {
            Ok(result) => result?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => return Err(panicked(&*panic)),
                Err(error) => return Err(NotPassed::failed(error)),
            },
        };
    }
    Ok(sum)
}

pub(super) async fn law_1_parallel_checks_of_one_key_admit_the_limit_and_no_more(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 100)?.with_algorithm(algorithm);
        let admitted = sum(|_| {
            let (store, policy) = (store.clone(), policy.clone());
            async move {
                let mut admitted = 0;
                for _ in 0..8 {
                    admitted += u64::from(store.check("k", &policy, 1).await?.is_allowed());
                }
                Ok(admitted)
            }
        });
        ensure_eq!(admitted.await?, 100, "{algorithm:?}: admitted by {TASKS} tasks under a limit of 100");
    }
    Ok(())
}

pub(super) async fn law_3_parallel_checks_of_several_keys_are_charged_whole(store: TestedStore) -> Tested {
    for algorithm in store.algorithms()? {
        let policy = Policy::per_minute("p", 60)?.with_algorithm(algorithm);
        let admitted = sum(|number| {
            let (store, policy) = (store.clone(), policy.clone());
            // Tasks charge the keys in both orders, which must not lock the store up.
            let keys = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
            async move {
                let mut admitted = 0;
                for _ in 0..4 {
                    let check = Check::new(keys[0], &policy, 1).and(keys[1], &policy, 1);
                    admitted += u64::from(store.check_all(check).await?.is_allowed());
                }
                Ok(admitted)
            }
        });
        ensure_eq!(admitted.await?, 60, "{algorithm:?}: checks of two keys admitted under a limit of 60");
        for key in ["a", "b"] {
            ensure_eq!(store.peek(key, &policy).await?.available(), Some(0), "{algorithm:?}: available to {key:?}");
        }
    }
    Ok(())
}
