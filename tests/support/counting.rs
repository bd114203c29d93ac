//! Stores and services that count their calls, for both kinds of [`Answer`].

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Error, GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer};
use tower::{Service, ServiceExt};

use crate::support::PendingStore;

/// A request without content.
pub(crate) type EmptyRequest = Request<()>;
/// A response with the simplest body that [`tollgate::ProblemJson`] supports.
pub(crate) type BytesResponse = Response<bytes::Bytes>;

/// The variant of [`Answer`] that the store returns: the service has a code path for each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerKind {
    /// `Answer::Ready`.
    Ready,
    /// `Answer::Pending`.
    Pending,
}

impl AnswerKind {
    pub(crate) const BOTH: [Self; 2] = [Self::Ready, Self::Pending];

    pub(crate) fn store(self) -> CountingStore {
        match self {
            Self::Ready => CountingStore::new(MemoryStore::new()),
            Self::Pending => CountingStore::new(PendingStore(MemoryStore::new())),
        }
    }

    pub(crate) fn limiter(self) -> Limiter {
        Limiter::new(self.store())
    }

    /// A layer with one global budget of `limit` requests a minute.
    pub(crate) fn layer(self, limit: u64) -> RateLimitLayer<GlobalKey> {
        layer(self.limiter(), limit)
    }
}

/// A layer with one global budget of `limit` requests a minute.
pub(crate) fn layer(limiter: Limiter, limit: u64) -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(limiter, Policy::per_minute("all", limit).unwrap(), GlobalKey)
}

/// A store that counts the checks it receives.
#[derive(Clone, Debug)]
pub(crate) struct CountingStore {
    store: Arc<dyn Store>,
    sent: Arc<AtomicUsize>,
}

impl CountingStore {
    pub(crate) fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), sent: Arc::default() }
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Store for CountingStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let sent = Arc::clone(&self.sent);
        match self.store.check(check) {
            Answer::Ready(verdict) => {
                sent.fetch_add(1, Ordering::SeqCst);
                Answer::Ready(verdict)
            }
            // A pending check is sent when its future is polled.
            Answer::Pending(verdict) => Answer::pending(async move {
                sent.fetch_add(1, Ordering::SeqCst);
                verdict.await
            }),
        }
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }
}

/// A store whose connection breaks after each check: whether the check was charged is unknown.
#[derive(Debug)]
pub(crate) struct LostReplyStore;

impl Store for LostReplyStore {
    fn check(&self, _: &Check) -> Answer<Verdict> {
        Answer::pending(async {
            tokio::task::yield_now().await;
            Err(Error::new(tollgate::ErrorKind::Unavailable, "connection reset").charge_unknown())
        })
    }

    fn reset(&self, _: &Key, _: &Policy) -> Answer<bool> {
        Answer::Ready(Ok(false))
    }
}

/// A service that counts its calls and its clones.
#[derive(Debug, Default)]
pub(crate) struct CountingService {
    calls: Arc<AtomicUsize>,
    clones: Arc<AtomicUsize>,
}

impl CountingService {
    /// A handle to the same counts that is not counted as a clone.
    pub(crate) fn share(&self) -> Self {
        Self { calls: Arc::clone(&self.calls), clones: Arc::clone(&self.clones) }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn clones(&self) -> usize {
        self.clones.load(Ordering::SeqCst)
    }
}

impl Clone for CountingService {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, Ordering::SeqCst);
        self.share()
    }
}

impl Service<EmptyRequest> for CountingService {
    type Response = BytesResponse;
    type Error = Infallible;
    type Future = Ready<Result<BytesResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: EmptyRequest) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(BytesResponse::default()))
    }
}

/// Awaits the future for at most 10 seconds, so that a test fails instead of hanging.
pub(crate) async fn within_10_seconds<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("no answer within 10 seconds")
}

/// Waits until the service is ready, calls it, and returns the status of its response.
pub(crate) async fn status<S>(service: &mut S) -> StatusCode
where
    S: Service<EmptyRequest, Response = BytesResponse, Error: std::fmt::Debug>,
{
    let answer = async { service.ready().await.unwrap().call(EmptyRequest::default()).await };
    within_10_seconds(answer).await.unwrap().status()
}
