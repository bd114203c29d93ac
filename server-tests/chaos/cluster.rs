//! A cluster that loses a master, and one whose slots move.

use std::time::{Duration, Instant};

use crate::{
    load::Load,
    record::now_us,
    report::Keys,
    scenario::{Place, Trial},
    support::cluster::Cluster,
    worker::KEYS,
};

/// From the new map of slots on.
const HEALS_WITHIN_US: u64 = 1_500_000;
struct Shards {
    cluster: Cluster,
    killed_us: Option<u64>,
}

impl Shards {
    fn start() -> Self {
        Self { cluster: Cluster::start_with_replicas(), killed_us: None }
    }
}

impl Place for Shards {
    fn address(&self) -> String {
        // One that will be lost, and one that will not.
        format!("cluster {} {}", self.cluster.nodes[0].url(), self.cluster.nodes[1].url())
    }

    fn answers_us(&self) -> u64 {
        let start = Instant::now();
        loop {
            let at = now_us();
            let survivors = &self.cluster.nodes[1..];
            if survivors[2].command("ROLE").contains("master")
                && survivors.iter().all(|node| node.command("CLUSTER INFO").contains("cluster_state:ok"))
            {
                return at;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "no replica was elected");
        }
    }

    fn cut_off(&self) -> Keys {
        Keys::which(|key| self.cluster.slot_of(key).1 == 0)
    }

    fn afterwards(&mut self) {
        self.cluster.nodes[0].restart();
    }

    fn killed_us(&self) -> Option<u64> {
        self.killed_us
    }
}

#[test]
fn a_cluster_loses_a_master_and_elects_its_replica() {
    let trial = Trial { name: "cluster_failover", losses: 0, heals_within_us: HEALS_WITHIN_US, load: Load::LIGHT };
    trial.run(Shards::start, |shards| {
        shards.cluster.nodes[0].kill();
        shards.killed_us = Some(now_us());
    });
}

struct Moving(Cluster);

impl Place for Moving {
    fn address(&self) -> String {
        format!("cluster {}", self.0.nodes[0].url())
    }

    fn answers_us(&self) -> u64 {
        now_us()
    }

    /// Each slot has a node at any time.
    fn cut_off(&self) -> Keys {
        Keys::NONE
    }
}

#[test]
fn slots_move_between_the_masters_of_a_cluster() {
    let trial = Trial { name: "cluster_slots_move", losses: 0, heals_within_us: HEALS_WITHIN_US, load: Load::LIGHT };
    trial.run(
        || Moving(Cluster::start()),
        |Moving(cluster)| {
            for key in 0..KEYS {
                let (slot, from) = cluster.slot_of(key);
                cluster.move_slot(slot, from, (from + 1) % 3);
            }
        },
    );
}

/// A cluster whose first master hands its slots to its replica, which has never been sent the script.
struct Handed(Cluster);

impl Place for Handed {
    fn address(&self) -> String {
        format!("cluster {} {}", self.0.nodes[0].url(), self.0.nodes[1].url())
    }

    fn answers_us(&self) -> u64 {
        let start = Instant::now();
        loop {
            let at = now_us();
            if self.0.nodes[3].command("ROLE").contains("master") {
                return at;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "the replica did not take over");
        }
    }

    fn cut_off(&self) -> Keys {
        Keys::which(|key| self.0.slot_of(key).1 == 0)
    }
}

#[test]
fn a_cluster_switches_to_a_master_without_the_script() {
    let trial = Trial { name: "cluster_switch", losses: 0, heals_within_us: HEALS_WITHIN_US, load: Load::LIGHT };
    trial.run(
        || {
            let cluster = Cluster::start_with_replicas();
            for replica in &cluster.nodes[3..] {
                replica.command("SCRIPT FLUSH");
            }
            Handed(cluster)
        },
        // Nothing is lost: the master waits until its replica has everything.
        |Handed(cluster)| drop(cluster.nodes[3].command("CLUSTER FAILOVER")),
    );
}
