//! A Redis Cluster of real servers on this machine.

use std::{sync::LazyLock, thread, time::Duration};

use tollgate::{Key, Policy, RedisStore, store::RedisStoreBuilder};

use super::{redis_server::RedisServer, until};

/// Three masters that share the slots, optionally with one replica each. Node 3 replicates node 0, and so on.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
}

/// The last slot of each master.
const LAST_SLOTS: [u16; 3] = [5_460, 10_922, 16_383];

impl Cluster {
    /// Command that sets a node as [`Self::allow_partial_coverage`] does.
    pub const PARTIAL_COVERAGE: &str = "CONFIG SET cluster-require-full-coverage no";

    /// Starts three masters without replicas. No replica could take over, so the masters do not look for one: they
    /// would take a node that a busy machine keeps waiting for one that is down, and serve no slot at all.
    pub fn start() -> Self {
        Self::form(LAST_SLOTS.len(), "60000")
    }

    /// Starts three masters with one replica each.
    pub fn start_with_replicas() -> Self {
        let this = Self::form(2 * LAST_SLOTS.len(), "1000");
        let (masters, replicas) = this.nodes.split_at(LAST_SLOTS.len());
        for (replica, master) in replicas.iter().zip(masters) {
            until("the replica knows its master", || {
                replica.command(&format!("CLUSTER REPLICATE {}", id(master))).is_empty()
            });
        }
        until("the replicas are in sync and known to every node", || {
            let known = |node: &RedisServer| node.command("CLUSTER NODES").matches("slave").count() == replicas.len();
            masters.iter().all(|master| master.has_replicas_in_sync(1)) && this.nodes.iter().all(known)
        });
        this
    }

    /// Forms a cluster. After `timeout_ms` without an answer, the nodes take another node for one that is down.
    fn form(size: usize, timeout_ms: &str) -> Self {
        let arguments = [&["--cluster-node-timeout", timeout_ms], &RedisServer::IMMEDIATE_REPLICATION[..]].concat();
        let nodes: Vec<_> = (0..size).map(|_| RedisServer::start_node(&arguments)).collect();
        let mut first = 0;
        for (master, last) in nodes.iter().zip(LAST_SLOTS) {
            // Redis 6.2 has no ADDSLOTSRANGE.
            let slots: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
            master.command(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            first = last + 1;
        }
        // Distinct epochs spare the nodes from resolving an epoch collision first. A node takes one only before it
        // knows any other node.
        for (number, node) in nodes.iter().enumerate() {
            node.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        }
        for (number, node) in nodes.iter().enumerate() {
            // Every pair meets explicitly, because gossip alone is slow.
            for other in nodes.iter().skip(number + 1) {
                node.command(&format!("CLUSTER MEET 127.0.0.1 {}", other.port()));
            }
        }
        let size = format!("cluster_known_nodes:{size}\r");
        until("the cluster comes up", || {
            nodes.iter().all(|node| {
                let info = node.command("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains(&size)
            })
        });
        Self { nodes }
    }

    /// Keeps the slots of live masters available while another master is down. A restart of a node discards the
    /// setting.
    pub fn allow_partial_coverage(&self) {
        for node in &self.nodes {
            node.command(Self::PARTIAL_COVERAGE);
        }
    }

    /// The slot of a Redis key, and the index of the master that owned the slot at the start.
    pub fn slot_of(&self, redis_key: &str) -> (u16, usize) {
        let slot = self.nodes[1].command(&format!("CLUSTER KEYSLOT {redis_key}"));
        let slot = slot.trim_start_matches(':').trim().parse().unwrap();
        (slot, LAST_SLOTS.partition_point(|last| *last < slot))
    }

    /// Moves a slot with the steps of `redis-cli --cluster reshard`.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        // Clients send requests while both masters hold keys of the slot.
        thread::sleep(Duration::from_millis(50));
        self.end_move(slot, from, to);
    }

    /// Starts a migration: the old master redirects clients (ASK) for keys that it does not hold.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.command(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
        from.command(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
    }

    /// Finishes a migration: moves the keys, then assigns the slot to the new master.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        loop {
            let keys = from.command(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            let Some(key) = keys.lines().find(|line| line.starts_with("tollgate:")) else { break };
            let reply = from.command(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()));
            // NOKEY: the key has expired since it was listed.
            assert!(reply.is_empty() || reply.starts_with("+NOKEY"), "{reply}");
            thread::sleep(Duration::from_millis(50));
        }
        for node in [to, from] {
            node.command(&format!("CLUSTER SETSLOT {slot} NODE {}", id(to)));
        }
    }
}

/// The Redis key of a count on a cluster, with plain keys.
pub fn plain_key(key: impl Into<Key>, policy: &Policy) -> String {
    static STORE: LazyLock<RedisStore> = LazyLock::new(|| keys_of(RedisStore::builder().plain_keys()));
    STORE.redis_key(key, policy)
}

/// The Redis key of a count on a cluster, with the hashed keys that are the default.
pub fn hashed_key(key: impl Into<Key>, policy: &Policy) -> String {
    static STORE: LazyLock<RedisStore> = LazyLock::new(|| keys_of(RedisStore::builder()));
    STORE.redis_key(key, policy)
}

/// A store that only names keys and makes no connection.
fn keys_of(builder: RedisStoreBuilder) -> RedisStore {
    builder.open_cluster(["redis://127.0.0.1:1"]).unwrap()
}

/// The cluster's name for a node.
fn id(node: &RedisServer) -> String {
    node.command("CLUSTER MYID").lines().nth(1).unwrap().to_owned()
}
