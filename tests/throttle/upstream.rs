//! An upstream with scripted responses, and limiters whose time is tokio's.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::{collections::VecDeque, convert::Infallible, future::Future, pin::Pin, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tokio::time::{Instant, sleep};
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Check, Key, Limiter, MemoryStore, Policy, clock::TokioClock};
use tower::{BoxError, Service, ServiceExt};

use crate::support::counting::EmptyRequest;

/// An upstream that records when it is called. Clones share the record.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    started: Instant,
    calls: Arc<Mutex<Vec<Duration>>>,
    /// The responses to the next calls. Further calls get 200 without fields.
    responses: Arc<Mutex<VecDeque<Response<()>>>>,
    /// How long a response takes.
    latency: Duration,
}

impl Default for Upstream {
    fn default() -> Self {
        let (calls, responses, latency) = (Arc::default(), Arc::default(), Duration::ZERO);
        Self { started: Instant::now(), calls, responses, latency }
    }
}

impl Upstream {
    /// An upstream that responds to its first call with this status and these fields.
    pub(crate) fn first(status: u16, fields: &[(&'static str, &str)]) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let upstream = Self::default();
        upstream.respond(StatusCode::from_u16(status).unwrap(), headers);
        upstream
    }

    pub(crate) fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    /// Adds the response to a later call.
    pub(crate) fn respond(&self, status: StatusCode, headers: HeaderMap) {
        let mut response = Response::new(());
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        self.responses.lock().unwrap().push_back(response);
    }

    /// The times of the calls, since the upstream was created.
    pub(crate) fn calls(&self) -> Vec<Duration> {
        self.calls.lock().unwrap().clone()
    }

    /// Asserts the times of the calls: each is at most 5 ms late, because timers tick in milliseconds, and 5 ms more
    /// for each wait before it.
    #[track_caller]
    pub(crate) fn assert_calls(&self, expected: &[Duration]) {
        let calls = self.calls();
        let (mut last, mut late) = (Duration::ZERO, millis(5));
        let in_time = |(call, expected): (&Duration, &Duration)| {
            late += if *expected > last { millis(5) } else { Duration::ZERO };
            last = *expected;
            call >= expected && *call <= *expected + late
        };
        let all = calls.len() == expected.len() && calls.iter().zip(expected).all(in_time);
        assert!(all, "called at {calls:?} instead of {expected:?}");
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Service<EmptyRequest> for Upstream {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: EmptyRequest) -> Self::Future {
        self.calls.lock().unwrap().push(self.started.elapsed());
        let (response, latency) = (self.responses.lock().unwrap().pop_front().unwrap_or_default(), self.latency);
        Box::pin(async move {
            sleep(latency).await;
            Ok(response)
        })
    }
}

/// A limiter over memory whose time is tokio's.
pub(crate) fn limiter() -> Limiter {
    Limiter::new(memory())
}

pub(crate) fn memory() -> MemoryStore {
    MemoryStore::new().with_clock(TokioClock::new())
}

/// A memory store that takes a while to answer.
#[derive(Clone, Debug)]
pub(crate) struct SlowStore {
    pub(crate) store: MemoryStore,
    pub(crate) latency: Duration,
}

impl Store for SlowStore {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (this, check) = (self.clone(), check.clone());
        Answer::pending(async move {
            sleep(this.latency).await;
            match this.store.check(&check) {
                Answer::Ready(verdict) => verdict,
                Answer::Pending(verdict) => verdict.await,
            }
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }
}

/// Calls a clone of the service, and returns its status.
pub(crate) async fn call<S>(service: &S) -> Result<StatusCode, BoxError>
where
    S: Service<EmptyRequest, Response = Response<()>, Error = BoxError> + Clone,
{
    Ok(service.clone().oneshot(EmptyRequest::default()).await?.status())
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
