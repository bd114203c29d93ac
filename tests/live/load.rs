//! Many requests while a watched file changes its limit. Both stores run this test.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};
use std::{convert::Infallible, fs, thread};

use axum::body::Body;
use http::{Request, Response};
use tollgate::observe::{Event, Observer};
use tollgate::{Decision, HeaderKey, Limiter, LiveLimits};
use tower::{Layer, ServiceExt, service_fn};

use super::files::{Directory, read};
use crate::support::observed::other;

const REQUESTS: u64 = 100_000;
const IN_FLIGHT: u64 = 16;
const LIMITS: [u64; 2] = [50, 100];
const WINDOW: Duration = Duration::from_millis(200);
/// Number of changes that have to happen during the run.
const CHANGES: u64 = 40;

/// A response: what the store has decided, and when.
#[derive(Clone, Copy)]
struct Entry {
    time_us: u64,
    limit: u64,
    allowed: bool,
    available: u64,
}

fn text(limit: u64) -> String {
    format!("[policies.p]\nlimit = {limit}\nwindow = '{}ms'\n[default]\npolicies = ['p']\n", WINDOW.as_millis())
}

/// Counts accepted changes; no change may be refused.
#[derive(Clone, Default)]
struct Accepted(Arc<AtomicU64>);

impl Observer for Accepted {
    fn on_event(&self, event: &Event<'_>) {
        if let Some(change) = other(event, "limits_change") {
            assert_eq!(change.outcome(), "accepted", "{change}");
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs the load and judges its history. `keys` is the number of clients: few enough that the limits are contended.
pub(crate) fn run(store: &str, keys: u64, limiter: impl FnOnce() -> Limiter) {
    let directory = Directory::new();
    let path = directory.path("limits.toml");
    fs::write(&path, text(LIMITS[0])).unwrap();
    let accepted = Accepted::default();
    let live = LiveLimits::watch(&path, read).unwrap();
    let is_done = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let (histories, handled) = thread::scope(|scope| {
        scope.spawn(|| {
            // A change every 100 ms: in place and by rename, in turn.
            for number in 1.. {
                if is_done.load(Ordering::Relaxed) {
                    return;
                }
                let content = text(LIMITS[number % LIMITS.len()]);
                if number % 4 < 2 {
                    fs::write(&path, content).unwrap();
                } else {
                    fs::write(directory.path("new"), content).unwrap();
                    fs::rename(directory.path("new"), &path).unwrap();
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let result =
            runtime.block_on(requests(&live, limiter().with_observer(accepted.clone()), keys, accepted.clone()));
        is_done.store(true, Ordering::Relaxed);
        result
    });
    let mut found = Found::default();
    for history in histories.values() {
        found.judge(history);
    }
    let Found { answers, admitted, over, wrongly_denied, lost, most, judged_counts } = found;
    let (changes, time) = (accepted.0.load(Ordering::Relaxed), started.elapsed());
    println!(
        "{store}: {answers} requests in {time:.1?}, {changes} changes, {admitted} admitted, most in a window {most}, \
         over {over}, wrongly denied {wrongly_denied}, {lost} of {judged_counts} counts wrong"
    );
    assert_eq!((over, wrongly_denied, lost), (0, 0, 0));
    assert!(answers >= REQUESTS);
    assert_eq!(admitted, handled, "each admitted request reaches the handler once");
    assert!(most > LIMITS[0], "the larger limit was never in use");
    assert!(admitted * 200 > answers && admitted < answers, "{admitted} of {answers} admitted: no contention");
    assert!(changes >= CHANGES);
}

/// Sends at least [`REQUESTS`] requests, until the limits have changed [`CHANGES`] times. Returns the history of each
/// key and the number of handled requests.
async fn requests(
    live: &LiveLimits,
    limiter: Limiter,
    keys: u64,
    accepted: Accepted,
) -> (BTreeMap<u64, Vec<Entry>>, u64) {
    let key = HeaderKey::new("x-key").unwrap();
    let layer = live.layer(limiter, key).unwrap().with_decision_in_response(true);
    let handled = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&handled);
    let service = layer.layer(service_fn(move |_: Request<()>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, Infallible>(Response::new(Body::empty())) }
    }));
    let history: Arc<Mutex<BTreeMap<u64, Vec<Entry>>>> = Arc::default();
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (service, history, next) = (service.clone(), Arc::clone(&history), Arc::clone(&next));
            let (live, accepted) = (live.clone(), accepted.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS && accepted.0.load(Ordering::Relaxed) >= CHANGES {
                        return;
                    }
                    let key = number % keys;
                    let request = Request::builder().header("x-key", key.to_string()).body(()).unwrap();
                    let in_force = || (live.version(), live.policy("p").unwrap().limit());
                    let before = in_force();
                    let response = service.clone().oneshot(request).await.unwrap();
                    let entry = entry(response.extensions().get().unwrap());
                    // If the limit is another one, a replacement is on its way, and soon completes.
                    let mut waited = 0;
                    while in_force() == before && entry.limit != before.1 {
                        waited += 1;
                        assert!(waited < 10_000, "a limit that is not in force");
                        tokio::task::yield_now().await;
                    }
                    history.lock().unwrap().entry(key).or_default().push(entry);
                    // Lets the other tasks run, because a memory store never waits.
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let history = std::mem::take(&mut *history.lock().unwrap());
    (history, handled.load(Ordering::Relaxed))
}

fn entry(decision: &Decision) -> Entry {
    let time = decision.time().expect("a verdict of the store").duration_since(UNIX_EPOCH).unwrap();
    let policy = &decision.policies()[0];
    Entry {
        time_us: u64::try_from(time.as_micros()).unwrap(),
        limit: policy.policy.limit(),
        allowed: decision.is_allowed(),
        available: decision.available().unwrap(),
    }
}

#[derive(Debug, Default)]
struct Found {
    answers: u64,
    admitted: u64,
    /// Admissions above the limit under which the request was judged.
    over: u64,
    /// Denials of a unit that fitted the limit under which the request was judged.
    wrongly_denied: u64,
    /// Admissions whose available units are not the limit less what the window contains.
    lost: u64,
    /// Number of admissions whose available units were compared.
    judged_counts: u64,
    most: u64,
}

impl Found {
    /// Judges the history of one key with a list of the times of its admissions.
    fn judge(&mut self, history: &[Entry]) {
        let mut by_time: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        history.iter().for_each(|entry| by_time.entry(entry.time_us).or_default().push(*entry));
        let window_us = u64::try_from(WINDOW.as_micros()).unwrap();
        let mut window: VecDeque<u64> = VecDeque::new();
        for (time_us, mut entries) in by_time {
            self.answers += entries.len() as u64;
            while window.front().is_some_and(|first| first + window_us <= time_us) {
                window.pop_front();
            }
            // The order within a microsecond is unknown. If any order obeys the limits, this one does: admissions by
            // limit, then denials.
            entries.sort_by_key(|entry| (!entry.allowed, entry.limit));
            let is_alone = entries.len() == 1;
            for Entry { limit, allowed, available, .. } in entries {
                if !allowed {
                    self.wrongly_denied += u64::from((window.len() as u64) < limit);
                    continue;
                }
                window.push_back(time_us);
                let spent = window.len() as u64;
                self.admitted += 1;
                self.most = self.most.max(spent);
                self.over += u64::from(spent > limit);
                if is_alone {
                    self.judged_counts += 1;
                    self.lost += u64::from(spent + available != limit);
                }
            }
        }
    }
}
