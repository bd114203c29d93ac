//! Benchmarks of the hot paths, which run in about a minute: `cargo bench -p tollgate-benches`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{convert::Infallible, hint::black_box, net::SocketAddr, task::Context};

use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, Request, Response};
use tollgate::{
    Algorithm, Check, GlobalKey, HeaderStyle, Key, KeyExtractor, Limiter, MemoryStore, PeerIp, Policy, RateLimitLayer,
    headers::HeaderWriter, http,
};
use tower::{Layer, Service, ServiceExt, service_fn};

fn policy(limit: u64) -> Policy {
    Policy::per_second("per-client", limit).unwrap()
}

/// The output of a check in memory, whose future is ready at its first poll.
fn output_of<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => unreachable!("the memory store never waits"),
    }
}

fn memory_check(c: &mut Criterion) {
    let mut group = c.benchmark_group("memory check");
    for algorithm in
        [Algorithm::FixedWindow, Algorithm::SlidingWindowCounter, Algorithm::SlidingWindowLog, Algorithm::TokenBucket]
    {
        let limiter = Limiter::new(MemoryStore::new());
        let policy = policy(100).with_algorithm(algorithm);
        let keys: Vec<Key> = (0..10_000_u64).map(Key::from).collect();
        let mut next = keys.iter().cycle();
        group.bench_function(format!("{algorithm:?}, 10 000 keys"), |b| {
            b.iter(|| output_of(limiter.check(next.next().unwrap(), &policy, 1)).unwrap().is_allowed());
        });
        let limiter = Limiter::new(MemoryStore::new());
        group.bench_function(format!("{algorithm:?}, 10 000 keys, try_check"), |b| {
            b.iter(|| limiter.try_check(next.next().unwrap(), &policy, 1).unwrap().is_allowed());
        });
    }
    let limiter = Limiter::new(MemoryStore::new());
    let denied = policy(1);
    group.bench_function("SlidingWindowLog, one key, denied", |b| {
        b.iter(|| output_of(limiter.check("k", &denied, 1)).unwrap().is_allowed());
    });
    group.finish();
}

fn keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("key");
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.extensions.insert(SocketAddr::from(([203, 0, 113, 7], 4711)));
    group.bench_function("from a peer address", |b| b.iter(|| PeerIp::new().extract(black_box(&parts))));
    group.bench_function("from text", |b| b.iter(|| Key::from(black_box("user:17"))));
    group.bench_function("hashed", |b| b.iter(|| Key::hashed(black_box("a secret of some length"))));
    {
        let plain = tollgate::RedisStore::builder().plain_keys().open("redis://127.0.0.1:1").unwrap();
        let hashed = tollgate::RedisStore::open("redis://127.0.0.1:1").unwrap();
        let policy = policy(1);
        for (name, store) in [("Redis key, plain", plain), ("Redis key, hashed", hashed)] {
            group.bench_function(name, |b| b.iter(|| store.redis_key(black_box("user:17"), &policy)));
        }
    }
    group.finish();
}

fn headers(c: &mut Criterion) {
    let mut group = c.benchmark_group("headers");
    let limiter = Limiter::new(MemoryStore::new());
    let decision = output_of(limiter.check_all(Check::new("k", &policy(100), 1))).unwrap();
    for style in [HeaderStyle::Draft11, HeaderStyle::Draft07, HeaderStyle::XRateLimitDelta] {
        let writer = HeaderWriter::new(style);
        group.bench_function(format!("{style:?}"), |b| {
            b.iter(|| {
                let mut headers = HeaderMap::new();
                writer.write(black_box(&decision), &mut headers);
                headers
            });
        });
    }
    group.finish();
}

fn layer(c: &mut Criterion) {
    let mut group = c.benchmark_group("service");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bare = || service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(bytes::Bytes::new())) });
    let request = || Request::new(());
    group.bench_function("bare", |b| {
        let mut service = bare();
        b.iter(|| runtime.block_on(async { service.ready().await.unwrap().call(request()).await.unwrap() }));
    });
    for (name, limit) in [("allowed", Policy::MAX_LIMIT), ("denied", 1)] {
        // The fixed window has no log, so the figure measures the layer and not the growth of a log.
        let policy = policy(limit).with_algorithm(Algorithm::FixedWindow);
        let policy = if limit == 1 { Policy::per_day("per-client", 1).unwrap() } else { policy };
        let layer = RateLimitLayer::new(Limiter::new(MemoryStore::new()), policy, GlobalKey);
        group.bench_function(name, |b| {
            let mut service = layer.layer(bare());
            b.iter(|| runtime.block_on(async { service.ready().await.unwrap().call(request()).await.unwrap() }));
        });
    }
    group.finish();
}

criterion_group!(benches, memory_check, keys, headers, layer);
criterion_main!(benches);
