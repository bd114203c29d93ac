//! Searches for schedules that break the breaker. A seed decides when tasks are polled, dropped and panic.
//!
//! Time is paused and each seed has one thread, so failures are reproducible: `TOLLGATE_SEED=17` begins with that seed.
//! A schedule that locks a mutex twice blocks its thread for ever, so each seed has its own thread and a timeout.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::{pin::Pin, thread, time::Duration};

use tollgate::observe::{Event, Observer};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Error, ErrorKind, Key, Limiter, MemoryStore, Policy, failure::BreakerSettings};

use crate::support::{observed::BreakerChange, seed::seeds};

/// A xorshift64* generator. Clones share its state.
#[derive(Clone, Debug)]
struct Random(Arc<Mutex<u64>>);

impl Random {
    fn below(&self, bound: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// A store that answers in time, answers late, fails or never answers, as the seed decides, until it is healthy.
#[derive(Clone, Debug)]
struct RandomStore {
    random: Random,
    is_healthy: Arc<AtomicUsize>,
    /// The number of checks in flight.
    in_flight: Arc<AtomicUsize>,
    memory: MemoryStore,
}

/// Counts a check as in flight until it is dropped.
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Store for RandomStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (this, check) = (self.clone(), check.clone());
        Answer::pending(async move {
            this.in_flight.fetch_add(1, Ordering::SeqCst);
            let _in_flight = InFlight(Arc::clone(&this.in_flight));
            let behaviour = if this.is_healthy.load(Ordering::SeqCst) == 1 { 0 } else { this.random.below(6) };
            match behaviour {
                0 => {}
                1 => tokio::time::sleep(Duration::from_millis(this.random.below(49))).await,
                2 => tokio::time::sleep(Duration::from_millis(51 + this.random.below(100))).await,
                3 | 4 => return Err(Error::new(ErrorKind::Unavailable, "the seed made the store fail")),
                _ => pending().await,
            }
            match this.memory.check(&check) {
                Answer::Ready(verdict) => verdict,
                Answer::Pending(verdict) => verdict.await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.memory.reset(key, policy)
    }

    fn breaker(&self) -> Option<BreakerSettings> {
        Some(BreakerSettings::default())
    }
}

/// Records the changes of the breaker, and panics at one of eight.
struct PanickingObserver {
    random: Random,
    changes: Arc<Mutex<Vec<BreakerChange>>>,
}

impl Observer for PanickingObserver {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(change) = BreakerChange::of(event) {
            self.changes.lock().unwrap().push(change);
            assert!(self.random.below(8) > 0, "the observer panics");
        }
    }
}

/// A task that awaits a check, alone or beside a future that panics.
type Task = Pin<Box<dyn Future<Output = ()>>>;

fn task(limiter: &Limiter, random: &Random) -> Task {
    let check = limiter.check(random.below(3), &policy(), 1);
    let panics_after = random.below(4);
    if panics_after > 1 {
        return Box::pin(async move { drop(check.await) });
    }
    Box::pin(async move {
        let mut check = Box::pin(check);
        let mut polls = 0;
        poll_fn(|cx| {
            let done = check.as_mut().poll(cx).is_ready();
            assert!(polls < panics_after, "a future beside the check panics");
            polls += 1;
            if done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    })
}

fn policy() -> Policy {
    Policy::per_hour("p", 1_000_000).unwrap()
}

async fn schedule(seed: u64) {
    let random = Random(Arc::new(Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)));
    let store = RandomStore {
        random: random.clone(),
        is_healthy: Arc::default(),
        in_flight: Arc::default(),
        memory: MemoryStore::new(),
    };
    let changes = Arc::<Mutex<Vec<_>>>::default();
    let observer = PanickingObserver { random: random.clone(), changes: Arc::clone(&changes) };
    let limiter = Limiter::new(store.clone()).with_observer(observer);
    let mut tasks: Vec<Task> = Vec::new();
    for _ in 0..300 {
        match random.below(10) {
            0..=3 => tasks.push(task(&limiter, &random)),
            4..=6 if !tasks.is_empty() => {
                let index = usize::try_from(random.below(tasks.len() as u64)).unwrap();
                let mut chosen = tasks.swap_remove(index);
                // The closure owns the task: a panic unwinds through its futures, as in an executor.
                let polled = catch_unwind(AssertUnwindSafe(move || {
                    let poll = chosen.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    (poll, chosen)
                }));
                if let Ok((Poll::Pending, chosen)) = polled {
                    tasks.push(chosen);
                }
            }
            7 if !tasks.is_empty() => {
                let index = usize::try_from(random.below(tasks.len() as u64)).unwrap();
                let dropped = tasks.swap_remove(index);
                // The drop reports to the observer, which may panic.
                let _ = catch_unwind(AssertUnwindSafe(move || drop(dropped)));
            }
            _ => tokio::time::sleep(Duration::from_millis(random.below(120))).await,
        }
    }
    let _ = catch_unwind(AssertUnwindSafe(|| tasks.clear()));
    // A dropped probe continues until its deadline, which does not count the time that the machine stopped this thread.
    let start = tokio::time::Instant::now();
    while store.in_flight.load(Ordering::SeqCst) > 0 && start.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.in_flight.load(Ordering::SeqCst), 0, "seed {seed}: a check is still in flight");
    // After any schedule, the breaker closes soon after the store has recovered.
    store.is_healthy.store(1, Ordering::SeqCst);
    let start = tokio::time::Instant::now();
    loop {
        // A panic of the observer ends the task of the check.
        let answered = tokio::spawn(limiter.check("k", &policy(), 1)).await.is_ok_and(|verdict| verdict.is_ok());
        // A success may open the breaker if it completes a second in which half of the checks failed.
        if answered && !limiter.is_breaker_open() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(2), "seed {seed}: the breaker stays open");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut changes = changes.lock().unwrap().clone();
    changes.sort_by_key(|change| change.sequence);
    let mut state = "closed";
    for change in &changes {
        assert_eq!(change.from, state, "seed {seed}: a gap in {changes:?}");
        state = change.to;
    }
    assert_eq!(state, "closed", "seed {seed}: {changes:?}");
}

#[test]
fn no_schedule_of_drops_panics_and_late_answers_breaks_the_breaker() {
    // Expected panics are not printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let expected = ["a future beside the check panics", "the observer panics"];
        if !expected.iter().any(|text| panic.to_string().contains(text)) {
            hook(panic);
        }
    }));
    for seed in seeds(400) {
        let (sender, ended) = mpsc::channel();
        thread::spawn(move || {
            let builder = &mut tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_all().start_paused(true).build().unwrap();
            runtime.block_on(schedule(seed));
            sender.send(()).unwrap();
        });
        ended.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("seed {seed} is stuck, or failed above"));
    }
}
