//! A worker process: sends requests through the layer and reports the outcomes.

use std::time::{Duration, Instant};
use std::{convert::Infallible, env, rc::Rc};

use http::{Request, Response, StatusCode, request::Parts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, LocalSet};
use tokio::{net::TcpStream, time::sleep};
use tollgate::{
    Decision, Key, KeyExtractor, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore, decision::Source,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::log::{Log, measure_oversleep};
use crate::record::{Kind, Record};
use crate::support::{is_thorough, sentinel::Trio};
use crate::{DEADLINE, WORKERS, interference};

pub(crate) const KEYS: u8 = 8;
/// Limit and window of a key. Half of the windows are short, so they end many times in a run; the others outlast any
/// fault, and are spent by twenty requests, so that also a busy machine reaches them.
pub(crate) const fn limit_of(key: u8) -> (u64, Duration) {
    if key < KEYS / 2 { (20, Duration::from_millis(20)) } else { (100, Duration::from_secs(4)) }
}
const MAX_COST: u64 = 10;

/// Key and cost of a request, in its extensions.
#[derive(Clone, Copy)]
struct Charge {
    key: u8,
    cost: u16,
}

type Limit = RateLimitLayer<Box<dyn KeyExtractor>>;
type Setter = fn(Limit) -> Limit;

/// All failure policies, by their name in the report.
pub(crate) const POLICIES: &[(&str, Setter)] =
    &[("open", Limit::fail_open), ("closed", Limit::fail_closed), ("local", |limit| limit.fail_local())];

/// The failure policies of a cause: all of them in `tests/run --all`, otherwise one, which the name of the cause
/// selects.
pub(crate) fn policies_for(cause: &str) -> impl Iterator<Item = &'static str> {
    let all = is_thorough();
    let selected = cause.bytes().map(usize::from).sum::<usize>() % POLICIES.len();
    let is_used = move |index: &usize| all || *index == selected;
    (0..POLICIES.len()).filter(is_used).map(|index| POLICIES[index].0)
}

/// Runs until the test closes the connection or dies.
pub(crate) fn main() {
    run_alone(run());
}

/// Runs the program of a process in one thread.
pub(super) fn run_alone(program: impl Future<Output = ()>) {
    // A panic in one task ends the process, not only that task.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::exit(1);
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, program);
}

async fn run() {
    let number = |name: &str| env::var(name).unwrap().parse::<u64>().unwrap();
    let limiter = Limiter::new(connect(&env::var("CHAOS_TARGET").unwrap()));
    let limiter = limiter.with_local_fallback(MemoryStore::new(), WORKERS as u32);
    let (tasks, pause) = (number("CHAOS_TASKS"), Duration::from_micros(number("CHAOS_PAUSE_US")));
    let mut report = TcpStream::connect(env::var("CHAOS_REPORT").unwrap()).await.unwrap();
    let log = Rc::new(Log::new());
    // Before the first request, so that no time is missing. The first checks of a process may also wait for the first
    // connection, longer than the deadline, which `ready` spares them.
    tokio::task::spawn_local(measure_oversleep(Rc::clone(&log)));
    while limiter.ready().await.is_err() {}
    for task in 0..tasks {
        let seed = number("CHAOS_SEED") * tasks + task + 1;
        tokio::task::spawn_local(send_requests(limiter.clone(), seed, pause, Rc::clone(&log)));
    }
    if number("CHAOS_BURST") > 0 {
        tokio::task::spawn_local(bursts(limiter.clone(), number("CHAOS_BURST"), Rc::clone(&log)));
    }
    interference::start(&env::var("CHAOS_INTERFERENCE").unwrap());
    loop {
        let more = tokio::time::timeout(Duration::from_millis(20), report.read(&mut [0; 16])).await;
        if matches!(more, Ok(Ok(0) | Err(_))) {
            log.ended.set(true);
            let start = Instant::now();
            // Waits for the responses in flight: an admission that is not reported would explain no denial. On a busy
            // machine they take seconds.
            while start.elapsed() < DEADLINE * 2 || (log.in_flight.get() > 0 && start.elapsed() < DEADLINE * 400) {
                sleep(Duration::from_millis(1)).await;
            }
        }
        log.usage();
        let bytes: Vec<u8> = log.records.take().into_iter().flat_map(Record::to_bytes).collect();
        if report.write_all(&bytes).await.is_err() || log.ended.get() {
            return;
        }
    }
}

/// Parses a target: its kind (`server`, `cluster` or `sentinels`), then URLs. Or `tls`, the file of an authority, and
/// the URL of a server.
pub(crate) fn connect(target: &str) -> RedisStore {
    let (kind, urls) = target.split_once(' ').unwrap();
    let store = match kind {
        "server" => RedisStore::open(urls),
        "tls" => {
            let (authority, url) = urls.split_once(' ').unwrap();
            RedisStore::builder().root_certificates(std::fs::read(authority).unwrap()).open(url)
        }
        "cluster" => RedisStore::builder().open_cluster(urls.split(' ')),
        "sentinels" => RedisStore::builder().open_sentinel(urls.split(' '), Trio::NAME),
        _ => panic!("{target}"),
    };
    store.unwrap()
}

