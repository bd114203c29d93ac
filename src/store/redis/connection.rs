//! A connection to one server, and what is known about its health.

use std::{
    future::{Future, poll_fn},
    io,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, Value, aio::MultiplexedConnection};

use super::health::Health;
#[cfg(feature = "cluster")]
use super::node::Node;
use crate::runtime::deadline::within;

/// A connection and what is known about it. Clones share both.
#[derive(Clone)]
pub(super) struct Connection {
    wire: MultiplexedConnection,
    health: Arc<Health>,
    /// How long a command waits for its reply.
    deadline: Duration,
    /// Where it leads to in a cluster.
    #[cfg(feature = "cluster")]
    node: Option<Node>,
}

impl Connection {
    pub(super) fn new(wire: MultiplexedConnection, health: Arc<Health>, deadline: Duration) -> Self {
        Self {
            wire,
            health,
            deadline,
            #[cfg(feature = "cluster")]
            node: None,
        }
    }

    /// The same as one of a cluster's.
    #[cfg(feature = "cluster")]
    pub(super) fn of(self, node: Node) -> Self {
        Self { node: Some(node), ..self }
    }

    /// Sends a command once. If the server says that another one has to run it, that one is sent it.
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let result = within(self.deadline, self.route(command)).await.unwrap_or_else(late);
        #[cfg(feature = "cluster")]
        if let (Some(node), Err(error)) = (&self.node, &result) {
            node.failed(error);
        }
        Ok(redis::from_redis_value(result?)?)
    }

    #[cfg(not(feature = "cluster"))]
    async fn route(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.send(command).await
    }

    #[cfg(feature = "cluster")]
    async fn route(&mut self, command: &Cmd) -> RedisResult<Value> {
        let result = self.send(command).await;
        match &self.node {
            // In a box, because it is rare and large, and every call would carry it.
            Some(node) if node.is_redirection(&result) => Box::pin(node.clone().follow(self, command, result)).await,
            _ => result,
        }
    }

    /// Sends a command to this server, and to no other.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        watched(&self.health, command.query_async(&mut self.wire)).await
    }

    /// Sends a command to this server although its slot is still another one's, which has sent us here.
    #[cfg(feature = "cluster")]
    pub(super) async fn send_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        // Otherwise an error would lose its text, which may name another node.
        pipeline.cmd("ASKING").ignore().add_command(command.clone()).ignore_errors();
        let replies: Vec<RedisResult<Value>> = watched(&self.health, pipeline.query_async(&mut self.wire)).await?;
        replies.into_iter().next_back().unwrap_or(Ok(Value::Nil))
    }

    /// Sends a command and does not wait for its reply. Replies come in order, so whatever follows runs after it.
    pub(super) async fn send_ahead(&self, command: Cmd) {
        let mut wire = self.wire.clone();
        let mut reply = Box::pin(async move {
            let _ = within(FORGOTTEN, command.query_async::<Value>(&mut wire)).await;
        });
        // The first poll hands the command to the connection.
        if poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(reply);
        }
    }

    /// Says that this connection is of no use any more.
    pub(super) fn mark_broken(&self) {
        self.health.mark_broken();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.health.is_broken()
    }

    /// Whether it broke as soon as it was made.
    pub(super) fn broke_young(&self) -> bool {
        self.health.broke_young()
    }
}

/// A connection is kept open for as long as a reply is waited for.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// Counts a command whose reply does not come.
async fn watched<T>(health: &Arc<Health>, reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let call = health.call();
    let reply = reply.await;
    if !reply.as_ref().is_err_and(RedisError::is_io_error) {
        call.answered();
    }
    reply
}

/// The error of a command without a reply. The client has no timeout of its own: it would count the time in which the
/// process did not run.
fn late<T>() -> RedisResult<T> {
    Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)))
}
