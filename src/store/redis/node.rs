//! A node of a cluster, and where it sends us.
//!
//! A node that does not have a slot says who does (MOVED, ASK) and has not run the command. So the command is sent on.
//! Nothing else is ever sent twice (law 9).

use std::sync::Arc;

use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::{connection::Connection, nodes::Nodes, slot_map::At};

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Node {
    nodes: Arc<Nodes>,
    at: At,
}

/// While slots move, a node may send us on to one that sends us on. More than this is a quarrel.
const REDIRECTIONS: usize = 4;

impl Node {
    pub(super) fn new(nodes: Arc<Nodes>, at: At) -> Self {
        Self { nodes, at }
    }

    pub(super) fn is_redirection(&self, result: &RedisResult<Value>) -> bool {
        Redirection::read(result, &self.at.host).is_some()
    }

    /// Sends a command on to where a node says that its slot is. A connection that asked at the wrong place leads to the
    /// right one afterwards, for what follows from the command.
    pub(super) async fn follow(
        mut self,
        connection: &mut Connection,
        command: &Cmd,
        mut result: RedisResult<Value>,
    ) -> RedisResult<Value> {
        for _ in 0..REDIRECTIONS {
            let Some(redirection) = Redirection::read(&result, &self.at.host) else { return result };
            if let Some(slot) = redirection.slot {
                self.nodes.moved(slot, &redirection.at);
            }
            let gone = |_| RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot's node is gone"));
            let mut next = self.nodes.connect(redirection.at.clone()).await.map_err(gone)?;
            self.at = redirection.at;
            if redirection.slot.is_some() {
                result = next.send(command).await;
                *connection = next;
            } else {
                result = next.send_asking(command).await;
            }
        }
        match Redirection::read(&result, &self.at.host) {
            Some(_) => Err(RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot is on the move"))),
            None => result,
        }
    }

    /// Notes that the node did not answer, or does not serve its slots: another one may have taken its place.
    pub(super) fn failed(&self, error: &RedisError) {
        if error.is_io_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ClusterDown) {
            self.nodes.read_map();
        }
    }
}

/// Where a node sends us.
struct Redirection {
    /// What has moved; `None` if it is for one command.
    slot: Option<u16>,
    at: At,
}

impl Redirection {
    /// Reads the error of the node at `host`, if it is one.
    fn read<T>(result: &RedisResult<T>, host: &str) -> Option<Self> {
        let error = result.as_ref().err()?;
        let asks = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            _ => return None,
        };
        let (address, slot) = error.redirect_node()?;
        let (named, port) = address.rsplit_once(':')?;
        Some(Self { slot: (!asks).then_some(slot), at: At::named(named, port.parse().ok()?, host) })
    }
}
