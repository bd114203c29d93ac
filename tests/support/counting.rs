//! The two ways in which a store answers, and what is counted on the way.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use tollgate::{
    Check, Error, GlobalKey, Key, Limiter, MemoryStore, Policy, RateLimitLayer,
    store::{Answer, Store, Verdict},
};
use tower::{Service, ServiceExt};

use crate::support::Later;

/// The services here need no content.
pub(crate) type Head = Request<()>;
/// As small a body as [`tollgate::ProblemJson`] can write.
pub(crate) type Reply = Response<bytes::Bytes>;

/// When the store answers: the service takes a different path for each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answers {
    AtOnce,
    Later,
}

impl Answers {
    pub(crate) const BOTH: [Self; 2] = [Self::AtOnce, Self::Later];

    pub(crate) fn store(self) -> Counted {
        match self {
            Self::AtOnce => Counted::new(MemoryStore::new()),
            Self::Later => Counted::new(Later(MemoryStore::new())),
        }
    }

    pub(crate) fn limiter(self) -> Limiter {
        Limiter::new(self.store())
    }

    /// A layer with one budget of so many requests a minute.
    pub(crate) fn layer(self, limit: u32) -> RateLimitLayer<GlobalKey> {
        layer(self.limiter(), limit)
    }
}

pub(crate) fn layer(limiter: Limiter, limit: u32) -> RateLimitLayer<GlobalKey> {
    RateLimitLayer::new(limiter, Policy::per_minute("all", limit).unwrap(), GlobalKey)
}

/// A store that counts the checks that have been sent to it.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    store: Arc<dyn Store>,
    sent: Arc<AtomicUsize>,
}

impl Counted {
    pub(crate) fn new(store: impl Store) -> Self {
        Self { store: Arc::new(store), sent: Arc::default() }
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

impl Store for Counted {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let sent = Arc::clone(&self.sent);
        match self.store.check(check) {
            Answer::Ready(verdict) => {
                sent.fetch_add(1, Ordering::SeqCst);
                Answer::Ready(verdict)
            }
            // A pending check is sent when it is polled.
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

/// A store that takes every check and answers that its fate is unknown.
#[derive(Debug)]
pub(crate) struct Lost;

impl Store for Lost {
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
pub(crate) struct Witness {
    calls: Arc<AtomicUsize>,
    clones: Arc<AtomicUsize>,
}

impl Witness {
    /// Another view of the same counts.
    pub(crate) fn watch(&self) -> Self {
        Self { calls: Arc::clone(&self.calls), clones: Arc::clone(&self.clones) }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn clones(&self) -> usize {
        self.clones.load(Ordering::SeqCst)
    }
}

impl Clone for Witness {
    fn clone(&self) -> Self {
        self.clones.fetch_add(1, Ordering::SeqCst);
        self.watch()
    }
}

impl Service<Head> for Witness {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Head) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(Reply::default()))
    }
}

/// Waits, but not for ever: a test fails rather than hangs. With paused time, no time is lost.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("no answer within 10 seconds")
}

/// Waits until the service is ready, calls it, and tells the status.
pub(crate) async fn status<S>(service: &mut S) -> StatusCode
where
    S: Service<Head, Response = Reply, Error: std::fmt::Debug>,
{
    let answer = async { service.ready().await.unwrap().call(Head::default()).await };
    soon(answer).await.unwrap().status()
}
