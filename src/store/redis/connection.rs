//! A connection, and what is known about its health.

use std::{io, sync::Arc, time::Duration};

use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection};

#[cfg(feature = "cluster")]
use super::cluster::Nodes;
use super::health::{Call, Health};
use crate::deadline::within;

/// A connection and what is known about it. Clones share both.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) wire: Wire,
    health: Arc<Health>,
    /// How long a command waits for its reply.
    deadline: Duration,
}

/// What commands travel on.
#[derive(Clone)]
pub(super) enum Wire {
    /// To all masters of a cluster. It replaces its own sockets.
    #[cfg(feature = "cluster")]
    Cluster(Nodes),
    /// To one server.
    Single(MultiplexedConnection),
}

impl Connection {
    pub(super) fn new(wire: Wire, health: Arc<Health>, deadline: Duration) -> Self {
        Self { wire, health, deadline }
    }

    /// Sends a command once.
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let reply = async {
            match &mut self.wire {
                #[cfg(feature = "cluster")]
                Wire::Cluster(nodes) => nodes.query(command).await,
                Wire::Single(connection) => command.query_async(connection).await,
            }
        };
        within(self.deadline, reply).await.unwrap_or_else(late)
    }

    /// Sends a command without a key once, to any one server.
    pub(super) async fn query_any<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let reply = async {
            match &mut self.wire {
                #[cfg(feature = "cluster")]
                Wire::Cluster(nodes) => nodes.query_any(command).await,
                Wire::Single(connection) => command.query_async(connection).await,
            }
        };
        within(self.deadline, reply).await.unwrap_or_else(late)
    }

    /// Sends several commands at once to the server of a connection that has only one.
    pub(super) async fn query_single(
        &self,
        connection: &mut MultiplexedConnection,
        pipeline: &Pipeline,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        within(self.deadline, pipeline.query_async(connection)).await.unwrap_or_else(late)
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

/// The error of a command without a reply. The client has no timeout of its own: it would count the time in which the
/// process did not run.
fn late<T>() -> RedisResult<T> {
    Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)))
}
