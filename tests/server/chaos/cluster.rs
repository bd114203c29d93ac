//! Clusters: failover, migration of slots, and a switch to a replica.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tollgate::Policy;

use crate::support::cluster::{Cluster, hashed_key};
use crate::worker::{KEYS, limit_of};
use crate::{load::Load, record::now_us, report::Keys, scenario::Trial, target::Target};

/// Time from the new slot map to the first decision of every worker.
const HEALS_WITHIN_US: u64 = 1_500_000;

/// The slot of a key of the workers, and the index of the master that owned the slot at the start.
fn slot_of(cluster: &Cluster, key: u8) -> (u16, usize) {
    let (limit, window) = limit_of(key);
    cluster.slot_of(&hashed_key(u64::from(key), &Policy::new("p", limit, window).unwrap()))
}

/// A cluster whose first master is killed.
struct FailoverCluster {
    cluster: Cluster,
    killed_us: Option<u64>,
}

impl FailoverCluster {
    fn start() -> Self {
        Self { cluster: Cluster::start_with_replicas(), killed_us: None }
    }
}

impl Target for FailoverCluster {
    fn address(&self) -> String {
        // A master that is killed, and one that survives.
        format!("cluster {} {}", self.cluster.nodes[0].url(), self.cluster.nodes[1].url())
    }

    fn serves_again_us(&self) -> u64 {
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

    fn affected_keys(&self) -> Keys {
        Keys::matching(|key| slot_of(&self.cluster, key).1 == 0)
    }

    fn restore(&mut self) {
        self.cluster.nodes[0].restart();
    }

    fn killed_us(&self) -> Option<u64> {
        self.killed_us
    }
}

#[test]
fn a_cluster_loses_a_master_and_elects_its_replica() {
    let trial = Trial { name: "cluster_failover", losses: 0, heals_within_us: HEALS_WITHIN_US, load: Load::LIGHT };
    trial.run(FailoverCluster::start, |failover| {
        failover.cluster.nodes[0].kill();
        failover.killed_us = Some(now_us());
    });
}

/// A cluster whose slots move between the masters.
struct MovingSlots(Cluster);

impl Target for MovingSlots {
    fn address(&self) -> String {
        format!("cluster {}", self.0.nodes[0].url())
    }

    fn serves_again_us(&self) -> u64 {
        now_us()
    }

    /// No key, because each slot has a master at any time.
    fn affected_keys(&self) -> Keys {
        Keys::NONE
    }
}

#[test]
fn slots_move_between_the_masters_of_a_cluster() {
    let trial = Trial { name: "cluster_slots_move", losses: 0, heals_within_us: HEALS_WITHIN_US, load: Load::LIGHT };
    trial.run(
        || MovingSlots(Cluster::start()),
        |MovingSlots(cluster)| {
            // Several keys may share a slot.
            let slots: BTreeSet<_> = (0..KEYS).map(|key| slot_of(cluster, key)).collect();
            for (slot, from) in slots {
                cluster.move_slot(slot, from, (from + 1) % 3);
            }
        },
    );
}

/// A cluster whose first master hands its slots to its replica, which does not have the script.
struct SwitchedMaster(Cluster);

impl Target for SwitchedMaster {
    fn address(&self) -> String {
        format!("cluster {} {}", self.0.nodes[0].url(), self.0.nodes[1].url())
    }

    fn serves_again_us(&self) -> u64 {
        let start = Instant::now();
        loop {
            let at = now_us();
            if self.0.nodes[3].command("ROLE").contains("master") {
                return at;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "the replica did not take over");
        }
    }

    fn affected_keys(&self) -> Keys {
        Keys::matching(|key| slot_of(&self.0, key).1 == 0)
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
            SwitchedMaster(cluster)
        },
        // A requested failover loses no data: the master waits for its replica.
        |SwitchedMaster(cluster)| drop(cluster.nodes[3].command("CLUSTER FAILOVER")),
    );
}
