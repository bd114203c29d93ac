//! A cluster: slots, their moves, and the loss of a master.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tollgate::{
    Check, ConfigError, Limiter, Policy, RedisStore,
    observe::{Observer, Warning},
};

use crate::{
    address::LEAST,
    policy,
    support::redis_server::{Directory, RedisServer, calls},
};

/// Three masters that share the slots.
struct Cluster {
    nodes: Vec<RedisServer>,
    _directory: Directory,
}

impl Cluster {
    fn start() -> Self {
        let directory = Directory::new();
        let nodes: Vec<_> = (0..3)
            .map(|number| {
                let file = directory.path(&format!("nodes{number}.conf"));
                RedisServer::start_node(&["--cluster-config-file", &file, "--cluster-node-timeout", "1000"])
            })
            .collect();
        for (number, (first, last)) in [(0, 5_460), (5_461, 10_922), (10_923, 16_383)].into_iter().enumerate() {
            // ADDSLOTSRANGE is newer than Redis 6.2.
            let slots: Vec<_> = (first..=last).map(|slot: u16| slot.to_string()).collect();
            nodes[number].command(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            if number > 0 {
                nodes[0].command(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[number].port()));
            }
        }
        let start = Instant::now();
        while !nodes.iter().all(|node| {
            let info = node.command("CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        }) {
            assert!(start.elapsed() < Duration::from_secs(20), "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { nodes, _directory: directory }
    }

    fn limiter(&self) -> Limiter {
        let store = RedisStore::builder()
            .plain_keys()
            .deadline(Duration::from_secs(1))
            .connect_cluster([self.nodes[0].url().as_str()]);
        Limiter::new(store.unwrap())
    }

    /// Moves a slot as `redis-cli --cluster reshard` does.
    fn move_slot(&self, slot: u16, from: usize, to: usize) {
        let id = |node: usize| self.nodes[node].command("CLUSTER MYID").lines().nth(1).unwrap().to_owned();
        self.nodes[to].command(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
        self.nodes[from].command(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
        std::thread::sleep(Duration::from_millis(50));
        loop {
            let keys = self.nodes[from].command(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            let keys: Vec<_> = keys.lines().filter(|line| line.starts_with("tollgate:")).collect();
            let Some(key) = keys.first() else { break };
            let reply = self.nodes[from].command(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", self.nodes[to].port()));
            assert!(reply.starts_with("+OK") || reply.is_empty(), "{reply}");
            std::thread::sleep(Duration::from_millis(50));
        }
        for node in [to, from] {
            self.nodes[node].command(&format!("CLUSTER SETSLOT {slot} NODE {}", id(to)));
        }
    }
}

async fn settled(limiter: &Limiter) {
    let start = Instant::now();
    while limiter.peek("k", &policy()).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_all_slots_are_counted_and_several_keys_are_never_over() {
    let cluster = Cluster::start();
    let limiter = cluster.limiter();
    settled(&limiter).await;
    for key in 0..60_u64 {
        let policy = Policy::per_hour("p", 2).unwrap();
        for allowed in [true, true, false] {
            assert_eq!(limiter.check(key, &policy, 1).await.unwrap().is_allowed(), allowed);
        }
        let pair =
            Check::new(key, &Policy::per_hour("a", 3).unwrap(), 1).and(key, &Policy::per_hour("b", 3).unwrap(), 1);
        assert!(limiter.decide(pair.unwrap()).await.unwrap().is_allowed());
    }
    assert!(cluster.nodes.iter().all(|node| !node.command("DBSIZE").starts_with(":0")), "all nodes have keys");

    // "foo" and "bar" are in slots of different nodes. What is looked at and denied costs nothing.
    let (wide, narrow) = (Policy::per_hour("wide", 100).unwrap(), Policy::per_hour("narrow", 10).unwrap());
    let both = || Check::new("foo", &wide, 1).and("bar", &narrow, 1).unwrap();
    for _ in 0..10 {
        assert!(limiter.decide(both()).await.unwrap().is_allowed());
    }
    let denied = limiter.decide(both()).await.unwrap();
    let alone = limiter.check("bar", &narrow, 1).await.unwrap();
    assert!(!denied.is_allowed() && !alone.is_allowed());
    let (denied, alone) = (denied.retry_after().unwrap(), alone.retry_after().unwrap());
    assert!(denied.abs_diff(alone) < Duration::from_secs(5), "{denied:?}, {alone:?}");
    assert_eq!(limiter.peek("foo", &wide).await.unwrap().available(), Some(90));

    // Contended, it may charge without admitting, and never admits more than there is.
    let scarce = Policy::per_hour("scarce", 20).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..100 {
        let (limiter, scarce) = (limiter.clone(), scarce.clone());
        tasks.spawn(async move {
            let check = Check::new("foo", &scarce, 1).and("bar", &scarce, 1).unwrap();
            limiter.decide(check).await.unwrap().is_allowed()
        });
    }
    let admitted = tasks.join_all().await.into_iter().filter(|allowed| *allowed).count();
    assert!((1..=20).contains(&admitted), "{admitted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_loses_no_count() {
    let cluster = Cluster::start();
    let limiter = cluster.limiter();
    settled(&limiter).await;
    // "foo" is in slot 12182, of the third node.
    let policy = Policy::per_hour("moving", 1_000_000).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let load = {
        let (limiter, policy, stop) = (limiter.clone(), policy.clone(), Arc::clone(&stop));
        tokio::spawn(async move {
            let (mut sure, mut unsure) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                match limiter.check("foo", &policy, 1).await {
                    Ok(decision) => sure += u32::from(decision.is_allowed()),
                    Err(error) => unsure += u32::from(error.may_have_charged()),
                }
            }
            (sure, unsure)
        })
    };
    let cluster = tokio::task::spawn_blocking(move || {
        for (from, to) in [(2, 0), (0, 1), (1, 2)] {
            cluster.move_slot(12_182, from, to);
            std::thread::sleep(Duration::from_millis(50));
        }
        cluster
    });
    let _cluster = cluster.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    let (sure, unsure) = load.await.unwrap();
    let left = limiter.peek("foo", &policy).await.unwrap().available().unwrap();
    let spent = 1_000_000 - left;
    assert!(sure > 100 && (sure..=sure + unsure).contains(&spent), "{sure} and perhaps {unsure}, {spent} counted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_lost_takes_its_slots_alone_and_heals_with_its_return() {
    let mut cluster = Cluster::start();
    for node in &cluster.nodes {
        node.command("CONFIG SET cluster-require-full-coverage no");
    }
    let limiter = cluster.limiter();
    settled(&limiter).await;
    assert!(limiter.check("foo", &policy(), 1).await.is_ok() && limiter.check("bar", &policy(), 1).await.is_ok());
    cluster.nodes[2].kill();
    assert!(limiter.check("foo", &policy(), 1).await.is_err());
    let start = Instant::now();
    while limiter.check("bar", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(2), "the others are lost, too");
    }
    cluster.nodes[2].restart();
    let start = Instant::now();
    while limiter.check("foo", &policy(), 1).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "never healed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_least_acl_of_the_documentation_is_enough_on_a_cluster() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.command(&format!("ACL SETUSER gate on >secret {LEAST} +cluster|slots +ping +asking"));
    }
    let url = cluster.nodes[0].url().replace("//", "//gate:secret@");
    let store = RedisStore::builder().deadline(Duration::from_secs(1)).connect_cluster([url.as_str()]).unwrap();
    let limiter = Limiter::new(store);
    settled(&limiter).await;
    for key in 0..20_u64 {
        limiter.check(key, &policy(), 1).await.unwrap();
    }
}

#[test]
fn no_node_and_a_socket_are_configuration_errors() {
    for nodes in [&[][..], &["unix:///tmp/redis.sock"], &["nonsense"]] {
        let result = RedisStore::builder().connect_cluster(nodes.iter().copied());
        assert!(matches!(result, Err(ConfigError::InvalidRedisUrl { .. })), "{nodes:?}");
    }
}

struct Warnings(mpsc::Sender<Warning>);

impl Observer for Warnings {
    fn on_warning(&self, warning: &Warning) {
        self.0.send(warning.clone()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_master_is_asked_whether_it_may_evict() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        node.command("CONFIG SET maxmemory-policy allkeys-lru");
    }
    let (sender, warnings) = mpsc::channel();
    let limiter = cluster.limiter().observer(Warnings(sender));
    settled(&limiter).await;
    let warning = warnings.recv_timeout(Duration::from_secs(5)).unwrap();
    assert_eq!(warning, Warning::Eviction { policy: "allkeys-lru".to_owned() });
    settled(&limiter).await;
    assert_eq!(cluster.nodes.iter().map(|node| calls(node, "info")).sum::<u64>(), 1);
}
