//! Every kind of policy on a cluster of three masters and three replicas that lives through failovers, stops, moves of
//! slots, flushed scripts and full nodes, while callers go away: what is admitted, charged and free afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{collections::BTreeMap, thread};

use tokio::task::JoinSet;
use tollgate::store::{Answer, Store, Verdict};
use tollgate::{Algorithm, Check, Decision, Error, Key, Limiter, Policy, RedisStore, policy::HoldSettings};

use super::{cluster::connected, holds::answer, refunds::polled};
use crate::support::cluster::{Cluster, plain_key};
use crate::support::windows::{Admitted, most_within};
use crate::support::{print_line, until};
use crate::support::{random::Random, redis_server::RedisServer};

/// A window in which nothing is freed during the test.
const YEAR: Duration = Duration::from_secs(86_400 * 365);
/// The keys of each kind, on all nodes.
const KEYS: u64 = 9;
/// The slots of each key.
const SLOTS: u64 = 2;

/// What became of the checks of one key: units that were admitted, and when; and units of unknown fate.
#[derive(Clone, Debug, Default)]
struct Tally {
    admitted: u64,
    unknown: u64,
    times: Vec<Admitted>,
}

type Tallies = Arc<Mutex<BTreeMap<(&'static str, u64), Tally>>>;

/// A policy for each kind of checks. The limits are reached during the test, except for those of holds, pairs and wide
/// shards.
fn policy(kind: &'static str, scale: u64) -> Policy {
    let policy = |limit| Policy::new(kind, limit, YEAR).unwrap();
    match kind {
        "bucket" => policy(60 * scale).with_algorithm(Algorithm::TokenBucket),
        "ban" => policy(60 * scale).ban_after(30, YEAR),
        "lease" => policy(200 * scale).with_lease(20),
        "shards" => policy(60 * scale).with_shards(3),
        "wide-shards" => policy(1_000_000).with_shards(3),
        "second" => Policy::per_second(kind, 10).unwrap(),
        "holds" => {
            let holds = HoldSettings::new().with_ttl(Duration::from_secs(5)).with_unsettled_released(true);
            policy(1_000_000).with_holds(holds)
        }
        "pair" => policy(1_000_000),
        "slots" => {
            let holds = HoldSettings::new().with_ttl(Duration::from_secs(5));
            Policy::concurrent(kind, SLOTS).unwrap().with_holds(holds)
        }
        _ => policy(60 * scale),
    }
}

/// One check of a kind, by a caller that leaves after some polls, or never.
async fn check(
    limiter: &Limiter,
    kind: &str,
    key: u64,
    policy: &Policy,
    polls: u64,
) -> Option<Result<Decision, Error>> {
    let name = format!("{kind}-{key}");
    match kind {
        "pair" => {
            let other = format!("{kind}-{}", (key + 1) % KEYS);
            polled(limiter.check_all(Check::new(name, policy, 1).and(other, policy, 1)), polls).await
        }
        "acquire" => polled(limiter.acquire(name, policy, 1).within(Duration::from_millis(20)), polls).await,
        _ => polled(limiter.check(name, policy, 1), polls).await,
    }
}

/// Makes checks of one kind until the end.
async fn load(limiter: Limiter, kind: &'static str, scale: u64, tallies: Tallies, stop: Arc<AtomicBool>, seed: u64) {
    let (mut random, policy) = (Random(seed), policy(kind, scale));
    while !stop.load(Ordering::Relaxed) {
        let key = random.below(KEYS);
        let polls = if random.one_in(5) { 1 + random.below(6) } else { u64::MAX };
        let sent = Instant::now();
        let answer = check(&limiter, kind, key, &policy, polls).await;
        {
            let mut tallies = tallies.lock().unwrap();
            let tally = tallies.entry((kind, key)).or_default();
            match answer {
                Some(Ok(decision)) if decision.is_allowed() => {
                    tally.admitted += 1;
                    tally.times.push((sent, Instant::now()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) if !error.may_have_charged() => {}
                _ => tally.unknown += 1,
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Holds units, and settles or drops them, until the end. Returns the most that ran at once under one key, and how
/// many were made.
async fn hold(
    limiter: Limiter,
    kind: &'static str,
    running: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    seed: u64,
) -> (u64, u64) {
    let (mut random, policy, mut most, mut made) = (Random(seed), policy(kind, 1), 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let key = random.below(KEYS);
        let polls = if random.one_in(5) { 1 + random.below(6) } else { u64::MAX };
        let held = polled(limiter.hold(format!("{kind}-{key}"), &policy, 1), polls).await;
        if let Some(Ok(held)) = held
            && let Ok(hold) = held.into_result()
        {
            let running = &running[usize::try_from(key).unwrap()];
            most = most.max(running.fetch_add(1, Ordering::Relaxed) + 1);
            made += 1;
            tokio::time::sleep(Duration::from_millis(10 + random.below(60))).await;
            running.fetch_sub(1, Ordering::Relaxed);
            match random.below(3) {
                0 => drop(hold),
                1 => drop(hold.release().await),
                _ => drop(hold.settle(0).await),
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (most, made)
}

/// Moves the keys of a slot, a hundred at a time.
fn migrate_all(cluster: &Cluster, slot: u16, from: usize, to: usize) {
    let (from, port) = (&cluster.nodes[from], cluster.nodes[to].port());
    loop {
        let keys = from.command(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
        let keys: Vec<_> = keys.lines().map(str::trim).filter(|line| line.starts_with("tollgate:")).collect();
        if keys.is_empty() {
            return;
        }
        from.command(&format!("MIGRATE 127.0.0.1 {port} \"\" 0 5000 KEYS {}", keys.join(" ")));
    }
}

/// Makes a replica the master.
fn fail_over(cluster: &Cluster, old: usize, new: usize) {
    let has_role = |node: usize, role: &str| cluster.nodes[node].command("ROLE").contains(role);
    let is_done = || has_role(new, "master") && has_role(old, "slave");
    let mut asked: Option<Instant> = None;
    until("the roles are swapped", || {
        // Masters vote once in two node timeouts for the replicas of one master, and a failover is given up after 5 s.
        if !is_done() && asked.is_none_or(|asked| asked.elapsed() > Duration::from_millis(2_500)) {
            cluster.nodes[new].command("CLUSTER FAILOVER");
            asked = Some(Instant::now());
        }
        is_done()
    });
    until("the replica is in sync", || cluster.nodes[new].has_replicas_in_sync(1));
}

/// Kills a master, whose replica takes over, and starts it again as the replica of the new one. Its writes have reached
/// the replica: Redis sends them to both before it waits for the next ones.
fn kill(cluster: &mut Cluster, old: usize, new: usize) {
    cluster.nodes[old].kill();
    let is_master = |node: &RedisServer| node.command("ROLE").contains("master");
    until("the replica takes over", || is_master(&cluster.nodes[new]));
    cluster.nodes[old].restart();
    until("the killed master is a replica", || !is_master(&cluster.nodes[old]));
    until("the replica is in sync", || cluster.nodes[new].has_replicas_in_sync(1));
}

/// What happens to the cluster. Nothing of it loses a write.
fn live(cluster: &mut Cluster, rounds: u64, slow: Duration, kills: bool) {
    let slots: Vec<u16> = (0..KEYS)
        .map(|key| cluster.slot_of(&plain_key(format!("slots-{key}"), &policy("slots", 1))).0)
        .filter(|slot| *slot > 10_922)
        .collect();
    for round in 0..rounds {
        // A slot of the third master moves slowly to the first, and back.
        let slot = slots[usize::try_from(round).unwrap() % slots.len()];
        for (from, to) in [(2, 0), (0, 2)] {
            cluster.begin_move(slot, from, to);
            thread::sleep(slow);
            migrate_all(cluster, slot, from, to);
            cluster.end_move(slot, from, to);
        }
        for node in &cluster.nodes {
            node.command("SCRIPT FLUSH");
        }
        cluster.nodes[1].signal("STOP");
        thread::sleep(Duration::from_millis(400));
        cluster.nodes[1].signal("CONT");
        cluster.nodes[0].command("CONFIG SET maxmemory 1");
        thread::sleep(Duration::from_millis(300));
        cluster.nodes[0].command("CONFIG SET maxmemory 0");
        // The second master hands over to its replica, and takes its slots back.
        for (old, new) in [(1, 4), (4, 1)] {
            fail_over(cluster, old, new);
        }
        if kills {
            kill(cluster, 1, 4);
            fail_over(cluster, 4, 1);
        }
    }
}

/// Sums what is spent in all shards of a key. A limiter's peek says only how much fits into one of them.
#[derive(Debug)]
struct Sums {
    store: RedisStore,
    spent: Arc<AtomicU64>,
}

impl Store for Sums {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        let (answered, spent) = (answer(self.store.check(check)), Arc::clone(&self.spent));
        let limit: u64 = check.charges().iter().map(|charge| charge.policy.capacity()).sum();
        Answer::pending(async move {
            let verdict = answered.await?;
            spent
                .store(limit - verdict.outcomes.iter().map(|outcome| outcome.available).sum::<u64>(), Ordering::SeqCst);
            Ok(verdict)
        })
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        self.store.reset(key, policy)
    }

    fn deadline(&self) -> Duration {
        self.store.deadline()
    }

    fn has_holds(&self) -> bool {
        self.store.has_holds()
    }
}

/// The units that are spent under a key: those of all shards.
async fn spent(store: &RedisStore, key: &str, policy: &Policy) -> u64 {
    let spent = Arc::new(AtomicU64::new(0));
    let limiter = Limiter::new(Sums { store: store.clone(), spent: Arc::clone(&spent) }).without_notices();
    let start = Instant::now();
    loop {
        match limiter.peek(key, policy).await {
            Ok(_) => return spent.load(Ordering::SeqCst),
            Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "{key}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const CHECKED: [&str; 9] = ["log", "bucket", "ban", "lease", "shards", "wide-shards", "second", "pair", "acquire"];
const HELD: [&str; 2] = ["holds", "slots"];

async fn assert_laws(rounds: u64, slow: Duration, scale: u64, kills: bool) {
    let mut cluster = Cluster::start_with_replicas();
    let builder = RedisStore::builder().plain_keys().deadline(Duration::from_millis(300));
    let store = builder.open_cluster([cluster.nodes[0].url().as_str()]).unwrap();
    let limiter = Limiter::new(store.clone()).without_notices();
    connected(&limiter).await;
    let (tallies, stop) = (Tallies::default(), Arc::new(AtomicBool::new(false)));
    let (mut checks, mut holds) = (JoinSet::new(), JoinSet::new());
    let running = HELD.map(|_| Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>()));
    for seed in 0..4 {
        for kind in CHECKED {
            checks.spawn(load(limiter.clone(), kind, scale, Arc::clone(&tallies), Arc::clone(&stop), 100 + seed));
        }
        for (kind, running) in HELD.into_iter().zip(&running) {
            let hold = hold(limiter.clone(), kind, Arc::clone(running), Arc::clone(&stop), 200 + seed);
            holds.spawn(async move { (kind, hold.await) });
        }
    }
    let lived = tokio::task::spawn_blocking(move || {
        live(&mut cluster, rounds, slow, kills);
        thread::sleep(Duration::from_millis(500));
        cluster
    });
    let _cluster = lived.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    checks.join_all().await;
    for (kind, (most, made)) in holds.join_all().await {
        print_line(&format!("{kind}: at most {most} at once under a key, {made} made by one caller"));
        assert!(made > 0 && (kind != "slots" || most <= SLOTS), "{kind}: {most} at once, {made} made");
    }
    limiter.close().await;
    let mut tallies = std::mem::take(&mut *tallies.lock().unwrap());
    assert_no_window_is_over(&mut tallies, scale);
    for (kind, (admitted, unknown, charged)) in assert_charged(&store, &tallies, scale).await {
        print_line(&format!("{kind}: {admitted} admitted, {unknown} of unknown fate, {charged} charged"));
    }
    for kind in HELD {
        let (policy, start) = (policy(kind, 1), Instant::now());
        for key in 0..KEYS {
            while spent(&store, &format!("{kind}-{key}"), &policy).await > 0 {
                assert!(start.elapsed() < Duration::from_secs(25), "law 15: {kind}-{key} is not free");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        print_line(&format!("{kind}: all free after {:?}", start.elapsed()));
    }
}

/// Law 1. Takes out the tallies of windows that have passed.
fn assert_no_window_is_over(tallies: &mut BTreeMap<(&'static str, u64), Tally>, scale: u64) {
    let mut mosts: BTreeMap<&str, usize> = BTreeMap::new();
    for (&(kind, key), tally) in tallies.iter() {
        let (policy, most) = (policy(kind, scale), mosts.entry(kind).or_default());
        let seen = most_within(policy.window().unwrap(), &tally.times);
        assert!(seen <= policy.limit() as usize, "law 1: {kind}-{key}: {seen} of {}", policy.limit());
        *most = (*most).max(seen);
    }
    for (kind, most) in mosts {
        print_line(&format!("{kind}: at most {most} of {} in a window", policy(kind, scale).limit()));
    }
    tallies.retain(|(kind, _), _| *kind != "second");
}

/// Laws 1 and 3: what is admitted is charged, and at most what is of unknown fate beside it. Returns the sums of each
/// kind.
async fn assert_charged(
    store: &RedisStore,
    tallies: &BTreeMap<(&'static str, u64), Tally>,
    scale: u64,
) -> BTreeMap<&'static str, (u64, u64, u64)> {
    let mut sums: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for (&(kind, key), Tally { admitted, unknown, .. }) in tallies {
        let policy = policy(kind, scale);
        // The second key of the pair before has the same count.
        let before = match kind {
            "pair" => tallies.get(&(kind, (key + KEYS - 1) % KEYS)).cloned().unwrap_or_default(),
            _ => Tally::default(),
        };
        let (admitted, unknown) = (admitted + before.admitted, unknown + before.unknown);
        let start = Instant::now();
        let mut charged = spent(store, &format!("{kind}-{key}"), &policy).await;
        // Refunds, and what a lease gives back, may still be under way.
        while charged > admitted + unknown && start.elapsed() < Duration::from_secs(3) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            charged = spent(store, &format!("{kind}-{key}"), &policy).await;
        }
        assert!(charged >= admitted, "law 1: {kind}-{key}: {admitted} admitted, {charged} charged");
        assert!(charged <= admitted + unknown, "law 3: {kind}-{key}: {admitted}, {unknown} unknown, {charged} charged");
        let sum = sums.entry(kind).or_default();
        *sum = (sum.0 + admitted, sum.1 + unknown, sum.2 + charged);
    }
    sums
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn laws_1_3_and_15_hold_for_every_policy_on_a_cluster_that_lives() {
    assert_laws(1, Duration::from_millis(700), 1, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; tests/run --long runs it"]
async fn long_laws_1_3_and_15_hold_for_every_policy_on_a_cluster_that_lives() {
    assert_laws(10, Duration::from_secs(5), 10, true).await;
}
