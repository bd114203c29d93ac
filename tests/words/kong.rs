//! Kong.

use super::*;

// `second: 5`, `hour: 10000`
fn periods() -> Made<[Policy; 2]> {
    Ok([Policy::per_second("second", 5)?, Policy::per_hour("hour", 10_000)?])
}

// `month: 100000`, `year: 1000000`
fn month() -> Made<Policy> {
    Policy::calendar("month", 100_000, Calendar::monthly())
}

// `limit_by: consumer`
#[derive(Clone)]
struct Consumer(u64);

impl From<&Consumer> for Key {
    fn from(consumer: &Consumer) -> Key {
        Key::from(consumer.0)
    }
}

fn by_consumer() -> ExtensionKey<Consumer> {
    ExtensionKey::<Consumer>::new()
}

// `policy: local`, `policy: redis`
fn stores(url: &str) -> Made<(MemoryStore, RedisStore)> {
    Ok((MemoryStore::new(), RedisStore::open(url)?))
}

// `fault_tolerant: true`
fn fault_tolerant(limit: RateLimitLayer<PeerIp>) -> [RateLimitLayer<PeerIp>; 2] {
    [limit.clone().fail_open(), limit.fail_closed()]
}

// `hide_client_headers: true`
fn hidden(limit: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    limit.with_headers(HeaderStyle::None)
}

// `error_code: 403`, `error_message: ..`
fn error_code(limit: RateLimitLayer<PeerIp>) -> RateLimitLayer<PeerIp> {
    limit.with_rejection(ProblemJson::with_quota_status(ProblemJson::default(), StatusCode::FORBIDDEN))
}
