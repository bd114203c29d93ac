//! A process with every kind of load. Its limiter is closed and opened anew every half a minute.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};
use std::{env, future::Future, rc::Rc};

use axum::{Extension, Router, body::Body, routing::get};
use http::Request;
use tokio::{task::JoinSet, time::sleep};
use tollgate::{
    Decision, GlobalKey, Limiter, LiveLimits, Policy, decision::Source, limiter::HoldAnswer, limits::LimitsConfig,
};
use tower::ServiceExt;

use super::sample::Sample;
use super::spent::{SLOTS, Spent, WINDOW};
use crate::record::now_us;
use crate::support::{print_line, time_us};
use crate::worker::{connect, run_alone};

/// How long a limiter lives.
const GENERATION: Duration = Duration::from_secs(30);
/// How often the live limit changes, from one of these to the other.
const CHANGE: Duration = Duration::from_secs(5);
const LIVE: [u64; 2] = [200, 120];
/// The other limits, and the units of a lease.
const TURNS: u64 = 100;
const LEASED: u64 = 500;
const LEASE: u64 = 100;
const AT_ONCE: u64 = 4;

/// What the process reports.
#[derive(Default)]
struct Log {
    decisions: Cell<u64>,
    from_blocks: Cell<u64>,
    spent: RefCell<Vec<(&'static str, Spent)>>,
}

impl Log {
    fn decided(&self, decisions: u64) {
        self.decisions.set(self.decisions.get() + decisions);
    }

    /// Records units that were spent at the time of this decision, if it is one.
    fn add(&self, count: &'static str, decision: &Decision) {
        self.decided(1);
        if decision.is_allowed() {
            let at = time_us(decision).unwrap();
            let limit = decision.policies()[0].policy.limit();
            self.spent.borrow_mut().push((count, Spent { from_us: at, until_us: at, units: 1, limit }));
        }
    }

    fn add_between(&self, count: &'static str, from_us: u64, units: u64, limit: u64) {
        if units > 0 {
            self.spent.borrow_mut().push((count, Spent { from_us, until_us: now_us(), units, limit }));
        }
    }

    /// Prints what has happened, and a sample each second. Never returns.
    async fn report(&self) {
        let start = Instant::now();
        for tick in 1_u64.. {
            sleep(Duration::from_millis(200)).await;
            self.flush();
            if tick.is_multiple_of(5) {
                let at = start.elapsed().as_millis() as u64;
                print_line(&Sample::take(at, self.decisions.take()).line());
            }
        }
    }

    fn flush(&self) {
        let lines: Vec<String> = self.spent.take().iter().map(|(count, spent)| spent.line(count)).collect();
        if !lines.is_empty() {
            print_line(&lines.join("\n"));
        }
    }
}

pub(super) fn main() {
    run_alone(run());
}

async fn run() {
    let seconds = env::var("CHAOS_SECONDS").unwrap().parse().unwrap();
    let (end, log) = (Instant::now() + Duration::from_secs(seconds), Rc::new(Log::default()));
    let reporting = tokio::task::spawn_local({
        let log = Rc::clone(&log);
        async move { log.report().await }
    });
    while Instant::now() < end {
        let limiter = Limiter::new(connect(&env::var("CHAOS_TARGET").unwrap()));
        spend(&limiter, end.min(Instant::now() + GENERATION), &log).await;
        limiter.close().await;
    }
    reporting.abort();
    log.flush();
    assert!(log.from_blocks.get() > 0, "no check was answered by a lease");
}

/// Runs all loads until then.
async fn spend(limiter: &Limiter, end: Instant, log: &Rc<Log>) {
    let mut loads = JoinSet::new();
    let mut repeat = |times: usize, load: fn(Limiter, Instant, Rc<Log>) -> Load| {
        (0..times).for_each(|_| drop(loads.spawn_local(load(limiter.clone(), end, Rc::clone(log)))));
    };
    repeat(1, |limiter, end, log| Box::pin(live(limiter, end, log)));
    repeat(8, |limiter, end, log| Box::pin(leases(limiter, end, log)));
    repeat(8, |limiter, end, log| Box::pin(turns(limiter, end, log)));
    repeat(6, |limiter, end, log| Box::pin(slots(limiter, end, log)));
    loads.join_all().await;
}

type Load = std::pin::Pin<Box<dyn Future<Output = ()>>>;

fn limits(units: u64) -> LimitsConfig {
    let text =
        format!("[policies.live]\nrate = '{units}/s'\n[default]\npolicies = ['live']\non-store-failure = 'closed'\n");
    toml::from_str(&text).unwrap()
}

/// Requests of a layer whose limit changes.
async fn live(limiter: Limiter, end: Instant, log: Rc<Log>) {
    let live = LiveLimits::new(limits(LIVE[0]));
    let layer = live.layer(limiter, GlobalKey).unwrap();
    let answer = |Extension(decision): Extension<Decision>| async move { Extension(decision) };
    let app = Router::new().route("/", get(answer)).layer(layer);
    let (mut changed, mut number) = (Instant::now(), 0);
    while Instant::now() < end {
        if changed.elapsed() > CHANGE {
            (changed, number) = (Instant::now(), 1 - number);
            live.replace(limits(LIVE[number])).unwrap();
        }
        let mut requests = JoinSet::new();
        for _ in 0..4 {
            requests.spawn(app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap()));
        }
        for response in requests.join_all().await {
            match response.unwrap().extensions().get::<Decision>() {
                Some(decision) => log.add("live", decision),
                None => log.decided(1),
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Checks that blocks answer in the process.
async fn leases(limiter: Limiter, end: Instant, log: Rc<Log>) {
    let policy = Policy::new("leased", LEASED, WINDOW).unwrap().with_lease(LEASE);
    while Instant::now() < end {
        let (from_us, mut units) = (now_us(), 0);
        for _ in 0..10 {
            let Ok(decision) = limiter.check("key", &policy, 1).await else { break };
            log.decided(1);
            units += u64::from(decision.is_allowed());
            log.from_blocks.update(|checks| checks + u64::from(decision.source() == Source::Lease));
        }
        log.add_between("leased", from_us, units, LEASED);
        sleep(Duration::from_millis(2)).await;
    }
}

/// Callers who wait for their turn.
async fn turns(limiter: Limiter, end: Instant, log: Rc<Log>) {
    let policy = Policy::new("turns", TURNS, WINDOW).unwrap();
    while Instant::now() < end {
        if let Ok(decision) = limiter.acquire("key", &policy, 1).within(Duration::from_secs(2)).await {
            log.add("turns", &decision);
        }
        // Without Redis, the next one fails at once.
        sleep(Duration::from_millis(5)).await;
    }
}

/// Work of which only some may run at once.
async fn slots(limiter: Limiter, end: Instant, log: Rc<Log>) {
    let policy = Policy::concurrent(SLOTS, AT_ONCE).unwrap();
    while Instant::now() < end {
        if let Ok(answer) = limiter.hold("key", &policy, 1).await {
            log.decided(1);
            if let HoldAnswer::Open(hold) = answer {
                let from_us = now_us();
                sleep(Duration::from_millis(20)).await;
                log.add_between(SLOTS, from_us, 1, AT_ONCE);
                drop(hold.release().await);
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
}
