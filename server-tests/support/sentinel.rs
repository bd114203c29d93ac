//! A master, a replica, and three sentinels that agree on who is which.

use std::time::Duration;

use super::{
    redis_server::{Directory, RedisServer, free_port},
    until,
};

#[derive(Debug)]
pub struct Trio {
    pub master: RedisServer,
    pub replica: RedisServer,
    pub sentinels: Vec<RedisServer>,
    _directory: Directory,
}

impl Trio {
    /// What the sentinels call the master.
    pub const NAME: &str = "mymaster";

    /// Starts them; a master that says nothing for `down_after` is down.
    pub fn start(down_after: Duration) -> Self {
        let server = || RedisServer::start_with(&RedisServer::FEEDS_AT_ONCE);
        let (master, replica) = (server(), server());
        replica.command(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
        until("the replica is in step", || master.feeds(1));
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

    /// Whether this sentinel says that the server is the master.
    pub fn names(sentinel: &RedisServer, server: &RedisServer) -> bool {
        let address = sentinel.command(&format!("SENTINEL GET-MASTER-ADDR-BY-NAME {}", Self::NAME));
        address.contains(&server.port().to_string())
    }
}
