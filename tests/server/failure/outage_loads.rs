//! Outages of a real server under `fail_local`, with the loads that once admitted more than their limits.
//!
//! `tests/limiter/outages` has many more kinds of outages, over a simulated network. docs/guarantees.md has the proof
//! of the bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::interval};
use tollgate::{Limiter, MemoryStore, Policy, RedisStore, decision::Source, policy::HoldSettings};

use crate::support::{print_line, random::Random, redis_server::RedisServer, seed::seeds};

const WINDOW: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum Mode {
    Plain,
    Leases,
    Holds,
}

/// A fleet with equal load, twice the limit.
#[derive(Clone, Copy, Debug)]
struct Load {
    mode: Mode,
    instances: u32,
    limit: u64,
    cost: u64,
}

const LOADS: [Load; 6] = [
    Load { mode: Mode::Plain, instances: 1, limit: 400, cost: 1 },
    Load { mode: Mode::Plain, instances: 1, limit: 2_000, cost: 1_000 },
    Load { mode: Mode::Plain, instances: 4, limit: 2_000, cost: 250 },
    Load { mode: Mode::Leases, instances: 1, limit: 5_000, cost: 1 },
    Load { mode: Mode::Holds, instances: 1, limit: 1_000, cost: 10 },
    Load { mode: Mode::Holds, instances: 2, limit: 1_000, cost: 10 },
];

#[derive(Clone, Copy, Debug)]
struct Admitted {
    instance: usize,
    asked: Instant,
    answered: Instant,
    /// The order of the answers.
    number: u64,
    units: u64,
    is_local: bool,
}

struct Instance {
    number: usize,
    limiter: Limiter,
    policy: Policy,
    load: Load,
    history: Arc<Mutex<Vec<Admitted>>>,
    answers: Arc<AtomicU64>,
}

impl Instance {
    /// Asks once. `work` is how long it holds what it gets, and `unused` what it does not need. On a busy machine, a
    /// check may be one of too many, which no failure policy admits.
    async fn ask(self: Arc<Self>, work: Duration, unused: u64) {
        let (asked, mut units) = (Instant::now(), self.load.cost);
        let (source, hold) = if let Mode::Holds = self.load.mode {
            let held = self.limiter.hold("k", &self.policy, units).fail_local().await;
            let Some(hold) = held.ok().and_then(|held| held.into_result().ok()) else { return };
            (hold.decision().source(), Some(hold))
        } else {
            match self.limiter.check("k", &self.policy, units).fail_local().await {
                Ok(decision) if decision.is_allowed() => (decision.source(), None),
                _ => return,
            }
        };
        let (answered, number) = (Instant::now(), self.answers.fetch_add(1, Ordering::Relaxed));
        if let Some(hold) = hold {
            tokio::time::sleep(work).await;
            units -= unused.min(units);
            let _ = hold.settle(units).await;
        }
        let (instance, is_local) = (self.number, source == Source::Local);
        self.history.lock().unwrap().push(Admitted { instance, asked, answered, number, units, is_local });
    }

    async fn run(self: Arc<Self>, time: Duration, seed: u64) {
        let (mut random, mut calls, mut ticks) = (Random(seed), JoinSet::new(), interval(4 * MS));
        let (start, mut sent) = (Instant::now(), 0_u32);
        let per_second = (2 * self.load.limit / self.load.cost / u64::from(self.load.instances)) as f64;
        while start.elapsed() < time {
            ticks.tick().await;
            // Looked at once, because a process without processor time would be behind for ever.
            let due = start.elapsed().min(time).as_secs_f64() * per_second;
            while f64::from(sent) < due {
                sent += 1;
                let (work, unused) = (MS * random.below(80) as u32, random.below(3));
                calls.spawn(Arc::clone(&self).ask(work, unused));
            }
            while calls.try_join_next().is_some() {}
        }
        calls.join_all().await;
    }
}

