//! Holds in several runtimes, of which one ends, is not driven, or computes.

use std::time::{Duration, Instant};
use std::{sync::mpsc, thread};

use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;
use tollgate::{Limiter, MemoryStore, Policy, limiter::Hold, policy::HoldSettings};

use super::distant_store::DistantStore;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn policy(ttl: Duration) -> Policy {
    Policy::concurrent("one", 1).unwrap().with_holds(HoldSettings::new().with_ttl(ttl))
}

async fn slot(limiter: &Limiter, key: &str, policy: &Policy) -> Option<Hold> {
    limiter.hold(key, policy, 1).await.unwrap().into_result().ok()
}

fn is_free(memory: &MemoryStore, key: &str, policy: &Policy) -> bool {
    current_thread().block_on(Limiter::new(memory.clone()).peek(key, policy)).unwrap().is_allowed()
}

/// Waits until the slot of `key` is free, for as long as a slot can last without its end: no longer than `longest`.
fn is_free_within(memory: &MemoryStore, key: &str, policy: &Policy, longest: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < longest {
        if is_free(memory, key, policy) {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// What a second runtime does after it has dropped a hold.
#[derive(Clone, Copy, Debug)]
enum Afterwards {
    /// It exists, and nothing drives it.
    Idles,
    /// Its thread computes.
    Computes,
    Ends,
}

const LONG: Duration = Duration::from_secs(20);

/// The slots last a minute without an end.
#[test]
fn law_15_a_second_runtime_that_does_not_run_keeps_no_end_from_the_store() {
    for afterwards in [Afterwards::Idles, Afterwards::Computes, Afterwards::Ends] {
        let memory = MemoryStore::new();
        let limiter = Limiter::new(DistantStore::over(memory.clone()));
        let policy = policy(Duration::from_secs(60));
        let (dropped, first_is_dropped) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let second = {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            thread::spawn(move || {
                let runtime = current_thread();
                runtime.block_on(async {
                    drop(slot(&limiter, "second", &policy).await.unwrap());
                    if let Afterwards::Computes = afterwards {
                        dropped.send(()).unwrap();
                        let _ = stopped.recv();
                    }
                });
                if let Afterwards::Ends = afterwards {
                    drop(runtime);
                    dropped.send(()).unwrap();
                } else if let Afterwards::Idles = afterwards {
                    dropped.send(()).unwrap();
                    let _ = stopped.recv();
                    drop(runtime);
                }
            })
        };
        first_is_dropped.recv().unwrap();
        let main = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        for key in ["a", "b", "c"] {
            main.block_on(async { drop(slot(&limiter, key, &policy).await.unwrap()) });
            assert!(is_free_within(&memory, key, &policy, LONG), "{afterwards:?}: the end of {key} is sent");
        }
        // With the next use, another runtime sends what the second one has not sent.
        sleep_on(&main, Duration::from_millis(600));
        main.block_on(async { drop(slot(&limiter, "d", &policy).await.unwrap()) });
        assert!(is_free_within(&memory, "second", &policy, LONG), "{afterwards:?}: the end of the second runtime");
        drop(stop);
        second.join().unwrap();
    }
}

fn sleep_on(runtime: &Runtime, time: Duration) {
    runtime.block_on(async { sleep(time).await });
}

/// The thread of a job drops its handle and its runtime while it unwinds. The other threads of the process go on.
#[test]
fn law_15_a_slot_of_a_job_that_panics_with_its_runtime_is_given_back_with_the_next_use() {
    let policy = policy(Duration::from_secs(60));
    let memory = MemoryStore::new();
    let limiter = Limiter::new(DistantStore::over(memory.clone()));
    let main = current_thread();
    // The end is on its way when the job panics, or the panic drops the handle.
    for is_on_its_way in [true, false] {
        let key = if is_on_its_way { "on its way" } else { "held" };
        let job = {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            thread::spawn(move || {
                current_thread().block_on(async {
                    let mut held = slot(&limiter, key, &policy).await;
                    if is_on_its_way {
                        drop(held.take());
                        tokio::task::yield_now().await;
                    }
                    panic!("the job fails");
                });
            })
        };
        job.join().unwrap_err();
        let _ = main.block_on(limiter.peek("other", &policy)).unwrap();
        sleep_on(&main, Duration::from_millis(500));
        assert!(is_free(&memory, key, &policy), "{key}");
    }
}

/// Each slot is held by a handle that lives on, whatever its runtime does.
#[test]
fn law_1_slots_of_a_runtime_that_does_not_run_are_renewed_in_another_one() {
    let policy = policy(Duration::from_millis(1_200));
    for afterwards in [Afterwards::Idles, Afterwards::Computes, Afterwards::Ends] {
        let memory = MemoryStore::new();
        let limiter = Limiter::new(DistantStore::over(memory.clone()));
        let main = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (made, is_made) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let second = {
            let (limiter, policy) = (limiter.clone(), policy.clone());
            thread::spawn(move || {
                let runtime = current_thread();
                let held = runtime.block_on(async {
                    let held = slot(&limiter, "second", &policy).await.unwrap();
                    if let Afterwards::Computes = afterwards {
                        made.send(()).unwrap();
                        let _ = stopped.recv();
                    }
                    held
                });
                let runtime = Some(runtime).filter(|_| !matches!(afterwards, Afterwards::Ends));
                if !matches!(afterwards, Afterwards::Computes) {
                    made.send(()).unwrap();
                    let _ = stopped.recv();
                }
                drop((held, runtime));
            })
        };
        is_made.recv().unwrap();
        let own = main.block_on(slot(&limiter, "main", &policy)).unwrap();
        for _ in 0..8 {
            sleep_on(&main, Duration::from_millis(400));
            for key in ["main", "second"] {
                assert!(main.block_on(slot(&limiter, key, &policy)).is_none(), "{afterwards:?}: two hold {key}");
            }
        }
        drop(own);
        drop(stop);
        second.join().unwrap();
    }
}

/// The handle moves to a runtime that has never held anything, and uses the limiter for other checks.
#[test]
fn law_1_a_slot_whose_runtime_has_ended_is_renewed_by_one_that_uses_the_limiter() {
    let policy = policy(Duration::from_millis(1_200));
    let limiter = Limiter::new(DistantStore::over(MemoryStore::new()));
    let first = current_thread();
    let held = first.block_on(slot(&limiter, "k", &policy)).unwrap();
    drop(first);
    let second = current_thread();
    for _ in 0..10 {
        second.block_on(async {
            let left = limiter.peek("k", &policy).await.unwrap().available();
            assert_eq!(left, Some(0), "the slot is held");
            sleep(Duration::from_millis(300)).await;
        });
    }
    second.block_on(held.release()).unwrap();
}

/// Callers of two runtimes wait in one queue, whose dispatcher is in the runtime that ends.
#[test]
fn law_1_a_slot_of_a_waiter_is_renewed_in_its_own_runtime() {
    let policy = policy(Duration::from_millis(1_200));
    let memory = MemoryStore::new();
    let limiter = Limiter::new(DistantStore::over(memory.clone()));
    let (ready, is_ready) = mpsc::channel();
    let (stop, stopped) = mpsc::channel::<()>();
    let first = {
        let (limiter, policy) = (limiter.clone(), policy.clone());
        thread::spawn(move || {
            let runtime = current_thread();
            runtime.block_on(async {
                let held = slot(&limiter, "k", &policy).await.unwrap();
                let mut waits = Box::pin(limiter.acquire_hold("k", &policy, 1).within(LONG));
                assert!(tokio::time::timeout(Duration::from_millis(100), &mut waits).await.is_err());
                ready.send(()).unwrap();
                // The other runtime joins the queue meanwhile.
                sleep(Duration::from_millis(200)).await;
                drop(held);
                drop(waits.await.unwrap());
                while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    sleep(Duration::from_millis(5)).await;
                }
            });
        })
    };
    is_ready.recv().unwrap();
    let second = current_thread();
    let held = second.block_on(limiter.acquire_hold("k", &policy, 1).within(LONG)).unwrap();
    assert!(held.is_allowed());
    drop(stop);
    first.join().unwrap();
    for _ in 0..10 {
        sleep_on(&second, Duration::from_millis(300));
        assert!(!is_free(&memory, "k", &policy), "the slot is held");
    }
    drop(held);
}

/// The store has made the hold, and the task that waits for its answer has ended.
#[test]
fn law_15_a_slot_whose_dispatcher_has_ended_with_its_runtime_is_given_back_with_the_next_use() {
    let policy = policy(Duration::from_secs(60));
    let memory = MemoryStore::new();
    let limiter = Limiter::new(DistantStore::over(memory.clone()));
    let first = current_thread();
    first.block_on(async {
        let asking = limiter.acquire_hold("k", &policy, 1).within(LONG);
        let made = async {
            let near = Limiter::new(memory.clone());
            while near.peek("k", &policy).await.unwrap().is_allowed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // On a busy machine, the answer may be there as well.
        tokio::select! { biased; () = made => {}, _ = asking => panic!("the hold was not made") }
    });
    drop(first);
    let second = current_thread();
    let _ = second.block_on(limiter.peek("other", &policy)).unwrap();
    sleep_on(&second, Duration::from_millis(500));
    assert!(is_free(&memory, "k", &policy));
}
