//! Callers that need not wait.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tollgate::decision::Source;

use super::*;
use crate::support::PendingStore;
use crate::support::unhealthy_store::{Health, UnhealthyStore};

/// What the first poll returns: `Some` if nothing else is needed, such as a task that asks the store.
fn first_poll(acquired: impl Future<Output = Result<Decision, Error>>) -> Option<Decision> {
    match pin!(acquired).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => Some(decision.unwrap()),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_need_not_wait_is_charged_at_its_first_poll_without_a_task() {
    let (limiter, policy) = (limiter(), Policy::per_second("p", 3).unwrap());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    for left in [2, 1, 0] {
        let decision = first_poll(limiter.acquire(KEY, &policy, 1).within(SECOND)).expect("no wait");
        assert!(decision.is_allowed() && decision.source() == Source::Store);
        assert_eq!((decision.available(), tasks()), (Some(left), 0));
    }
    let waiting = limiter.acquire(KEY, &policy, 1).within(2 * SECOND);
    assert!(waiting.await.unwrap().is_allowed());
    // The queue knows when its next unit comes; a unit that is charged beside it changes that.
    tokio::time::sleep(5 * SECOND).await;
    assert!(first_poll(limiter.acquire(KEY, &policy, 3).within(SECOND)).expect("no wait").is_allowed());
    let start = Instant::now();
    assert!(limiter.acquire(KEY, &policy, 3).within(2 * SECOND).await.unwrap().is_allowed());
    assert!(start.elapsed() >= SECOND && start.elapsed() < SECOND + SECOND / 50, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_fits_does_not_overtake_one_that_waits_and_none_passes_a_pause() {
    let (limiter, ended, policy) = (limiter(), Ended::default(), Policy::per_second("p", 10).unwrap());
    assert!(limiter.check(KEY, &policy, 6).await.unwrap().is_allowed());
    ended.start(0, limiter.acquire(KEY, &policy, 5).within(2 * SECOND)).await;
    tokio::time::sleep(SECOND / 10).await;
    ended.start(1, limiter.acquire(KEY, &policy, 1).within(2 * SECOND)).await;
    assert_eq!(ended.admitted(), [0; 0], "four units are there, and somebody waits for five");
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(ended.admitted(), [0, 1]);
}

/// A denial that counts must not be asked for twice.
#[tokio::test(start_paused = true)]
async fn a_store_is_asked_once_where_denials_count_and_nothing_is_lost_where_it_answers_later() {
    let policy = Policy::per_second("p", 2).unwrap().with_denials_counted(true);
    let limiter = limiter();
    for allowed in [true, true, false] {
        let decision = limiter.acquire(KEY, &policy, 1).within(Duration::ZERO).await.unwrap();
        assert_eq!(decision.is_allowed(), allowed);
    }
    let store = UnhealthyStore::with_breaker(Health::Slow(Duration::from_millis(5)), None);
    let limiter = Limiter::new(store.counting_in(MemoryStore::new().with_clock(TokioClock::new())));
    assert!(limiter.acquire(KEY, &bucket(10), 1).within(SECOND).await.unwrap().is_allowed());
    assert!(!limiter.acquire(KEY, &bucket(10), 1).within(Duration::ZERO).await.unwrap().is_allowed());
}

/// Polls a caller once. It has sent its check then, and waits for the answer.
fn send(acquired: Pin<&mut impl Future<Output = Result<Decision, Error>>>) {
    assert!(acquired.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

/// A store over a round trip of 5 ms.
fn distant() -> Limiter {
    let store = UnhealthyStore::with_breaker(Health::Slow(ROUND_TRIP), None);
    Limiter::new(store.counting_in(MemoryStore::new().with_clock(TokioClock::new())))
}

const ROUND_TRIP: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_alone_starts_a_task_only_if_it_has_to_wait_also_where_the_store_answers_later() {
    let (limiter, policy) = (distant(), Policy::per_second("p", 3).unwrap());
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(limiter.check("other", &policy, 1).await.unwrap().is_allowed());
    // What the limiter needs for each check, such as its measure of stalls.
    let of_checks = tasks();
    for left in [2, 1, 0] {
        let mut acquired = pin!(limiter.acquire(KEY, &policy, 1).within(SECOND));
        send(acquired.as_mut());
        assert_eq!(tasks(), of_checks, "its check is on its way");
        let decision = acquired.await.unwrap();
        assert_eq!((decision.is_allowed(), decision.available(), tasks()), (true, Some(left), of_checks));
    }
    let mut waiting = pin!(limiter.acquire(KEY, &policy, 1).within(2 * SECOND));
    tokio::time::timeout(ROUND_TRIP * 4, waiting.as_mut()).await.unwrap_err();
    assert_eq!(tasks(), of_checks + 1, "its turn must not depend on who polls it");
    assert!(waiting.await.unwrap().is_allowed());
    tokio::time::sleep(ROUND_TRIP).await;
    assert_eq!(tasks(), of_checks);
}

/// The first caller has sent a check and is not polled again, for example because its task does something else.
#[tokio::test(start_paused = true)]
async fn a_caller_that_is_not_polled_while_its_check_is_on_its_way_holds_nobody_up() {
    let (limiter, policy, start) = (distant(), Policy::per_second("p", 2).unwrap(), Instant::now());
    let mut first = pin!(limiter.acquire(KEY, &policy, 1).within(SECOND));
    send(first.as_mut());
    assert!(limiter.acquire(KEY, &policy, 1).within(SECOND).await.unwrap().is_allowed());
    assert!(start.elapsed() <= ROUND_TRIP * 3, "one round trip after the other: {:?}", start.elapsed());
    assert!(first.await.unwrap().is_allowed());
    assert!(start.elapsed() <= ROUND_TRIP * 3);
}

#[tokio::test(start_paused = true)]
async fn the_unit_of_a_caller_that_leaves_while_its_check_is_on_its_way_goes_to_the_next() {
    let (limiter, policy, start) = (distant(), Policy::per_second("p", 2).unwrap(), Instant::now());
    let mut leaving = Box::pin(limiter.acquire(KEY, &policy, 2).within(SECOND));
    send(leaving.as_mut());
    drop(leaving);
    // The check of the caller that has left is still on its way, and is not sent again.
    assert!(limiter.acquire(KEY, &policy, 2).within(SECOND).await.unwrap().is_allowed());
    assert!(start.elapsed() <= ROUND_TRIP * 2, "{:?}", start.elapsed());
}

/// The first check is on its way, and nothing is known yet.
#[tokio::test(start_paused = true)]
async fn a_caller_whose_time_is_over_is_charged_by_a_check_that_comes_soon_or_denied() {
    for (round_trip, passes, ends) in [(5, true, 10), (200, false, 52)] {
        let store =
            UnhealthyStore::with_breaker(Health::Slow(Duration::from_millis(round_trip)), None).with_deadline(SECOND);
        let limiter = Limiter::new(store.counting_in(MemoryStore::new().with_clock(TokioClock::new())));
        let (policy, start) = (Policy::per_second("p", 2).unwrap(), Instant::now());
        let mut first = pin!(limiter.acquire(KEY, &policy, 1).within(SECOND));
        send(first.as_mut());
        let second = limiter.acquire(KEY, &policy, 1).within(Duration::from_millis(2)).await.unwrap();
        assert_eq!(second.is_allowed(), passes);
        assert!((ends..ends + 6).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
}

/// The time of one of many calls, one after the other.
async fn time_of<F: Future<Output = Result<Decision, Error>>>(call: impl Fn() -> F) -> Duration {
    const CALLS: u32 = 20_000;
    let start = std::time::Instant::now();
    for _ in 0..CALLS {
        assert!(call().await.unwrap().is_allowed());
    }
    start.elapsed() / CALLS
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long"]
async fn long_the_time_of_an_acquire_that_need_not_wait() {
    let limiter = Limiter::new(MemoryStore::new());
    let direct = Policy::per_second("direct", 1_000_000_000).unwrap().with_algorithm(Algorithm::FixedWindow);
    // Such a caller always goes through the queue, and is alone in it.
    let queued = Policy::per_second("queued", 1_000_000_000).unwrap().with_denials_counted(true);
    let queued = queued.with_algorithm(Algorithm::FixedWindow);
    let check = time_of(|| limiter.check(KEY, &direct, 1)).await;
    let direct = time_of(|| limiter.acquire(KEY, &direct, 1).within(SECOND)).await;
    let queued = time_of(|| limiter.acquire(KEY, &queued, 1).within(SECOND)).await;
    println!("check {check:?}, acquire {direct:?}, acquire through the queue {queued:?}");
    let (limiter, policy) = (Limiter::new(PendingStore(MemoryStore::new())), Policy::per_second("p", 1_000_000_000));
    let policy = policy.unwrap().with_algorithm(Algorithm::FixedWindow);
    let check = time_of(|| limiter.check(KEY, &policy, 1)).await;
    let later = time_of(|| limiter.acquire(KEY, &policy, 1).within(SECOND)).await;
    println!("where the store answers later: check {check:?}, acquire {later:?}");
    // A task of its own took 28 us. Where denials count, a check is sent a millisecond late, so as not to be early.
    let most = Duration::from_micros(14);
    assert!(direct < queued / 2 && later < most, "{direct:?}, {queued:?}, {later:?}");
}
