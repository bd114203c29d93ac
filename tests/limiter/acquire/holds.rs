//! Waiting beside holds, whose ends nothing foretells.

use tollgate::store::{Answer, Charge, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{Check, ErrorKind, Key, limiter::HoldAnswer, policy::HoldSettings};

use super::*;

/// Ten units a minute, which can be held.
fn tokens() -> Policy {
    Policy::per_minute("tokens", 10).unwrap().with_holds(HoldSettings::new())
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_not_denied_because_of_a_hold_that_may_end() {
    let (limiter, start) = (limiter().with_max_waiters(9, 9), Instant::now());
    let hold = limiter.hold(KEY, &tokens(), 10).await.unwrap().into_result().unwrap();
    let waiting = tokio::spawn(limiter.acquire(KEY, &tokens(), 4).within(SECOND / 2));
    tokio::time::sleep(SECOND / 10).await;
    hold.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_allowed());
    assert_eq!(start.elapsed(), SECOND / 10, "woken by the release");
    // Four units are charged for a minute. Beside them six are held.
    let hold = limiter.hold(KEY, &tokens(), 6).await.unwrap();
    assert!(!limiter.acquire(KEY, &tokens(), 7).within(SECOND / 2).await.unwrap().is_allowed());
    // A first check may be sent up to 3 ms later, so that those of several processes differ.
    assert!(start.elapsed() <= SECOND / 10 + Duration::from_millis(5), "denied at once because of the charge");
    let start = Instant::now();
    assert!(!limiter.acquire(KEY, &tokens(), 6).within(SECOND / 2).await.unwrap().is_allowed());
    assert!(start.elapsed() >= SECOND / 2, "the hold might have ended meanwhile");
    drop(hold);
}

/// Jobs hold the units of the further limit, for five minutes as a rule.
#[tokio::test(start_paused = true)]
async fn a_caller_is_not_denied_because_of_a_hold_under_a_further_limit_that_may_end() {
    let first = Policy::per_minute("first", 100).unwrap();
    let usual = HoldSettings::new().with_typical_duration(300 * SECOND);
    let long = Policy::per_minute("long", 10).unwrap().with_holds(usual);
    // The first caller asks once a second, and when its time is over.
    for (max_wait, released_ms, served_ms) in [(60_000, 10_500, 10_500..11_520), (500, 100, 500..550)] {
        let (limiter, start) = (limiter(), Instant::now());
        let hold = limiter.hold(KEY, &long, 10).await.unwrap().into_result().unwrap();
        let acquired = limiter.acquire(KEY, &first, 1).and(&long, 4).within(Duration::from_millis(max_wait));
        let waiting = tokio::spawn(acquired);
        tokio::time::sleep(Duration::from_millis(released_ms)).await;
        hold.release().await.unwrap();
        assert!(waiting.await.unwrap().unwrap().is_allowed(), "may wait for {max_wait} ms");
        assert!(served_ms.contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
    let (limiter, start) = (limiter(), Instant::now());
    assert!(limiter.check(KEY, &tokens(), 4).await.unwrap().is_allowed());
    let hold = limiter.hold(KEY, &tokens(), 6).await.unwrap();
    let denied = limiter.acquire(KEY, &first, 1).and(&tokens(), 7).within(SECOND / 2).await.unwrap();
    assert!(!denied.is_allowed() && start.elapsed() <= Duration::from_millis(5), "at once, because of the charge");
    drop(hold);
}

/// Each denial counts, so a caller who asked now and then would never be admitted, or would ban its key.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_denials_count_under_a_further_limit_asks_no_earlier_than_the_store_says() {
    let first = Policy::per_minute("first", 100).unwrap();
    let (limiter, start) = (limiter(), Instant::now());
    let counting = Policy::per_minute("counting", 2).unwrap().with_shards(2).with_denials_counted(true);
    for _ in 0..2 {
        assert!(limiter.check(KEY, &counting, 1).await.unwrap().is_allowed());
    }
    let acquired = limiter.acquire(KEY, &first, 1).and(&counting, 1).within(90 * SECOND).await.unwrap();
    assert!(acquired.is_allowed() && start.elapsed() < 61 * SECOND, "{:?}", start.elapsed());

    let usual = HoldSettings::new().with_typical_duration(300 * SECOND);
    let banning = Policy::per_minute("banning", 10).unwrap().with_holds(usual).ban_after(3, 3_600 * SECOND);
    let hold = limiter.hold(KEY, &banning, 10).await.unwrap().into_result().unwrap();
    let denied = limiter.acquire(KEY, &first, 1).and(&banning, 4).within(10 * SECOND).await.unwrap();
    assert!(!denied.is_allowed());
    hold.release().await.unwrap();
    assert!(limiter.check(KEY, &banning, 1).await.unwrap().is_allowed(), "the key is banned");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_hold_wakes_the_waiters_whatever_it_charges() {
    let (limiter, ended, start) = (limiter(), Ended::default(), Instant::now());
    assert!(limiter.check(KEY, &tokens(), 4).await.unwrap().is_allowed());
    let hold = limiter.hold(KEY, &tokens(), 6).await.unwrap().into_result().unwrap();
    for waiter in 0..4 {
        ended.start(waiter, limiter.acquire(KEY, &tokens(), 1).within(120 * SECOND)).await;
    }
    tokio::time::sleep(29 * SECOND).await;
    assert_eq!(ended.admitted(), [0; 0]);
    hold.settle(2).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(ended.admitted(), [0, 1, 2, 3], "at once, and not when the next check is due");
    assert!(ended.last_at() - start <= 29 * SECOND + Duration::from_millis(20));
}

/// A concurrency limit of `limit` slots.
fn slots(limit: u64) -> Policy {
    Policy::concurrent("slots", limit).unwrap()
}

async fn slot(limiter: &Limiter, max_wait: Duration) -> HoldAnswer {
    limiter.acquire_hold(KEY, &slots(1), 1).within(max_wait).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn callers_wait_for_a_slot_first_come_first_served_and_get_it_when_it_is_free() {
    for latency in [0, 5].map(Duration::from_millis) {
        let memory = MemoryStore::new().with_clock(TokioClock::new());
        let limiter = Limiter::new(SlowHolds { memory, latency });
        let (got, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        for waiter in 0..4 {
            let (limiter, got) = (limiter.clone(), Arc::clone(&got));
            tokio::spawn(async move {
                let held = slot(&limiter, 60 * SECOND).await;
                got.lock().unwrap().push((waiter, start.elapsed()));
                tokio::time::sleep(3 * SECOND).await;
                drop(held);
            });
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(30 * SECOND).await;
        let got = got.lock().unwrap().clone();
        for (turn, (waiter, at)) in got.iter().enumerate() {
            let turn = u32::try_from(turn).unwrap();
            assert_eq!(*waiter, turn);
            // An end and a check for each slot.
            assert!(*at <= turn * (3 * SECOND + 2 * latency + Duration::from_millis(2)) + latency, "{got:?}");
        }
        assert_eq!(got.len(), 4);
    }
}

/// The hold ends while a check for the same slot is on its way, which the store has judged before.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_hold_is_not_missed_while_a_check_is_on_its_way() {
    let memory = MemoryStore::new().with_clock(TokioClock::new());
    let limiter = Limiter::new(SlowHolds { memory, latency: Duration::from_millis(20) });
    let held = slot(&limiter, SECOND).await;
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { slot(&limiter, 10 * SECOND).await.is_allowed() }
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    let start = Instant::now();
    held.into_result().unwrap().release().await.unwrap();
    assert!(waiting.await.unwrap());
    assert!(start.elapsed() <= Duration::from_millis(60), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn law_15_a_slot_that_was_made_for_a_caller_that_has_left_is_given_back() {
    for latency in [0, 20].map(Duration::from_millis) {
        let memory = MemoryStore::new().with_clock(TokioClock::new());
        let limiter = Limiter::new(SlowHolds { memory, latency });
        // Dropped before it has read its slot, or while the check is on its way.
        for polled_for in [1, 10, 25].map(Duration::from_millis) {
            let mut leaving = Box::pin(slot(&limiter, SECOND));
            tokio::select! {
                biased;
                () = tokio::time::sleep(polled_for) => {}
                held = &mut leaving => drop(held),
            }
            drop(leaving);
            tokio::time::sleep(SECOND).await;
            assert!(slot(&limiter, Duration::ZERO).await.is_allowed(), "{latency:?} {polled_for:?}");
            tokio::time::sleep(SECOND).await;
        }
    }
}

/// A shadow policy makes no caller wait, so no queue asks for it.
#[tokio::test(start_paused = true)]
async fn law_15_a_hold_that_is_asked_for_without_a_queue_is_given_back_when_its_caller_leaves() {
    let memory = MemoryStore::new().with_clock(TokioClock::new());
    let limiter = Limiter::new(SlowHolds { memory: memory.clone(), latency: Duration::from_millis(20) });
    let shadow = slots(1).with_shadow(true);
    let asking = limiter.acquire_hold(KEY, &shadow, 1).within(SECOND);
    assert!(tokio::time::timeout(Duration::from_millis(10), asking).await.is_err());
    tokio::time::sleep(SECOND).await;
    assert_eq!(Limiter::new(memory).peek(KEY, &slots(1)).await.unwrap().available(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_have_a_hold_gets_an_error_or_a_denial() {
    let limiter = limiter();
    let plain = Policy::per_minute("plain", 1).unwrap();
    for (policy, cost) in [(&plain, 1), (&slots(1), 0)] {
        let error = limiter.acquire_hold(KEY, policy, cost).within(SECOND).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidCall);
    }
    let local = limiter.acquire_hold(KEY, &slots(1), 1).fail_local().within(SECOND).await;
    assert_eq!(local.unwrap_err().kind(), ErrorKind::InvalidCall, "no fallback");
    let never = limiter.acquire_hold(KEY, &slots(1), 2).within(SECOND).await.unwrap();
    assert_eq!(never.decision().retry_after(), None, "no wait helps");
    let first = slot(&limiter, Duration::ZERO).await;
    let start = Instant::now();
    assert!(!slot(&limiter, SECOND).await.is_allowed());
    assert_eq!(start.elapsed(), SECOND);
    assert!(limiter.acquire_hold(KEY, &slots(1).with_shadow(true), 1).within(SECOND).await.unwrap().is_allowed());
    drop(first);
}

/// A store that answers after a while: the check is judged when it is sent, as by a server whose answer is slow.
#[derive(Clone, Debug)]
struct SlowHolds {
    memory: MemoryStore,
    latency: Duration,
}

impl SlowHolds {
    fn after<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let Answer::Ready(answer) = answer else { panic!("memory answers at once") };
        if self.latency.is_zero() {
            return Answer::Ready(answer);
        }
        let latency = self.latency;
        Answer::pending(async move {
            tokio::time::sleep(latency).await;
            answer
        })
    }
}

impl Store for SlowHolds {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        self.after(self.memory.check(check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        self.after(self.memory.change_hold(hold, change))
    }
}

/// Six of ten units are left. A caller that needs ten is denied for a minute.
#[tokio::test(start_paused = true)]
async fn law_2_a_caller_that_needs_less_does_not_wait_for_what_another_one_was_denied() {
    let (limiter, start) = (limiter(), Instant::now());
    assert!(limiter.check(KEY, &tokens(), 4).await.unwrap().is_allowed());
    let acquire = |cost| limiter.acquire_hold(KEY, &tokens(), cost);
    assert!(!acquire(10).within(10 * SECOND).await.unwrap().is_allowed());
    assert!(acquire(1).within(10 * SECOND).await.unwrap().is_allowed());
    assert!(start.elapsed() < SECOND / 10, "{:?}", start.elapsed());

    // The same behind a caller that would wait, and leaves.
    let leaves = tokio::spawn(acquire(9).within(120 * SECOND));
    tokio::time::sleep(SECOND / 2).await;
    let waits = tokio::spawn(acquire(1).within(120 * SECOND));
    tokio::time::sleep(SECOND / 2).await;
    leaves.abort();
    assert!(waits.await.unwrap().unwrap().is_allowed());
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
}
