//! Callers that come at once and wait for one key: in the queue of `acquire`, and by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use tollgate::{Algorithm, Limiter, Policy, RedisStore, observe};

use crate::svg::{AMBER, Axis, BLUE, Line, Panel, Stroke, panels};
use crate::{BoxError, Result, args::Args, report::Report, server::Server};

const PER_SECOND: u64 = 50;
const KEY: &str = "account-1";
/// Longer than the last caller waits.
const MAX_WAIT: Duration = Duration::from_secs(3_600);

/// How the callers wait.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Wait {
    Acquire,
    ByHand,
}

impl Wait {
    fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::ByHand => "check, sleep",
        }
    }
}

/// What the callers of one run got.
struct Run {
    wait: Wait,
    /// When each caller was served, in the order in which they came.
    served: Vec<Duration>,
    /// Checks of the callers themselves. In the queue, the store's calls are the checks.
    checks: u64,
    calls: u64,
}

impl Run {
    fn last(&self) -> f64 {
        self.served.iter().max().map_or(0.0, Duration::as_secs_f64)
    }

    /// Callers that a later one has overtaken.
    fn overtaken(&self) -> usize {
        let is_overtaken = |(number, at)| self.served[number..].iter().any(|later| later < at);
        self.served.iter().enumerate().filter(|one| is_overtaken(*one)).count()
    }
}

pub fn run(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let seconds = if args.quick { 0.2 } else { 2.0 * args.seconds };
    let callers = (seconds * PER_SECOND as f64).max(1.0) as usize;
    // On one thread, the callers come in the order of their numbers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut runs = Vec::new();
    for wait in [Wait::Acquire, Wait::ByHand] {
        let run = runtime.block_on(serve(wait, callers, server))?;
        let each = |count: u64| count as f64 / callers as f64;
        println!(
            "{:<12} {callers} callers, the last one served after {:.2} s; {:.1} checks and {:.2} calls of Redis \
             for each; {} overtaken",
            wait.name(),
            run.last(),
            each(run.checks),
            each(run.calls),
            run.overtaken(),
        );
        report.figure(json!({
            "wait": wait.name(), "callers": callers, "last": run.last(), "checks": run.checks, "calls": run.calls,
            "overtaken": run.overtaken(),
        }));
        runs.push(run);
    }
    if let Some(path) = &args.svg {
        let title = format!("{callers} callers wait for {PER_SECOND} units a second");
        let subtitle = format!("They come at once; a dot for each caller. A burst of 1, Redis {}", server.version()?);
        fs::write(path, panels(&title, &subtitle, &[panel(&runs, callers)]))?;
    }
    Ok(())
}

async fn serve(wait: Wait, callers: usize, server: &Server) -> Result<Run> {
    let [checks, calls] = [0, 0].map(|zero| Arc::new(AtomicU64::new(zero)));
    let of_observer = Arc::clone(&calls);
    let store = RedisStore::builder().prefix(wait.name()).open(server.endpoint().url())?;
    let limiter = Limiter::new(store).with_observer(observe::from_fn(move |event| {
        if event.name() == "batch" {
            of_observer.fetch_add(1, Ordering::Relaxed);
        }
    }));
    limiter.ready().await?;
    let before = calls.load(Ordering::Relaxed);
    let policy = Policy::per_second("quota", PER_SECOND)?.with_algorithm(Algorithm::TokenBucket).with_burst(1);
    let start = Instant::now();
    let mut waiting = JoinSet::new();
    for number in 0..callers {
        let (limiter, policy, checks) = (limiter.clone(), policy.clone(), Arc::clone(&checks));
        waiting.spawn(async move {
            if wait == Wait::Acquire {
                let decision = limiter.acquire(KEY, &policy, 1).within(MAX_WAIT).await?;
                if !decision.is_allowed() {
                    return Err("a caller in the queue was denied".into());
                }
            } else {
                until_admitted(&limiter, &policy, &checks).await?;
            }
            Ok::<_, BoxError>((number, start.elapsed()))
        });
    }
    let mut served = vec![Duration::ZERO; callers];
    while let Some(caller) = waiting.join_next().await {
        let (number, at) = caller??;
        served[number] = at;
    }
    let calls = calls.load(Ordering::Relaxed) - before;
    let checks = if wait == Wait::Acquire { calls } else { checks.load(Ordering::Relaxed) };
    Ok(Run { wait, served, checks, calls })
}

/// Checks, sleeps as long as the denial says, and checks again.
async fn until_admitted(limiter: &Limiter, policy: &Policy, checks: &AtomicU64) -> Result<()> {
    loop {
        checks.fetch_add(1, Ordering::Relaxed);
        let decision = limiter.check(KEY, policy, 1).await?;
        if decision.is_allowed() {
            return Ok(());
        }
        tokio::time::sleep(decision.retry_after().ok_or("a denial without a Retry-After")?).await;
    }
}

/// Callers in the order in which they came, against the time at which each is served.
fn panel(runs: &[Run], callers: usize) -> Panel {
    let line = |run: &Run| Line {
        label: run.wait.name().to_owned(),
        colour: if run.wait == Wait::Acquire { BLUE } else { AMBER },
        stroke: Stroke::Dots,
        is_marked: false,
        points: run.served.iter().enumerate().map(|(n, at)| (at.as_secs_f64(), (n + 1) as f64)).collect(),
    };
    let seconds = runs.iter().map(Run::last).fold(1.0, f64::max).ceil();
    let quarter = |of: f64, tick: u32| of / 4.0 * f64::from(tick);
    Panel {
        title: String::new(),
        x: Axis {
            title: "time at which the caller is served",
            ticks: (0..=seconds as u32).map(|second| (f64::from(second), format!("{second} s"))).collect(),
            is_logarithmic: false,
        },
        y: Axis {
            title: "caller, in the order of arrival",
            ticks: (0..=4).map(|tick| quarter(callers as f64, tick)).map(|at| (at, format!("{at:.0}"))).collect(),
            is_logarithmic: false,
        },
        // The queue is above the dots of the others.
        lines: runs.iter().rev().map(line).collect(),
        background: Vec::new(),
        strip: Vec::new(),
    }
}
