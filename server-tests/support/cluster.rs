//! A Redis Cluster of real servers on this machine.

use std::{fmt::Display, thread, time::Duration};

use super::{redis_server::RedisServer, until};

/// Three masters that share the slots and, if it has them, a replica of each: the fourth node is the first one's.
#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
}

/// The last slot of each master.
const LAST: [u16; 3] = [5_460, 10_922, 16_383];

impl Cluster {
    /// Masters alone.
    pub fn start() -> Self {
        Self::form(LAST.len())
    }

    pub fn start_with_replicas() -> Self {
        let this = Self::form(2 * LAST.len());
        let (masters, replicas) = this.nodes.split_at(LAST.len());
        for (replica, master) in replicas.iter().zip(masters) {
            until("the replica knows its master", || {
                replica.command(&format!("CLUSTER REPLICATE {}", id(master))).is_empty()
            });
        }
        until("the replicas are in step, and everybody knows them", || {
            let known = |node: &RedisServer| node.command("CLUSTER NODES").matches("slave").count() == replicas.len();
            masters.iter().all(|master| master.feeds(1)) && this.nodes.iter().all(known)
        });
        this
    }

    fn form(size: usize) -> Self {
        let nodes: Vec<_> = (0..size).map(|_| node()).collect();
        let mut first = 0;
        for (master, last) in nodes.iter().zip(LAST) {
            // ADDSLOTSRANGE is newer than Redis 6.2.
            let slots: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
            master.command(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            first = last + 1;
        }
        for (number, node) in nodes.iter().enumerate() {
            // Otherwise they have to settle first whose word counts.
            node.command(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
            // Everybody is told of everybody: gossip alone takes its time.
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

    /// The slot of a hash tag, and the number of the master that had it to begin with.
    pub fn slot_of(&self, tag: impl Display) -> (u16, usize) {
        let slot = self.nodes[1].command(&format!("CLUSTER KEYSLOT {{{tag}}}"));
        let slot = slot.trim_start_matches(':').trim().parse().unwrap();
        (slot, LAST.partition_point(|last| *last < slot))
    }

    /// Moves a slot as `redis-cli --cluster reshard` does.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        // Time for clients to ask while keys are at both masters.
        thread::sleep(Duration::from_millis(50));
        self.end_move(slot, from, to);
    }

    /// From now on the old master sends clients to the new one for keys that it does not have.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        to.command(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", id(from)));
        from.command(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", id(to)));
    }

    /// Moves the keys, and then the slot.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        loop {
            let keys = from.command(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
            let Some(key) = keys.lines().find(|line| line.starts_with("tollgate:")) else { break };
            let reply = from.command(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()));
            // It may have expired by now.
            assert!(reply.is_empty() || reply.starts_with("+NOKEY"), "{reply}");
            thread::sleep(Duration::from_millis(50));
        }
        for node in [to, from] {
            node.command(&format!("CLUSTER SETSLOT {slot} NODE {}", id(to)));
        }
    }
}

fn node() -> RedisServer {
    RedisServer::start_node(&[&["--cluster-node-timeout", "1000"], &RedisServer::FEEDS_AT_ONCE[..]].concat())
}

/// The name that a node goes by.
fn id(node: &RedisServer) -> String {
    node.command("CLUSTER MYID").lines().nth(1).unwrap().to_owned()
}
