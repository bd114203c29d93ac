//! Clients of a service: they send requests, and read the responses, or leave.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::{sync::Arc, task::Poll};

use axum::body::Body;
use http::{Method, Request, Response};
use http_body::Body as _;
use tower::ServiceExt;

use super::{Caller, impatient::Patience};
use crate::keys::{KEYS, key_name};
use crate::plan::mode::{LIMIT, Mode};
use crate::service::{self, COST, EXEMPT, SMALL_LIMIT, script::Script, visit::Visit};
use crate::time::{ms, now};

impl Caller {
    pub(super) async fn request(&mut self) {
        // The slots of a runtime that stands still need another runtime of the process, which renews them.
        let site = self.site();
        let may_stand_still = self.mode == Mode::WebSlots && site.is_calm && self.place.runtime > 0;
        let script = Script::draw(self.mode, may_stand_still, &mut self.rng);
        let patience = Patience::draw(&mut self.rng);
        let (path, cost) = self.draw_path(&script);
        if self.mode == Mode::WebLive && self.rng.chance(4) {
            site.replace(self.rng.one_of(&[SMALL_LIMIT, LIMIT]));
        }
        // What is counted in memory is counted for each life of a process.
        let life = if self.mode.is_memory() { KEYS * site.life } else { 0 };
        let key = life + self.rng.below(KEYS);
        drop(site);
        let (visit, response) = self.send(key, &path, cost, script);
        if let Some(Some(response)) = patience.wait(response).await {
            visit.answer(&response);
            read(response, script.reads).await;
        }
    }

    /// Sends requests just before and just after the time that Retry-After names. No other caller has this key.
    pub(super) async fn return_when_told(&mut self) {
        let key = self.key;
        while now() < self.until {
            let cost = self.rng.one_of(&service::FIXED);
            let Some(wait) = self.ask_alone(key, cost).await else { continue };
            if wait > 2 * NEARLY {
                tokio::time::sleep(ms(wait - NEARLY)).await;
                self.ask_alone(key, cost).await;
                tokio::time::sleep(ms(2 * NEARLY)).await;
            } else {
                tokio::time::sleep(ms(wait + NEARLY)).await;
            }
            self.ask_alone(key, cost).await;
        }
    }

    /// Returns the wait of a denial, in milliseconds.
    async fn ask_alone(&mut self, key: u64, cost: u64) -> Option<u64> {
        tokio::time::sleep(ms(1 + self.rng.below(8))).await;
        let (visit, response) = self.send(key, &format!("/{}/{cost}", self.mode), cost, Script::plain());
        visit.answer(&response.await?);
        visit.wait()
    }

    /// Sends a request. The response is `None` after a panic.
    fn send(
        &self,
        key: u64,
        path: &str,
        cost: u64,
        script: Script,
    ) -> (Arc<Visit>, impl Future<Output = Option<Response<Body>>> + use<>) {
        let name = key_name(self.mode, key);
        let site = self.site();
        let visit = Visit::start(self.mode, self.place, key, cost, site.limit(self.mode, &name), script);
        let request = Request::builder()
            .method(if script.is_head { Method::HEAD } else { Method::GET })
            .uri(path)
            .header(service::CLIENT, name)
            .header(COST, cost)
            .extension(Arc::clone(&visit))
            .body(Body::empty())
            .expect("the request is valid");
        // A panic ends the connection, as it does in a server.
        let response = contained(site.router.oneshot(request));
        (visit, async move { response.await.and_then(Result::ok) })
    }

    fn draw_path(&mut self, script: &Script) -> (String, u64) {
        let mode = self.mode;
        if script.is_exempt {
            return (format!("/{mode}{EXEMPT}"), 0);
        }
        let fixed = self.rng.one_of(&service::FIXED);
        let cost = if mode.is_settled() { self.rng.below(5) } else { 1 + self.rng.below(4) };
        match mode.is_slots() {
            true => (format!("/{mode}/any"), 1),
            false if self.rng.chance(50) => (format!("/{mode}/{fixed}"), fixed),
            false => (format!("/{mode}/any"), cost),
        }
    }
}

/// How long before and after its time a caller comes back, in milliseconds.
const NEARLY: u64 = 10;

/// Reads this number of frames of a body.
async fn read(response: Response<Body>, frames: u64) {
    let mut body = response.into_body();
    for _ in 0..frames {
        let next = contained(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)));
        let Some(Some(Ok(_))) = next.await else { break };
    }
}

/// The output of a future, or `None` if it panics.
async fn contained<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Ready(output)) => Poll::Ready(Some(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(None),
    })
    .await
}
