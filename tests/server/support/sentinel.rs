//! A master, a replica, and three sentinels that monitor them.

use std::time::Duration;

use super::redis_server::{Directory, RedisServer};
use super::{ports::free_port, until};

#[derive(Debug)]
pub struct Trio {
    pub master: RedisServer,
    pub replica: RedisServer,
    pub sentinels: Vec<RedisServer>,
    _directory: Directory,
}

impl Trio {
    /// The sentinels' name of the master.
    pub const NAME: &str = "mymaster";

    /// Starts all five processes. The sentinels consider a master down after `down_after` without a reply.
    pub fn start(down_after: Duration) -> Self {
        let server = || RedisServer::start_with(&RedisServer::IMMEDIATE_REPLICATION);
        let (master, replica) = (server(), server());
        replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        until("the replica is in sync", || master.has_replicas_in_sync(1));
        let directory = Directory::new();
        let sentinels: Vec<_> = (0..3)
            .map(|number| {
                let configuration = format!(
                    "port 0\nsentinel monitor {name} 127.0.0.1 {} 2\n\
                     sentinel down-after-milliseconds {name} {}\nsentinel failover-timeout {name} 1500\n",
                    master.port(),
                    down_after.as_millis(),
                    name = Self::NAME,
                );
                let file = directory.write(&format!("sentinel{number}.conf"), configuration);
                RedisServer::start_sentinel(&file, free_port())
            })
            .collect();
        let this = Self { master, replica, sentinels, _directory: directory };
        until("the sentinels know one another and the replica", || {
            this.sentinels.iter().all(|sentinel| {
                let known = sentinel.command("SENTINEL MASTERS");
                known.contains("num-other-sentinels\r\n$1\r\n2") && known.contains("num-slaves\r\n$1\r\n1")
            })
        });
        this
    }

    /// Whether the sentinel reports this server as the master.
    pub fn reports_master(sentinel: &RedisServer, server: &RedisServer) -> bool {
        let address = sentinel.command(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Self::NAME));
        address.contains(&server.port().to_string())
    }
}
