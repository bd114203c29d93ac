//! Servers with TLS.

use std::time::Duration;

use tollgate::{Limiter, store::RedisStoreBuilder};

pub(super) use crate::support::authority::{Authority, Identity};
use crate::support::redis_server::{Directory, RedisServer};
use crate::support::{ports::free_port, until};

/// A server with an additional TLS port.
pub(super) struct TlsServer {
    pub(super) authority: Authority,
    pub(super) port: u16,
    pub(super) server: RedisServer,
    _directory: Directory,
}

/// A sentinel with an additional TLS port.
pub(super) struct TlsSentinel {
    pub(super) url: String,
    _server: RedisServer,
    _directory: Directory,
}

/// Arguments of a node of a cluster, which announces its port with TLS.
pub(super) fn node_arguments(bus_port: &str) -> [&str; 6] {
    ["--cluster-node-timeout", "1000", "--cluster-port", bus_port, "--tls-cluster", "yes"]
}

impl TlsServer {
    pub(super) fn start(clients_need_certificates: &str) -> Self {
        let authority = Authority::new();
        let identity = authority.issue("127.0.0.1");
        Self::start_with(authority, identity, &["--tls-auth-clients", clients_need_certificates])
    }

    /// Starts a server that shows this certificate.
    pub(super) fn start_with(authority: Authority, identity: Identity, arguments: &[&str]) -> Self {
        let (directory, port) = (Directory::new(), free_port());
        let tls = [
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &directory.write("server.crt", identity.certificate),
            "--tls-key-file",
            &directory.write("server.key", identity.key),
            "--tls-ca-cert-file",
            &directory.write("ca.crt", authority.pem()),
        ];
        let arguments = [&tls[..], arguments].concat();
        let server = match arguments.contains(&"--cluster-node-timeout") {
            true => RedisServer::start_node(&arguments),
            false => RedisServer::start_with(&arguments),
        };
        Self { authority, port, server, _directory: directory }
    }

    /// Makes the node of a cluster the owner of all slots.
    pub(super) fn own_all_slots(&self) {
        for eighth in 0..8 {
            let slots: Vec<_> = (eighth * 2_048..(eighth + 1) * 2_048).map(|slot| slot.to_string()).collect();
            self.server.command(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
        }
        self.server.command("CONFIG SET cluster-announce-ip 127.0.0.1");
        until("the cluster is up", || self.server.command("CLUSTER INFO").contains("cluster_state:ok"));
    }

    /// Starts a sentinel whose certificate is of the same authority. It monitors `port` as `mymaster`.
    pub(super) fn start_sentinel(&self, port: u16, clients_need_certificates: &str) -> TlsSentinel {
        let (directory, own_port) = (Directory::new(), free_port());
        let Identity { certificate, key } = self.authority.issue("127.0.0.1");
        let configuration = format!(
            "tls-port {own_port}\ntls-replication yes\ntls-auth-clients {clients_need_certificates}\n\
             tls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\nsentinel monitor mymaster 127.0.0.1 {port} 1\n",
            directory.write("sentinel.crt", certificate),
            directory.write("sentinel.key", key),
            directory.write("ca.crt", self.authority.pem()),
        );
        let server = RedisServer::start_sentinel(&directory.write("sentinel.conf", configuration), free_port());
        until("the sentinel knows the master", || server.command("SENTINEL MASTERS").contains("mymaster"));
        TlsSentinel { url: format!("rediss://127.0.0.1:{own_port}"), _server: server, _directory: directory }
    }

    pub(super) fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }

    pub(super) fn connect(&self, builder: RedisStoreBuilder) -> Limiter {
        // A long deadline, because a handshake in a debug build is slow on a busy machine.
        Limiter::new(builder.deadline(Duration::from_secs(2)).open(&self.url()).unwrap())
    }
}