/// Runs a load through one outage: the server is stopped for a random time.
async fn run(load: Load, seed: u64) -> Vec<Admitted> {
    let (server, mut random) = (RedisServer::start(), Random(seed));
    let policy = Policy::new("p", load.limit, WINDOW).unwrap();
    let policy = match load.mode {
        Mode::Plain => policy,
        Mode::Leases => policy.with_lease(load.limit / 10),
        Mode::Holds => policy.with_holds(HoldSettings::new().with_ttl(5 * WINDOW)),
    };
    let (history, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::<AtomicU64>::default());
    let mut instances = JoinSet::new();
    for number in 0..load.instances as usize {
        let store = RedisStore::builder().deadline(50 * MS).open(&server.url()).unwrap();
        let limiter = Limiter::new(store).without_notices().with_local_fallback(MemoryStore::new(), load.instances);
        let (policy, history, answers) = (policy.clone(), Arc::clone(&history), Arc::clone(&answers));
        let instance = Arc::new(Instance { number, limiter, policy, load, history, answers });
        instances.spawn(instance.run(4 * WINDOW, seed + number as u64));
    }
    tokio::time::sleep(WINDOW + MS * random.below(800) as u32).await;
    server.signal("STOP");
    tokio::time::sleep(MS * random.pick(&[70, 200, 600, 1_100])).await;
    server.signal("CONT");
    instances.join_all().await;
    std::mem::take(&mut *history.lock().unwrap())
}

/// The fullest window, and the one that is nearest to its bound or most above it: its units and the bound. A window
/// sees what was asked and answered within it.
fn judge(load: Load, mut history: Vec<Admitted>) -> (u64, (u64, u64)) {
    history.sort_by_key(|admitted| admitted.asked);
    let (mut fullest, mut nearest) = (0, (0, load.limit));
    for first in 0..history.len() {
        let end = history[first].asked + WINDOW;
        let inside = history[first..].iter().take_while(|admitted| admitted.asked < end);
        let mut inside: Vec<&Admitted> = inside.filter(|admitted| admitted.answered < end).collect();
        let units = inside.iter().map(|admitted| admitted.units).sum::<u64>();
        fullest = fullest.max(units);
        if units + nearest.1 <= nearest.0 + load.limit {
            continue;
        }
        inside.sort_by_key(|admitted| admitted.number);
        let (mut by_store, mut before) = (vec![0; load.instances as usize], vec![None; load.instances as usize]);
        for admitted in inside {
            match admitted.is_local {
                true => before[admitted.instance] = Some(by_store[admitted.instance]),
                false => by_store[admitted.instance] += admitted.units,
            }
        }
        let share = load.limit.div_ceil(load.instances.into());
        let left: u64 = before.into_iter().flatten().map(|before| share.saturating_sub(before)).sum();
        let bound = load.limit + if load.instances == 1 { 0 } else { left };
        if units + nearest.1 > nearest.0 + bound {
            nearest = (units, bound);
        }
    }
    (fullest, nearest)
}

/// Runs each load `count` times, two at a time.
async fn keep_to_the_bound(count: u64) {
    for load in LOADS {
        let (mut most, mut above, mut locals, mut wrong) = (0, 0, 0, Vec::new());
        let seeds: Vec<u64> = seeds(count).collect();
        for pair in seeds.chunks(2) {
            let runs: JoinSet<_> = pair.iter().map(|&seed| async move { (seed, run(load, seed).await) }).collect();
            for (seed, history) in runs.join_all().await {
                locals += history.iter().filter(|admitted| admitted.is_local).count();
                let (fullest, (units, bound)) = judge(load, history);
                most = most.max(fullest);
                above += u64::from(fullest > load.limit);
                if units > bound {
                    wrong.push(format!("seed {seed}: {units} of at most {bound}"));
                }
            }
        }
        print_line(&format!(
            "{load:?}: at most {most} units in a window, above the limit in {above} of {count} outages; the shares have \
             admitted {locals} checks"
        ));
        assert!(wrong.is_empty(), "{load:?}: {wrong:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_outages_of_a_real_server_keep_to_the_documented_bounds() {
    keep_to_the_bound(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "fifty outages of each load: tests/run --long"]
async fn long_law_1_outages_of_a_real_server_keep_to_the_documented_bounds() {
    keep_to_the_bound(50).await;
}
