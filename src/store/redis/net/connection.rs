//! A connection to one server.

use std::future::{Future, poll_fn};
use std::{io, sync::Arc, task::Poll, time::Duration};

use redis::{Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};

use super::{liveness::ConnectionLiveness, transit::Transit, wire::Wire};
use crate::runtime::deadline::within;

/// A multiplexed connection and its liveness. Clones share both.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: MultiplexedConnection,
    transit: Option<Arc<Transit>>,
    liveness: Arc<ConnectionLiveness>,
    /// How long a command waits for its reply.
    deadline: Duration,
}

/// The longest time that a connection is kept open for an unread reply.
const UNREAD_REPLY_TIMEOUT: Duration = Duration::from_secs(1);

impl Connection {
    /// A connection of a pool that the caller has given. What travels on it is unknown.
    pub(crate) fn external(inner: MultiplexedConnection, liveness: ConnectionLiveness, deadline: Duration) -> Self {
        Self { inner, transit: None, liveness: Arc::new(liveness), deadline }
    }

    /// A connection that has been dialled.
    pub(crate) fn new(wire: Wire, liveness: Arc<ConnectionLiveness>, deadline: Duration) -> Self {
        Self { inner: wire.connection, transit: Some(wire.transit), liveness, deadline }
    }

    /// What travels on the connection, if that is known.
    pub(crate) fn transit(&self) -> Option<&Arc<Transit>> {
        self.transit.as_ref()
    }

    /// How long a command waits for its reply.
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sends a command once and waits for the reply until the deadline.
    pub(crate) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        within(self.deadline, self.send(command)).await.unwrap_or_else(no_reply)
    }

    /// Sends a command once.
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        tracked(&self.liveness, owed(self.transit.as_ref(), command.query_async(&mut self.inner))).await
    }

    /// Sends a command that the owner of its slot has redirected to this server with ASK, because the slot is moving.
    pub(crate) async fn send_asking(&mut self, command: &Cmd) -> RedisResult<Value> {
        let mut pipeline = redis::pipe();
        // Without `ignore_errors` an error would lose its text, which may name another node.
        pipeline.cmd("ASKING").ignore().add_command(command.clone()).ignore_errors();
        let reply = owed(self.transit.as_ref(), pipeline.query_async(&mut self.inner));
        let replies: Vec<RedisResult<Value>> = tracked(&self.liveness, reply).await?;
        replies.into_iter().next_back().unwrap_or(Ok(Value::Nil))
    }

    /// Sends a command and does not wait for its reply. Commands that are sent later run after it.
    pub(crate) async fn send_ahead(&self, command: Cmd) {
        let mut inner = self.inner.clone();
        let mut reply = Box::pin(async move {
            let _ = within(UNREAD_REPLY_TIMEOUT, command.query_async::<Value>(&mut inner)).await;
        });
        // The first poll hands the command to the connection.
        if poll_fn(|cx| Poll::Ready(reply.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(reply);
        }
    }

    /// Marks the connection as unusable. The pool replaces it.
    pub(crate) fn mark_broken(&self) {
        self.liveness.mark_broken();
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.liveness.is_broken()
    }

    /// Whether the connection broke soon after it was made.
    pub(crate) fn broke_young(&self) -> bool {
        self.liveness.broke_young()
    }
}

/// Records in `transit`, if there is one, that the server owes the reply.
async fn owed<T>(transit: Option<&Arc<Transit>>, reply: impl Future<Output = T>) -> T {
    match transit {
        Some(transit) => transit.owes(reply).await,
        None => reply.await,
    }
}

/// Reports to `liveness` whether the reply came.
async fn tracked<T>(liveness: &Arc<ConnectionLiveness>, reply: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let call = liveness.begin_call();
    let reply = reply.await;
    if !reply.as_ref().is_err_and(RedisError::is_io_error) {
        call.answered();
    }
    reply
}

/// The error of a command without a reply.
///
/// The redis crate's own timeout is not used, because it counts time in which the process did not run.
pub(crate) fn no_reply<T>() -> RedisResult<T> {
    Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)))
}
