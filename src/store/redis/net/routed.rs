//! A connection to the server that has a slot.
//!
//! A node of a cluster that does not have a slot replies with the node that has it (MOVED, ASK) and has not run the
//! command, so the command is sent to that node. No other command is ever sent twice.

use std::sync::Arc;

use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Value};
use tokio::sync::OwnedSemaphorePermit;

use super::cluster::{Node, Redirection};
use super::connection::{Connection, no_reply};
use super::transit::Transit;
use crate::runtime::deadline::within;

/// A connection that follows redirections of a cluster. Clones share the connection.
#[derive(Clone)]
pub(crate) struct RoutedConnection {
    connection: Connection,
    /// The node of a cluster at the other end; `None` for a server that is not part of a cluster.
    node: Option<Node>,
}

/// Redirections that a command follows. A slot that moves takes one or two; more mean that nodes contradict each other.
const MAX_REDIRECTIONS: usize = 4;

impl RoutedConnection {
    pub(crate) fn to_server(connection: Connection) -> Self {
        Self { connection, node: None }
    }

    pub(crate) fn to_node(connection: Connection, node: Node) -> Self {
        Self { connection, node: Some(node) }
    }

    /// A connection whose server has gone. Nothing is sent on it.
    #[cfg(test)]
    pub(in crate::store::redis) async fn of_test() -> Self {
        let (settings, deadline) = (redis::RedisConnectionInfo::default(), std::time::Duration::MAX);
        let (settings, (stream, _)) = (settings.set_skip_set_lib_name(), tokio::io::duplex(1));
        let made = redis::aio::MultiplexedConnection::new_with_config(&settings, stream, Default::default()).await;
        let (closed, transit) = (Arc::default(), Transit::new());
        let wire = super::wire::Wire { connection: made.expect("no command is sent").0, closed, tenure: None, transit };
        let pool = Arc::new(super::liveness::PoolLiveness::new(deadline));
        let liveness = Arc::new(super::liveness::ConnectionLiveness::of_wire(pool, &wire));
        Self::to_server(Connection::new(wire, liveness, deadline))
    }

    /// Sends a command once, and follows the redirections of a cluster. Waits for the reply until the deadline.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let deadline = self.connection.deadline();
        let result = within(deadline, self.route(command)).await.unwrap_or_else(no_reply);
        if let (Some(node), Err(error)) = (&self.node, &result) {
            node.failed(error);
        }
        Ok(redis::from_redis_value(result?)?)
    }

    async fn route(&mut self, command: &Cmd) -> RedisResult<Value> {
        let result = self.connection.send(command).await;
        match &self.node {
            // Boxed, because redirections are rare and the large future would otherwise be part of each call's future.
            Some(node) if node.is_redirection(&result) => Box::pin(self.follow(node.clone(), command, result)).await,
            _ => result,
        }
    }

    /// Follows the redirections in `result`, the reply of `node`. After MOVED this connection leads to the new node.
    async fn follow(&mut self, mut node: Node, command: &Cmd, mut result: RedisResult<Value>) -> RedisResult<Value> {
        for _ in 0..MAX_REDIRECTIONS {
            let Some(redirection) = Redirection::read(&result, node.host()) else { return result };
            let gone = |_| {
                RedisError::from((ErrorKind::ClusterConnectionNotFound, "the node that has the slot cannot be reached"))
            };
            let mut next = node.redirect(&redirection).await.map_err(gone)?;
            if redirection.moved_slot.is_some() {
                result = next.send(command).await;
                *self = Self::to_node(next, node.clone());
            } else {
                result = next.send_asking(command).await;
            }
        }
        match Redirection::read(&result, node.host()) {
            Some(_) => {
                Err(RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot is moving to another node")))
            }
            None => result,
        }
    }

    /// What travels on the connection, if that is known.
    pub(crate) fn transit(&self) -> Option<&Arc<Transit>> {
        self.connection.transit()
    }

    /// A turn to send a call to a node of a cluster, when the node has few calls to evaluate. `None` at once for a
    /// server that is not part of a cluster.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        match &self.node {
            Some(node) => node.turn().await,
            None => None,
        }
    }

    /// Sends a command and does not wait for its reply. Commands that are sent later run after it.
    pub(crate) async fn send_ahead(&self, command: Cmd) {
        self.connection.send_ahead(command).await;
    }

    /// Marks the connection as unusable. The pool replaces it.
    pub(crate) fn mark_broken(&self) {
        self.connection.mark_broken();
    }
}
