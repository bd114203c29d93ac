//! How blocks end: used up, idle, closed, reset, expired, or with their runtime.

use tollgate::{Decision, FailurePolicy, MemoryStore, clock::TokioClock};

use super::*;

/// What another process sees.
async fn available(remote: &Remote, policy: &Policy) -> u64 {
    remote.limiter().peek(KEY, policy).await.unwrap().available().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_not_spent_is_given_back_after_a_second_without_a_check() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let _limiter = hot(&remote, &policy).await;
    assert!(available(&remote, &policy).await < 100_000 - 200, "a block is open");
    sleep(IDLE).await;
    assert_eq!(available(&remote, &policy).await, 100_000 - 200);
    let [_, holds, settlements] = remote.calls();
    assert_eq!(holds, settlements);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_closed_has_given_back_what_it_has_not_spent() {
    let (remote, _) = Remote::new(4 * MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    let spent = 200;
    limiter.clone().close().await;
    assert_eq!(available(&remote, &policy).await, 100_000 - spent);
    let [_, holds, settlements] = remote.calls();
    assert_eq!(holds, settlements);
    // Later checks go to the store.
    let got = load(&limiter, &policy, 10, 20).await;
    assert_eq!((got.admitted, got.from_blocks), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_dropped_gives_back_what_it_has_not_spent() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    drop(hot(&remote, &policy).await);
    sleep(IDLE).await;
    assert_eq!(available(&remote, &policy).await, 100_000 - 200);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_no_longer_than_three_deadlines_for_a_store_that_is_away() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    remote.set_away(true);
    let start = tokio::time::Instant::now();
    limiter.close().await;
    // A machine that stands still extends a deadline, so less than four deadlines.
    assert!(start.elapsed() < 200 * MS, "{:?}", start.elapsed());
    // The settlement is sent again until the store answers.
    remote.set_away(false);
    sleep(2 * SECOND).await;
    assert_eq!(available(&remote, &policy).await, 100_000 - 200);
}

/// The release has overtaken the request.
#[tokio::test(start_paused = true)]
async fn a_close_waits_for_a_block_on_its_way_and_releases_it_again() {
    let (remote, _) = Remote::new(40 * MS);
    let policy = per_minute(1_000_000, 1_000);
    let limiter = remote.limiter();
    let mut checks = JoinSet::new();
    for round in 0.. {
        assert!(round < 1_000, "no block is requested");
        if remote.calls()[1] > 0 {
            break;
        }
        for _ in 0..10 {
            checks.spawn(limiter.check(KEY, &policy, 1));
        }
        sleep(MS).await;
    }
    // The store makes the hold 20 ms after its request.
    remote.set_latency(MS);
    let start = tokio::time::Instant::now();
    limiter.close().await;
    assert_eq!(remote.calls()[1..], [1, 2]);
    assert!(start.elapsed() < 40 * MS, "the close goes on when nothing is on its way: {:?}", start.elapsed());
    let admitted = checks.join_all().await.into_iter().filter(|decision| decision.as_ref().unwrap().is_allowed());
    assert_eq!(available(&remote, &policy).await, 1_000_000 - admitted.count() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_was_spent_and_what_is_held() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    assert!(limiter.reset(KEY, &policy).await.unwrap());
    sleep(20 * MS).await;
    assert_eq!(available(&remote, &policy).await, 100_000);
    let got = load(&limiter, &policy, 10, 20).await;
    assert_eq!(got.admitted, 200);
    sleep(IDLE).await;
    assert_eq!(available(&remote, &policy).await, 100_000 - 200);
}

/// The blocks are settled before the count is reset.
#[tokio::test(start_paused = true)]
async fn law_1_a_reset_that_fails_forgets_nothing_that_was_spent() {
    let (remote, _) = Remote::new(4 * MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    let reset = tokio::spawn({
        let policy = policy.clone();
        async move { limiter.reset(KEY, &policy).await }
    });
    // The settlement is answered, and the reset is on its way.
    sleep(5 * MS).await;
    remote.set_away(true);
    assert!(reset.await.unwrap().is_err());
    remote.set_away(false);
    sleep(IDLE).await;
    assert_eq!(available(&remote, &policy).await, 100_000 - 200);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_a_block_is_spent_and_then_the_failure_policy_decides() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(1_000_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    remote.set_away(true);
    let (mut spent, mut failed) = (0, 0);
    for _ in 0..2_000 {
        match limiter.check(KEY, &policy, 1).await {
            Ok(decision) => {
                assert_eq!((decision.is_allowed(), decision.source()), (true, Source::Lease));
                assert_eq!(failed, 0, "the block was used up before");
                spent += 1;
            }
            Err(error) => {
                failed += 1;
                assert!(!error.may_have_charged());
                assert!(FailurePolicy::Open.resolve::<Decision>(Err(error)).is_allowed());
            }
        }
    }
    assert!(spent > 0 && spent <= 2_000 && failed > 0, "{spent}, {failed}");
    remote.set_away(false);
    sleep(SECOND).await;
    let got = load(&limiter, &policy, 10, 20).await;
    assert!(got.admitted == 200 && got.from_blocks > 0, "{got:?}");
}

/// A check that waited for a block in vain would have lost half of its time.
#[tokio::test(start_paused = true)]
async fn no_block_is_requested_and_no_check_waits_for_one_while_the_store_is_away_or_may_be_behind() {
    let (remote, clock) = Remote::new(MS);
    let remote = remote.with_breaker();
    let policy = per_minute(1_000_000, 1_000);
    let limiter = remote.limiter().with_local_fallback(MemoryStore::new().with_clock(clock), 2);
    assert!(load(&limiter, &policy, 10, 20).await.from_blocks > 0);
    remote.set_away(true);
    // The open blocks, of at most a thousand units each, serve the first checks.
    let mut checks = 0;
    while !limiter.is_breaker_open() {
        assert!(checks < 3_000, "the breaker stays closed");
        let _ = limiter.check(KEY, &policy, 1).await;
        checks += 1;
    }
    let [_, holds, _] = remote.calls();
    // The pause after a request that has failed is over.
    sleep(60 * MS).await;
    let start = tokio::time::Instant::now();
    assert!(limiter.check(KEY, &policy, 1).await.is_err());
    assert_eq!(start.elapsed(), Duration::ZERO);
    remote.set_away(false);
    sleep(130 * MS).await;
    assert!(check(&limiter, &policy, 1).await.is_allowed(), "a probe closes the breaker");
    // For a second, other instances may have debts.
    let got = load(&limiter, &policy, 10, 100).await;
    assert_eq!((got.admitted, got.from_blocks, remote.calls()[1]), (1_000, 0, holds));
    sleep(SECOND).await;
    assert!(load(&limiter, &policy, 10, 20).await.from_blocks > 0);
}

#[tokio::test(start_paused = true)]
async fn law_9_a_hold_whose_fate_is_unknown_is_not_spent_and_is_released() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(1_000_000, 1_000);
    let limiter = remote.limiter();
    remote.set_loses_holds(true);
    let mut checks = JoinSet::new();
    for _ in 0..50 {
        for _ in 0..10 {
            checks.spawn(limiter.check(KEY, &policy, 1));
        }
        sleep(MS).await;
    }
    let (mut admitted, mut failed) = (0, 0);
    while let Some(result) = checks.join_next().await {
        match result.unwrap() {
            Ok(decision) => {
                assert_eq!(decision.source(), Source::Store);
                admitted += 1;
            }
            Err(error) => {
                assert!(!error.may_have_charged(), "nothing was charged for the check itself");
                failed += 1;
            }
        }
    }
    let [_, holds, _] = remote.calls();
    assert!(failed > 0 && holds > 0 && holds < 5, "{failed} failed, {holds} holds");
    sleep(IDLE).await;
    assert_eq!(available(&remote, &policy).await, 1_000_000 - admitted);
}

#[test]
fn a_lease_ends_with_its_runtime_and_another_runtime_goes_on() {
    let store = tollgate::MemoryStore::new();
    let limiter = Limiter::new(store.clone());
    let policy = per_minute(1_000_000, 1_000);
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let got = runtime.block_on(load(&limiter, &policy, 20, 20));
        assert!(got.admitted == 400 && got.from_blocks > 0, "{got:?}");
    }
    let spent = 1_000_000 - limiter.try_check(KEY, &policy, 1).unwrap().available().unwrap();
    assert_eq!(spent, 801, "blocks of a runtime that has ended are settled");
}

#[test]
fn a_block_that_was_on_its_way_when_its_runtime_ended_is_released_with_the_next_use() {
    let (remote, _) = Remote::new(10 * MS);
    let policy = per_minute(1_000_000, 1_000);
    let limiter = remote.limiter();
    let paused = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    paused().block_on(async {
        let mut checks = JoinSet::new();
        while remote.calls()[1] == 0 {
            for _ in 0..10 {
                checks.spawn(limiter.check(KEY, &policy, 1));
            }
            sleep(MS).await;
        }
        // The store has made the hold after 5 ms, and the keeper would know it after 10 ms.
        sleep(6 * MS).await;
        assert_eq!(remote.calls()[1..], [1, 0], "one block is on its way");
    });
    paused().block_on(async {
        assert!(check(&limiter, &policy, 1).await.is_allowed());
        sleep(IDLE).await;
        let [checks, _, _] = remote.calls();
        assert_eq!(available(&remote, &policy).await, 1_000_000 - u64::try_from(checks).unwrap());
    });
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_other() {
    let store = tollgate::MemoryStore::new();
    let limiter = Limiter::new(store.clone());
    let policy = per_minute(1_000_000, 1_000);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (still, other) = (runtime(), runtime());
    assert!(still.block_on(load(&limiter, &policy, 20, 20)).from_blocks > 0);
    let got = other.block_on(load(&limiter, &policy, 20, 200));
    assert!(got.admitted == 4_000 && got.from_blocks > 3_000, "{got:?}");
    drop(still);
}

#[test]
fn without_a_runtime_and_without_timers_every_check_goes_to_the_store() {
    let limiter = Limiter::new(tollgate::MemoryStore::new());
    let policy = per_minute(1_000_000, 1_000);
    for _ in 0..100 {
        assert_eq!(limiter.try_check(KEY, &policy, 1).unwrap().source(), Source::Store);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for _ in 0..100 {
            assert_eq!(check(&limiter, &policy, 1).await.source(), Source::Store);
        }
    });
}

/// The policy's own time-to-live is a minute.
#[tokio::test(start_paused = true)]
async fn law_15_blocks_that_nobody_settles_are_held_for_two_seconds() {
    let (remote, _) = Remote::new(MS);
    let policy = policy(10_000, 5_000);
    let limiter = hot(&remote, &policy).await;
    // The process is killed, or stopped for longer than this: no settlement reaches the store.
    remote.set_loses_settlements(true);
    limiter.close().await;
    sleep(SECOND).await;
    assert!(available(&remote, &policy).await < 10_000, "a block is open");
    // It is charged when its time has passed, and the charge leaves a window later.
    sleep(2 * SECOND).await;
    assert_eq!(available(&remote, &policy).await, 10_000);
}

/// A limiter of another process cannot settle the blocks. A second block is untouched when the first one is used up.
#[tokio::test(start_paused = true)]
async fn blocks_are_spent_for_two_times_of_a_block_after_a_ban_by_another_limiter() {
    for (per_ms, ms) in [(1, 300), (1, 1_500), (5, 1_003), (20, 320), (20, 1_200)] {
        for pace in [90, 400, 950] {
            let store = MemoryStore::new().with_clock(TokioClock::new());
            let policy = Policy::per_hour("p", 1_000_000).unwrap().with_lease(2_000);
            let limiter = Limiter::new(store.clone());
            load(&limiter, &policy, per_ms, ms).await;
            Limiter::new(store).ban(KEY, &policy, 600 * SECOND).await.unwrap();
            let (start, mut last) = (tokio::time::Instant::now(), Duration::ZERO);
            while start.elapsed() < 10 * SECOND {
                if check(&limiter, &policy, 1).await.source() == Source::Lease {
                    last = start.elapsed();
                }
                sleep(pace * MS).await;
            }
            assert!(last <= 4 * SECOND, "{per_ms} a millisecond for {ms} ms, then every {pace} ms: {last:?}");
        }
    }
}

/// Also where no further block pays.
#[tokio::test(start_paused = true)]
async fn a_block_is_settled_after_two_times_of_a_block() {
    let (remote, _) = Remote::new(MS);
    let policy = per_minute(100_000, 1_000);
    let limiter = hot(&remote, &policy).await;
    let (mut known, mut since) = (0, tokio::time::Instant::now());
    for _ in 0..60 {
        assert!(check(&limiter, &policy, 1).await.is_allowed());
        let [_, holds, settlements] = remote.calls();
        if holds != known {
            (known, since) = (holds, tokio::time::Instant::now());
        }
        assert!(holds == settlements || since.elapsed() < 4_600 * MS, "{:?}", since.elapsed());
        sleep(500 * MS).await;
    }
}
