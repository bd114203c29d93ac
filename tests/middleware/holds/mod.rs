//! Layers that hold units until the response shows what they cost, and slots until its body has ended.

mod concurrent;
mod configuration;
mod endings;
mod estimates;
mod failures;
mod guards;
mod large_bodies;
mod lasting;
mod longest;
mod overtaken;
mod runtimes;
mod servers;
mod settle;
mod several_costs;
mod stacked;
mod upgrades;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::{collections::VecDeque, fmt, pin::Pin};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, request, response::Parts};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tollgate::middleware::{Settlement, WrappedBody};
use tollgate::store::{Answer, Charge, Check, HoldChange, SettleAnswer, Store, Verdict};
use tollgate::{
    Error, ErrorKind, Key, Limiter, MemoryStore, Policy, ProblemJson, RateLimitLayer, policy::HoldSettings,
};

/// A memory store that records the settlements that reach it.
#[derive(Clone, Debug, Default)]
struct Ledger {
    store: MemoryStore,
    changes: Arc<Mutex<Vec<(u64, SettleAnswer)>>>,
    /// Whether answers are pending at first, as those of a networked store are.
    is_slow: bool,
    /// Whether checks fail.
    is_down: bool,
    /// Whether changes of holds fail.
    changes_fail: Arc<AtomicBool>,
}

impl Ledger {
    fn slow() -> Self {
        Self { is_slow: true, ..Self::default() }
    }

    fn down() -> Self {
        Self { is_down: true, ..Self::default() }
    }

    fn limiter(&self) -> Limiter {
        Limiter::new(self.clone())
    }

    fn fail_changes(&self, fail: bool) {
        self.changes_fail.store(fail, Ordering::SeqCst);
    }

    /// The units that were charged by settlements, with the answers of the store.
    fn settlements(&self) -> Vec<(u64, SettleAnswer)> {
        self.changes.lock().unwrap().clone()
    }

    fn answer<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> Answer<T> + Send + 'static) -> Answer<T> {
        if !self.is_slow {
            return work(self);
        }
        let store = self.clone();
        Answer::pending(async move {
            tokio::task::yield_now().await;
            match work(&store) {
                Answer::Ready(result) => result,
                Answer::Pending(result) => result.await,
            }
        })
    }
}

impl Store for Ledger {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        if self.is_down {
            return Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "down")));
        }
        let check = check.clone();
        self.answer(move |this| this.store.check(&check))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }

    fn has_holds(&self) -> bool {
        true
    }

    fn change_hold(&self, hold: &Charge, change: HoldChange) -> Answer<SettleAnswer> {
        if self.changes_fail.load(Ordering::SeqCst) {
            return Answer::Ready(Err(Error::new(ErrorKind::Unavailable, "down")));
        }
        let hold = hold.clone();
        self.answer(move |this| {
            let answer = this.store.change_hold(&hold, change);
            if let (HoldChange::Settle(units), Answer::Ready(Ok(settlement))) = (change, &answer) {
                this.changes.lock().unwrap().push((units, *settlement));
            }
            answer
        })
    }
}

/// 1 000 units a minute, with holds.
fn tokens() -> Policy {
    Policy::per_minute("tokens", 1_000).unwrap().with_holds(HoldSettings::new())
}

/// Three at once.
fn uploads() -> Policy {
    Policy::concurrent("uploads", 3).unwrap()
}

const CLIENT: &str = "client";

/// Extracts [`CLIENT`].
type OneClient = fn(&request::Parts) -> Key;

fn one_client() -> OneClient {
    |_| Key::from(CLIENT)
}

/// A layer that holds 100 units of [`tokens`] for each request.
fn layer(
    limiter: Limiter,
    settle: impl Fn(&Parts) -> Settlement + Send + Sync + 'static,
) -> RateLimitLayer<OneClient, ProblemJson, WrappedBody> {
    RateLimitLayer::new(limiter, tokens(), one_client()).with_cost(100).with_settlement(settle).with_held_body()
}

fn at_end(_: &Parts) -> Settlement {
    Settlement::AtEnd
}

/// The units that are left under a policy.
async fn left(limiter: &Limiter, policy: &Policy) -> u64 {
    limiter.peek(CLIENT, policy).await.unwrap().available().unwrap()
}

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

/// Lets the tasks in the background run.
async fn settle_in_background() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[derive(Debug)]
struct Broken;

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broken")
    }
}

impl std::error::Error for Broken {}

/// A body of these frames, which then ends, or stays open.
#[derive(Debug)]
struct Frames {
    frames: VecDeque<Result<Frame<Bytes>, Broken>>,
    stays_open: bool,
}

impl Frames {
    fn of(frames: impl IntoIterator<Item = &'static str>) -> Self {
        let frames = frames.into_iter().map(|text| Ok(Frame::data(Bytes::from(text)))).collect();
        Self { frames, stays_open: false }
    }

    fn then_trailers(mut self) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        self.frames.push_back(Ok(Frame::trailers(trailers)));
        self
    }

    fn then_breaks(mut self) -> Self {
        self.frames.push_back(Err(Broken));
        self
    }

    fn then_stays_open(mut self) -> Self {
        self.stays_open = true;
        self
    }
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.frames.pop_front() {
            None if self.stays_open => Poll::Pending,
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && !self.stays_open
    }

    fn size_hint(&self) -> SizeHint {
        if self.stays_open {
            return SizeHint::default();
        }
        let data = self.frames.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
        SizeHint::with_exact(data.map(|data| data.len() as u64).sum())
    }
}

/// The next frame of a body, which must be there.
fn next<B: HttpBody + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("the body waits"),
    }
}

/// Refusals have such a body.
impl From<Bytes> for Frames {
    fn from(bytes: Bytes) -> Self {
        Self { frames: [Ok(Frame::data(bytes))].into(), stays_open: false }
    }
}
