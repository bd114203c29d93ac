//! A connection, and what is known about its health.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

#[cfg(feature = "cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, FromRedisValue, RedisResult, aio::MultiplexedConnection};

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

/// Belongs to one connection: what comes late from a connection that was replaced says nothing about the new one.
#[derive(Debug)]
struct Health {
    broken: AtomicBool,
    /// Calls in a row that got no reply.
    unanswered: AtomicU32,
    born: Instant,
}

/// After so many a connection may be half open, its other end gone without a word.
const UNANSWERED: u32 = 3;
/// A connection that breaks before that was hardly worth making.
const YOUNG: Duration = Duration::from_secs(1);

impl Connection {
    pub(super) fn new(wire: Wire) -> Self {
        let health = Health { broken: false.into(), unanswered: 0.into(), born: Instant::now() };
        Self { wire, health: Arc::new(health) }
    }

    /// Sends a command once.
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match &mut self.wire {
            #[cfg(feature = "cluster")]
            Wire::Cluster(cluster) => super::cluster::query(cluster, command).await,
            Wire::Single(connection) => command.query_async(connection).await,
        }
    }

    /// Says that this connection is of no use any more.
    pub(super) fn mark_broken(&self) {
        match self.wire {
            // What one master says is no reason to leave the others; those sockets are replaced one by one.
            #[cfg(feature = "cluster")]
            Wire::Cluster(_) => {}
            Wire::Single(_) => self.health.broken.store(true, Ordering::Release),
        }
    }

    /// Watches a call: without [`Call::answered`] before it is dropped, it counts as unanswered.
    pub(super) fn call(&self) -> Call {
        Call { health: Arc::clone(&self.health), answered: false }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.health.broken.load(Ordering::Acquire)
    }

    /// Whether it broke as soon as it was made.
    pub(super) fn broke_young(&self) -> bool {
        self.is_broken() && self.health.born.elapsed() < YOUNG
    }
}

/// See [`Connection::call`].
pub(super) struct Call {
    health: Arc<Health>,
    answered: bool,
}

impl Call {
    /// Says that a reply came, whatever it was.
    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.answered {
            self.health.unanswered.store(0, Ordering::Relaxed);
        } else if self.health.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED {
            self.health.broken.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(health: &Arc<Health>) -> Call {
        Call { health: Arc::clone(health), answered: false }
    }

    #[test]
    fn three_unanswered_calls_in_a_row_break_a_connection_and_fewer_do_not() {
        let health = || Arc::new(Health { broken: false.into(), unanswered: 0.into(), born: Instant::now() });
        let (old, new) = (health(), health());
        drop((call(&old), call(&old)));
        call(&old).answered();
        drop((call(&old), call(&old)));
        assert!(!old.broken.load(Ordering::Acquire));
        drop(call(&old));
        assert!(old.broken.load(Ordering::Acquire));
        // What belonged to the old one leaves the new one alone.
        drop((call(&old), call(&old), call(&old)));
        assert!(!new.broken.load(Ordering::Acquire));
    }
}
