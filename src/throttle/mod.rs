//! Outbound clients that stay within the quota of another service: [`ThrottleLayer`].
//!
//! An upstream API grants a number of calls a minute, refuses the others, and may bill or block a client that does not
//! stop. A client that shares the quota with other tasks and other processes cannot count on its own. [`ThrottleLayer`]
//! makes each call wait until the [`Limiter`](crate::Limiter) has charged it, and until the pauses are over for which
//! the upstream itself has asked. In front of a handler, requests wait in a layer with
//! [`RateLimitLayer::wait_up_to`](crate::RateLimitLayer::wait_up_to) instead.
//!
//! # Rules
//!
//! 1. A call waits in the queue of its key, first come, first served in the process, and is charged before it is made.
//!    [`Limiter::acquire`](crate::Limiter::acquire) has the details. A call that fails later is not refunded.
//! 2. A call that is certain to wait for longer than [`with_max_wait`](ThrottleLayer::with_max_wait) allows is not
//!    made. Its error is [`Throttled`], which says how long it would have taken. Errors of the client pass through, in
//!    a box.
//! 3. Without a verdict of the store, no call is made ([`fail_closed`](ThrottleLayer::fail_closed)), unless the layer
//!    fails [open](ThrottleLayer::fail_open) or [local](ThrottleLayer::fail_local).
//! 4. A response that asks for a pause keeps later calls for its key back, in this process, or in all processes that
//!    [share pauses](ThrottleLayer::with_shared_pauses). Then they resume one by one. Calls that are under way go on,
//!    and the response itself reaches the caller unchanged: the layer repeats no call.
//! 5. A call that was charged just when a pause began takes another turn after the pause, behind the calls that wait
//!    then, and is charged again, because the upstream counts it then.
//! 6. Under a [concurrency limit](crate::Policy::concurrent), a call waits for a slot, which it holds until the body of
//!    its response has ended: see [`hold_until_end`](ThrottleLayer::hold_until_end).
//! 7. A [computed cost](ThrottleLayer::with_cost_fn) of 0 exempts a request from all of this.
//! 8. With [several limits](ThrottleLayer::and_limit), a call waits until all of them have room, and is charged under
//!    all of them or under none.
//!
//! # Responses that ask for a pause
//!
//! | response | pause |
//! | --- | --- |
//! | 429 with `Retry-After`, `retry-after-ms` (OpenAI, Azure) or `X-RateLimit-After` | for that time |
//! | 429 without any of the fields in this table | 1 s |
//! | 429 with a wait of zero | 100 ms |
//! | 503, 403 (GitHub), 420 (Twitter) or 529 (Anthropic) with `Retry-After` or `retry-after-ms` | for that time |
//! | 503, 403, 420 or 529 without these fields | none |
//! | gRPC `RESOURCE_EXHAUSTED` or `UNAVAILABLE` in the head | `grpc-retry-pushback-ms` or `retry-after`; else none |
//! | any with `RateLimit: "name";r=0;t=5` (revision 11 of the draft) | until `t` |
//! | any with `RateLimit: limit=9, remaining=0, reset=5` (revision 07) | until `reset` |
//! | any with `RateLimit-Remaining: 0` (revisions 03 and 06) | until `RateLimit-Reset` |
//! | any with `X-RateLimit-Remaining: 0` | until `X-RateLimit-Reset`, or for `X-RateLimit-After` |
//! | any with `X-RateLimit-Remaining: 0` (Discord) | for `X-RateLimit-Reset-After` |
//!
//! The longest pause applies, at most one hour, so that garbage cannot stop a client for good. Fields that cannot be
//! read are ignored. `Retry-After` is a number of seconds or a date, and a reset above 1 000 000 000 is a time since
//! the Unix epoch; both are compared with the `Date` of the response, so that the clocks need not agree. The `Age` of
//! a response from a cache is subtracted from the RateLimit fields.
//!
//! A limiter remembers the pauses of at most 100 000 keys at a time, which take less than 50 MB. Beyond that, the pause
//! that ends first is given up: its upstream is called although it has asked not to be, and may ask again. Calls that
//! wait for the end of that pause still wait. The limiter [warns](crate::observe::Warning) once.
//!
//! # The default
//!
//! Around any client whose response is an [`http::Response`]. With hyper-util:
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let quota = Policy::per_minute("upstream", 600)?;
//! let throttle =
//!     ThrottleLayer::new(Limiter::new(MemoryStore::new()), quota, "account-1");
//! let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
//! let client = ServiceBuilder::new().layer(throttle).service(client);
//! # if false {
//! let request =
//!     http::Request::get("http://api.example/users").body(Full::default())?;
//! let response = client.clone().oneshot(request).await?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! Around a channel of tonic. The generated clients take any such service. [`Throttled`] is the source of the
//! `tonic::Status` of a call that was not made.
//!
//! ```
//! use tollgate::{Limiter, MemoryStore, Policy, ThrottleLayer, throttle::Throttle};
//! use tonic::transport::{Channel, Endpoint};
//! use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
//! use tower::Layer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let quota = Policy::per_minute("upstream", 600)?;
//! let throttle =
//!     ThrottleLayer::new(Limiter::new(MemoryStore::new()), quota, "account-1");
//! let channel = Endpoint::new("http://127.0.0.1:50051")?.connect_lazy();
//! let mut client: HealthClient<Throttle<Channel>> =
//!     HealthClient::new(throttle.layer(channel));
//! # if false {
//! let reply = client.check(HealthCheckRequest::default()).await?;
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! # Customised
//!
//! Around reqwest (feature `reqwest`), whose client is a service of its own requests and responses. Each host has a
//! budget, writes cost more than reads, calls may wait for half a minute, and processes that have the same `RedisStore`
//! share budgets and pauses. `examples/reqwest_client` is a whole program.
//!
//! ```
//! use std::time::Duration;
//!
//! use http::Method;
//! use tollgate::{
//!     Key, Limiter, MemoryStore, Policy, ThrottleLayer, throttle::Throttled,
//! };
//! use tower::{Service, ServiceBuilder, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! // Or `RedisStore::open("redis://127.0.0.1:6379")?`.
//! let limiter = Limiter::new(MemoryStore::new());
//! let throttle =
//!     ThrottleLayer::new(limiter, Policy::per_second("per-host", 50)?, "any")
//!         .with_key(|request: &reqwest::Request| {
//!             Key::from(request.url().host_str().unwrap_or_default())
//!         })
//!         .with_cost_fn(
//!             |request: &reqwest::Request| {
//!                 if request.method() == Method::GET { 1 } else { 5 }
//!             },
//!         )
//!         .with_max_wait(Duration::from_secs(30))
//!         .with_shared_pauses()
//!         .validated()?;
//! // Redirects are calls, which the throttle would not see.
//! let client = reqwest::Client::builder()
//!     .redirect(reqwest::redirect::Policy::none())
//!     .build()?;
//! let mut client = ServiceBuilder::new().layer(throttle).service(client);
//! # if false {
//!
//! let request = client.get_ref().get("http://api.example/users").build()?;
//! match client.ready().await?.call(request).await {
//!     Ok(response) => println!("{}", response.text().await?),
//!     Err(error) => match error.downcast_ref::<Throttled>() {
//!         Some(throttled) => println!(
//!             "not called; it would have taken {:?}",
//!             throttled.retry_after()
//!         ),
//!         None => return Err(error),
//!     },
//! }
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! The guide's page [`waiting`](crate::guide::waiting) explains how to choose the policy.
//!
//! # Order of layers
//!
//! Outside: retries, so that each attempt waits for a turn of its own, and a timeout of the whole call, longer than
//! [`with_max_wait`](ThrottleLayer::with_max_wait). Inside: timeouts of the answer alone.
//!
//! A call asks the inner service for a place, such as one in the buffer of a tonic channel, when its turn has come. So
//! calls that wait for one key do not stand in the way of other keys. If no place is free within the longest wait of
//! the call, the call ends in [`Throttled`], although it was charged. If the window of a limit has passed since its
//! charge when it gets its place, the call takes another turn, and is charged again. So does a call whose turn has come
//! while nothing polled it, such as one of a `buffer_unordered` whose results are used slowly. A
//! `tower::limit::ConcurrencyLimit` outside of the throttle also counts the calls that wait.
//!
//! Redirects and repeats are calls too. A client that follows redirects by itself, or that repeats by itself, makes
//! calls that the throttle does not see: 30 calls that are redirected twice are 90 requests. Switch redirects off in
//! the client (`reqwest::redirect::Policy::none()`; hyper-util follows none), or put tower-http's `FollowRedirect`
//! outside of the throttle.

mod layer;
mod request;
mod response;
mod service;
mod settings;
mod throttled;
mod turn;
mod upstream;

pub use self::{
    layer::ThrottleLayer,
    response::{HttpBody, ThrottledBody},
    service::{Throttle, ThrottleFuture},
    throttled::Throttled,
};
