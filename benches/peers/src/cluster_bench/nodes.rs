//! Three masters that share the slots.

use std::thread;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::stats::{self, CommandStats, CpuTime};
use crate::{Result, server::Server};

/// The last slot of each master.
const LAST_SLOTS: [u16; 3] = [5_460, 10_922, 16_383];

/// The masters of a private cluster.
pub struct Nodes(Vec<Server>);

impl Nodes {
    pub fn start() -> Result<Self> {
        let nodes = Self(LAST_SLOTS.iter().map(|_| Server::node()).collect::<Result<_>>()?);
        let cluster = || redis::cmd("CLUSTER");
        let mut admins = nodes.connections()?;
        let mut first = 0;
        for (number, (admin, last)) in admins.iter_mut().zip(LAST_SLOTS).enumerate() {
            cluster().arg("ADDSLOTS").arg((first..=last).collect::<Vec<_>>()).exec(admin)?;
            // Distinct epochs spare the nodes from resolving an epoch collision first. A node takes one only before it
            // knows any other node.
            cluster().arg("SET-CONFIG-EPOCH").arg(number + 1).exec(admin)?;
            first = last + 1;
        }
        for (number, admin) in admins.iter_mut().enumerate() {
            for other in &nodes.0[number + 1..] {
                cluster().arg("MEET").arg("127.0.0.1").arg(other.port()).exec(admin)?;
            }
        }
        let start = Instant::now();
        while !nodes.are_ready()? {
            if start.elapsed() > Duration::from_secs(30) {
                return Err("the cluster did not come up within 30 s".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(nodes)
    }

    fn are_ready(&self) -> Result<bool> {
        for mut admin in self.connections()? {
            let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut admin)?;
            if !(info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3\r")) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn connections(&self) -> Result<Vec<Connection>> {
        self.0.iter().map(|node| node.endpoint().blocking()).collect()
    }

    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(|node| node.endpoint().url().to_owned()).collect()
    }

    pub fn version(&self) -> Result<String> {
        self.0[0].version()
    }

    pub fn reset_stats(&self) -> Result<()> {
        self.connections()?.iter_mut().try_for_each(|admin| stats::reset_commandstats(admin))
    }

    /// The CPU time of each master's main thread.
    pub fn cpu_times(&self) -> Result<Vec<CpuTime>> {
        self.connections()?.iter_mut().map(|admin| CpuTime::read(admin)).collect()
    }

    pub fn stats(&self) -> Result<Vec<CommandStats>> {
        self.connections()?.iter_mut().map(|admin| CommandStats::read(admin)).collect()
    }
}