async fn send_requests(limiter: Limiter, seed: u64, pause: Duration, log: Rc<Log>) {
    let service_of = |key| service_of(&limiter, key);
    let mut plain = service_fn(answer);
    let mut services: Vec<_> = (0..KEYS).map(service_of).collect();
    let mut random = seed;
    while !log.ended.get() {
        let key = (next(&mut random) % u64::from(KEYS)) as u8;
        let cost = (1 + next(&mut random) % MAX_COST) as u16;
        let mut request = Request::new(());
        request.extensions_mut().insert(Charge { key, cost });
        let service = services[usize::from(key)].ready().await.unwrap();
        let open = limiter.is_breaker_open();
        log.in_flight.set(log.in_flight.get() + 1);
        let start = Instant::now();
        let response = service.call(request).await.unwrap();
        let end = Instant::now();
        log.in_flight.set(log.in_flight.get() - 1);
        let wait_us = u32::try_from((end - start).as_micros()).unwrap();
        let (kind, time_us, extra) = outcome(&response);
        let has_no_verdict = matches!(kind, Kind::Passed | Kind::Refused | Kind::Overloaded);
        let open = has_no_verdict && open && limiter.is_breaker_open();
        let extra = extra + u64::from(open);
        log.add(Record { kind, key, cost, wait_us, end_us: log.time_us(end), time_us, extra });
        if open {
            let mut request = Request::new(());
            request.extensions_mut().insert(Charge { key, cost });
            let service = plain.ready().await.unwrap();
            let start = Instant::now();
            service.call(request).await.unwrap();
            let end = Instant::now();
            let (wait_us, end_us) = ((end - start).as_micros() as u32, log.time_us(end));
            log.add(Record { kind: Kind::Unlimited, key, cost, wait_us, end_us, time_us: 0, extra: 0 });
        }
        // A pause limits the load. After a request without a verdict the client waits a little longer.
        let pause = if has_no_verdict { pause.max(RETRY_PAUSE) } else { pause };
        if pause.is_zero() {
            tokio::task::yield_now().await;
        } else {
            sleep(pause).await;
        }
    }
}

/// A service whose limiter takes key and cost from the request's [`Charge`].
fn service_of(
    limiter: &Limiter,
    key: u8,
) -> impl Service<Request<()>, Response = Reply, Error = Infallible> + Clone + use<> {
    let name = env::var("CHAOS_POLICY").unwrap();
    let (_, failing) = POLICIES.iter().find(|(policy, _)| *policy == name).unwrap();
    let charge_of = |parts: &Parts| *parts.extensions.get::<Charge>().unwrap();
    let (limit, window) = limit_of(key);
    let policy = Policy::new("p", limit, window).unwrap();
    let key: Box<dyn KeyExtractor> = Box::new(move |parts: &Parts| Key::from(u64::from(charge_of(parts).key)));
    let limit = RateLimitLayer::new(limiter.clone(), policy, key).with_decision_in_response(true);
    let limit = failing(limit.with_cost_fn(move |parts| charge_of(parts).cost.into()));
    limit.layer(service_fn(answer))
}

type Reply = Response<bytes::Bytes>;

/// Sends bursts of concurrent requests, one key after another.
async fn bursts(limiter: Limiter, requests: u64, log: Rc<Log>) {
    let services: Vec<_> = (0..KEYS).map(|key| service_of(&limiter, key)).collect();
    for key in (0..KEYS).cycle() {
        sleep(Duration::from_millis(500)).await;
        let mut burst = JoinSet::new();
        for _ in 0..requests {
            let (service, log) = (services[usize::from(key)].clone(), Rc::clone(&log));
            burst.spawn_local(async move {
                let mut request = Request::new(());
                request.extensions_mut().insert(Charge { key, cost: 1 });
                log.in_flight.set(log.in_flight.get() + 1);
                let start = Instant::now();
                let response = service.oneshot(request).await.unwrap();
                let end = Instant::now();
                log.in_flight.set(log.in_flight.get() - 1);
                let wait_us = u32::try_from((end - start).as_micros()).unwrap();
                let (kind, time_us, extra) = outcome(&response);
                log.add(Record { kind, key, cost: 1, wait_us, end_us: log.time_us(end), time_us, extra });
            });
        }
        burst.join_all().await;
        if log.ended.get() {
            return;
        }
    }
}

async fn answer(_: Request<()>) -> Result<Reply, Infallible> {
    Ok(Response::new(bytes::Bytes::new()))
}

const RETRY_PAUSE: Duration = Duration::from_millis(2);

fn outcome(response: &Reply) -> (Kind, u64, u64) {
    let decision = response.extensions().get::<Decision>().unwrap();
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        let is_overloaded = decision.source() == Source::Overloaded;
        return (if is_overloaded { Kind::Overloaded } else { Kind::Refused }, 0, 0);
    }
    let (allowed, denied) = (response.status().is_success(), response.status() == StatusCode::TOO_MANY_REQUESTS);
    assert!(allowed || denied, "{response:?}");
    let time_us = crate::support::time_us(decision).unwrap_or(0);
    let retry_after_us = decision.retry_after().map_or(0, |wait| u64::try_from(wait.as_micros()).unwrap());
    match decision.source() {
        Source::Store if allowed => (Kind::Allowed, time_us, 0),
        Source::Store => (Kind::Denied, time_us, retry_after_us),
        Source::DenyCache => (Kind::Cached, time_us, retry_after_us),
        // Includes denials by the local fallback, which are 429 and no error.
        _ => (Kind::Passed, 0, 0),
    }
}

/// xorshift64*.
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
}
