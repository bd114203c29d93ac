//! The time that a layer adds to a service that does nothing, measured without a server and without a runtime.

use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use std::{convert::Infallible, future::ready, hint::black_box};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use serde_json::json;
use tollgate::Algorithm;
use tower::{Layer, Service, service_fn};

use super::layers::{self, AXUM_GOVERNOR, NONE, TOLLGATE, TOLLGATE_BUCKET, TOWER_GOVERNOR, Traffic};
use crate::{ROUNDS, Result, poll, random::Random, report::Report, stats::median};

const PEERS: usize = 1_000;

struct Variant {
    name: &'static str,
    /// Runs for at least the given time; returns nanoseconds per request.
    slice: Box<dyn FnMut(Duration) -> Result<f64>>,
    figures: Vec<f64>,
}

pub fn run(time: Duration, report: &mut Report) -> Result<()> {
    for traffic in Traffic::ALL {
        let mut variants = variants(traffic)?;
        for variant in &mut variants {
            // Two slices of warm-up: every peer spends its first request, and logs grow to their steady size.
            (variant.slice)(time / ROUNDS)?;
            (variant.slice)(time / ROUNDS)?;
        }
        for _ in 0..ROUNDS {
            for variant in &mut variants {
                variant.figures.push((variant.slice)(time / ROUNDS)?);
            }
        }
        summarise(traffic, variants, report);
    }
    Ok(())
}

fn variants(traffic: Traffic) -> Result<[Variant; 5]> {
    let inner = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let expected = match traffic {
        Traffic::Allowed => StatusCode::OK,
        Traffic::Denied => StatusCode::TOO_MANY_REQUESTS,
    };
    Ok([
        variant(NONE, inner, StatusCode::OK),
        variant(TOLLGATE, layers::tollgate(traffic, Algorithm::SlidingWindowLog)?.layer(inner), expected),
        variant(TOLLGATE_BUCKET, layers::tollgate(traffic, Algorithm::TokenBucket)?.layer(inner), expected),
        variant(TOWER_GOVERNOR, layers::tower_governor(traffic)?.layer(inner), expected),
        variant(AXUM_GOVERNOR, layers::axum_governor(traffic)?.layer(inner), expected),
    ])
}

fn variant<S>(name: &'static str, mut service: S, expected: StatusCode) -> Variant
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + 'static,
{
    let mut random = Random::new(7);
    let slice = move |time: Duration| {
        let (start, mut requests, mut unexpected) = (Instant::now(), 0_u32, 0_usize);
        while start.elapsed() < time {
            for _ in 0..1_000 {
                let mut request = Request::new(Body::empty());
                request.extensions_mut().insert(layers::peer(random.below(PEERS)));
                if service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending() {
                    return Err(format!("{name} is not ready at once").into());
                }
                let response = poll::once(service.call(request))
                    .ok_or_else(|| format!("{name} does not respond at the first poll"))?;
                let response = black_box(response.unwrap_or_else(|never| match never {}));
                unexpected += usize::from(response.status() != expected);
                requests += 1;
            }
        }
        // Every limit allows the first request of each peer.
        if unexpected > PEERS {
            return Err(
                format!("{name}: {unexpected} of {requests} responses did not have the status {expected}").into()
            );
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(requests))
    };
    Variant { name, slice: Box::new(slice), figures: Vec::new() }
}

fn summarise(traffic: Traffic, variants: [Variant; 5], report: &mut Report) {
    println!("\nbare service, {} requests: the service's own time, and the time that each layer adds", traffic.name());
    let ns = variants.map(|variant| (variant.name, median(variant.figures)));
    let bare = ns[0].1;
    for (name, ns) in ns {
        println!("  {name:<16} {:>8.0} ns", if name == NONE { ns } else { ns - bare });
        report.figure(json!({ "bare": name, "traffic": traffic.name(), "ns": ns, "overhead_ns": ns - bare }));
    }
    // A denied request does not reach the service, but the service's own time is negligible.
    let overhead = |index: usize| ns[index].1 - bare;
    report.ratio(&format!("http_{}_vs_tower_governor", traffic.name()), overhead(1) / overhead(3));
    report.ratio(&format!("http_{}_vs_axum_governor", traffic.name()), overhead(1) / overhead(4));
    report.ratio(&format!("http_{}_bucket_vs_tower_governor", traffic.name()), overhead(2) / overhead(3));
}
