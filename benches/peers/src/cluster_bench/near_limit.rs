//! Load near the limit of a policy with shards: which checks are denied while other shards have units left.

use std::collections::VecDeque;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::json;
use tokio::{task::JoinSet, time::interval};
use tollgate::Policy;

use super::{hot_key::HotKey, nodes::Nodes};
use crate::{Result, args::Args, report::Report};

const LIMIT: u64 = 2_000;
const WINDOW: Duration = Duration::from_secs(1);
/// Numbers of shards.
const SHARDS: [u32; 4] = [1, 2, 8, 32];
/// Loads, as parts of the limit.
const LOADS: [f64; 4] = [0.8, 0.95, 1.0, 1.5];
const TASKS: u32 = 64;
/// A store stands for a process.
const STORES: usize = 8;

/// A decision: its time in microseconds, and whether the check was allowed.
type Decided = (u64, bool);

pub async fn run(nodes: &Nodes, args: &Args, report: &mut Report) -> Result<()> {
    println!("\na limit of {LIMIT} a second, stores: {STORES}, three masters");
    let time = Duration::from_secs_f64(args.seconds).max(WINDOW) + WINDOW;
    for &shards in args.some_of(&SHARDS) {
        for &part in args.some_of(&LOADS) {
            let policy = Policy::new(format!("load-{}", 100.0 * part), LIMIT, WINDOW)?.with_shards(shards);
            let hot = HotKey::new(nodes, "near:", policy, STORES)?;
            let mut history = load(&hot, LIMIT as f64 * part, time).await?;
            history.sort_unstable();
            print(shards, part, &judge(&history), report);
        }
    }
    Ok(())
}

/// Sends `rate` checks a second, each whether or not earlier ones are answered.
async fn load(hot: &HotKey, rate: f64, time: Duration) -> Result<Vec<Decided>> {
    hot.ready().await?;
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let hot = hot.clone();
        tasks.spawn(async move {
            let period = Duration::from_secs_f64(f64::from(TASKS) / rate);
            // The tasks take turns.
            tokio::time::sleep(period * task / TASKS).await;
            let (mut ticks, mut decided) = (interval(period), Vec::new());
            while Instant::now() < end {
                ticks.tick().await;
                let decision = hot.limiter.check("hot", &hot.policy, 1).await?;
                let time = decision.time().ok_or("a verdict of the store has a time")?.duration_since(UNIX_EPOCH)?;
                decided.push((time.as_micros() as u64, decision.is_allowed()));
            }
            Ok::<_, crate::BoxError>(decided)
        });
    }
    let mut history = Vec::new();
    while let Some(decided) = tasks.join_next().await {
        history.extend(decided??);
    }
    Ok(history)
}

/// What the decisions after the first window were.
#[derive(Debug, Default)]
struct Judged {
    checks: f64,
    denied: f64,
    /// Denials at a time at which the window had a unit left, in whatever shard.
    denied_early: f64,
    /// The most units of any window.
    most: usize,
}

fn judge(history: &[Decided]) -> Judged {
    let window_us = WINDOW.as_micros() as u64;
    let start_us = history.first().map_or(0, |(time, _)| time + window_us);
    let (mut judged, mut admitted) = (Judged::default(), VecDeque::new());
    for &(time, is_allowed) in history {
        while admitted.front().is_some_and(|at| at + window_us <= time) {
            admitted.pop_front();
        }
        if is_allowed {
            admitted.push_back(time);
        }
        judged.most = judged.most.max(admitted.len());
        if time >= start_us {
            judged.checks += 1.0;
            judged.denied += f64::from(u8::from(!is_allowed));
            judged.denied_early += f64::from(u8::from(!is_allowed && admitted.len() < LIMIT as usize));
        }
    }
    judged
}

fn print(shards: u32, part: f64, judged: &Judged, report: &mut Report) {
    let Judged { checks, denied, denied_early, most } = judged;
    let share = |count: f64| count / checks;
    println!(
        "  {shards:>2} shards, {:>3.0} % of the limit: {:>5.2} % denied, {:>5.2} % while units were left; {most} units \
         in the fullest window",
        100.0 * part,
        100.0 * share(*denied),
        100.0 * share(*denied_early)
    );
    report.figure(json!({
        "shards": shards, "load": part, "denied": share(*denied), "denied_while_units_were_left": share(*denied_early),
        "most_in_a_window": most,
    }));
}
