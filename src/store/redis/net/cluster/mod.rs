//! The masters of a Redis Cluster: which node has which slot, and a pool for each.

pub(crate) mod nodes;
pub(crate) mod seeds;
mod slot_map;

use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::OwnedSemaphorePermit;

use self::{nodes::Nodes, slot_map::NodeAddress};
use crate::{error::Error, store::redis::net::connection::Connection};

/// The node at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    nodes: Arc<Nodes>,
    address: NodeAddress,
}

impl Node {
    pub(crate) fn new(nodes: Arc<Nodes>, address: NodeAddress) -> Self {
        Self { nodes, address }
    }

    pub(crate) fn host(&self) -> &str {
        &self.address.host
    }

    /// A turn to send a call to the node. `None` if the node has left the cluster.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.nodes.turns_to_send(&self.address)?.acquire_owned().await.ok()
    }

    pub(crate) fn is_redirection(&self, result: &RedisResult<Value>) -> bool {
        Redirection::read(result, self.host()).is_some()
    }

    /// Replaces this node with the node that a redirection names. Returns a connection to the new node.
    pub(crate) async fn redirect(&mut self, redirection: &Redirection) -> Result<Connection, Error> {
        if let Some(slot) = redirection.moved_slot {
            self.nodes.moved(slot, &redirection.address);
        }
        let connection = self.nodes.connect(redirection.address.clone()).await?;
        self.address = redirection.address.clone();
        Ok(connection)
    }

    /// Requests a new slot map if the node does not answer or does not serve its slots: it may have been replaced.
    pub(crate) fn failed(&self, error: &RedisError) {
        if error.is_io_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown) {
            self.nodes.refresh();
        }
    }
}

/// A reply that names another node.
pub(crate) struct Redirection {
    /// The slot that has moved (MOVED). `None` for a redirection of one command (ASK).
    pub(crate) moved_slot: Option<u16>,
    address: NodeAddress,
}

impl Redirection {
    /// Reads a reply of the node at `host`. `None` if the reply is no redirection.
    pub(crate) fn read<T>(result: &RedisResult<T>, host: &str) -> Option<Self> {
        let error = result.as_ref().err()?;
        let is_ask = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            _ => return None,
        };
        let (address, slot) = error.redirect_node()?;
        let (named, port) = address.rsplit_once(':')?;
        let address = NodeAddress::named(named, port.parse().ok()?, host);
        Some(Self { moved_slot: (!is_ask).then_some(slot), address })
    }
}
