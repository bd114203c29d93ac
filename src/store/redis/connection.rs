//! A connection, and what is known about its health.

use std::sync::Arc;

#[cfg(feature = "cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, FromRedisValue, RedisResult, aio::MultiplexedConnection};

use super::health::{Call, Health, Network};

/// A connection and what is known about it. Clones share both.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    health: Arc<Health>,
}

/// What commands travel on.
#[derive(Clone)]
pub(super) enum Wire {
    /// To all masters of a cluster. It replaces its own sockets.
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
    /// To one server.
    Single(MultiplexedConnection),
}

impl Connection {
    pub(super) fn new(wire: Wire, network: Arc<Network>) -> Self {
        Self { wire, health: Arc::new(Health::new(network)) }
    }

    /// Sends a command once.
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match &mut self.wire {
            #[cfg(feature = "cluster")]
            Wire::Cluster(cluster) => super::cluster::query(cluster, command).await,
            Wire::Single(connection) => command.query_async(connection).await,
        }
    }

    /// Sends a command without a key once, to any one server.
    pub(super) async fn query_any<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match &mut self.wire {
            #[cfg(feature = "cluster")]
            Wire::Cluster(cluster) => super::cluster::query_any(cluster, command).await,
            Wire::Single(connection) => command.query_async(connection).await,
        }
    }

    /// Says that this connection is of no use any more.
    pub(super) fn mark_broken(&self) {
        match self.wire {
            // What one master says is no reason to leave the others; those sockets are replaced one by one.
            #[cfg(feature = "cluster")]
            Wire::Cluster(_) => {}
            Wire::Single(_) => self.health.mark_broken(),
        }
    }

    /// Watches a call: without [`Call::answered`] before it is dropped, it counts as unanswered.
    pub(super) fn call(&self) -> Call {
        self.health.call()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.health.is_broken()
    }

    /// Whether it broke as soon as it was made.
    pub(super) fn broke_young(&self) -> bool {
        self.health.broke_young()
    }
}
