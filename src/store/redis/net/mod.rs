//! How Redis is reached: addresses, connections, pools and the nodes of a cluster. This module does not depend on
//! checks.

pub(crate) mod address;
mod backoff;
pub(crate) mod cluster;
mod connection;
mod dialer;
mod dials;
pub(crate) mod endpoint;
pub(crate) mod error;
mod first_dial;
mod followed;
mod host_names;
mod liveness;
pub(crate) mod login;
mod master_search;
mod redact;
mod redial;
pub(crate) mod routed;
mod server_pool;
pub(crate) mod silence;
pub(crate) mod slot;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
pub(crate) mod transit;
pub(crate) mod url;
mod wire;

use std::task::{Context, Poll, Waker};
use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use bb8_redis::RedisConnectionManager;
use bb8_redis::bb8::{self, RunError};

use self::address::{Address, Settings};
use self::cluster::{Node, nodes::Nodes, seeds::Seeds};
use self::liveness::{ConnectionLiveness, PoolLiveness};
use self::server_pool::{ServerPool, no_connection};
use self::{connection::Connection, first_dial::FirstDial, redact::Passwords, routed::RoutedConnection, slot::NO_SLOT};
use crate::error::Error;

/// The open connections of a store. They belong to the runtime on which they were opened, because its tasks drive them.
#[derive(Debug)]
pub(crate) enum Pool {
    Server(Box<ServerPool>),
    Cluster(Arc<Nodes>),
    /// A pool of the caller, which maintains its connections itself.
    External {
        pool: bb8::Pool<RedisConnectionManager>,
        liveness: Arc<PoolLiveness>,
        deadline: Duration,
    },
}

impl Pool {
    /// The first dial of the server that has `slot`, while that dial is in progress.
    pub(crate) fn first_dial(&self, slot: u16) -> Option<FirstDial> {
        match self {
            Self::Server(pool) => pool.first_dial().cloned(),
            Self::Cluster(nodes) => nodes.first_dial(slot),
            // The caller has dialled its connections.
            Self::External { .. } => None,
        }
    }

    /// One number for each master, such that `slot_of(number)` is a slot of that master.
    pub(crate) async fn probe_numbers(&self, slot_of: impl Fn(u64) -> u16) -> Result<Vec<u64>, Error> {
        match self {
            Self::Cluster(nodes) => nodes.probe_numbers(slot_of).await,
            Self::Server(_) | Self::External { .. } => Ok(vec![0]),
        }
    }

    /// A connection to the server that has `slot`, if one is open. Does not wait for one: a caller that is polled late
    /// would keep its place among those that wait. `None` for a pool of the caller, which may test a connection first.
    pub(crate) fn open_connection(&self, slot: u16) -> Option<RoutedConnection> {
        if let Self::External { .. } = self {
            return None;
        }
        let mut connection = pin!(self.get(slot));
        match connection.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(connection) => connection.ok(),
            Poll::Pending => None,
        }
    }

    /// A connection to the server that has `slot`, which is not known to be broken.
    pub(crate) async fn get(&self, slot: u16) -> Result<RoutedConnection, Error> {
        match self {
            Self::Server(pool) => Ok(RoutedConnection::to_server(pool.get().await?)),
            Self::Cluster(nodes) => {
                let (connection, address) = nodes.get(slot).await?;
                Ok(RoutedConnection::to_node(connection, Node::new(Arc::clone(nodes), address)))
            }
            Self::External { pool, liveness, deadline } => match pool.get().await {
                Ok(guard) => {
                    let liveness = ConnectionLiveness::new(Arc::clone(liveness), Arc::default(), None);
                    let connection = Connection::external(guard.clone(), liveness, *deadline);
                    Ok(RoutedConnection::to_server(connection))
                }
                Err(RunError::User(error)) => Err(error::convert_dial(&error, &Passwords::default())),
                Err(RunError::TimedOut) => Err(no_connection()),
            },
        }
    }
}

/// What a store connects to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One server, or the master that sentinels name, with a pool of `size` connections.
    Server { address: Address, size: u32 },
    /// The masters of a cluster, with a pool of `size` connections each.
    Cluster { seeds: Seeds, size: u32 },
    /// A pool of the caller.
    External(bb8::Pool<RedisConnectionManager>),
}

impl Target {
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    /// The slot of the Redis keys with this hash tag.
    pub(crate) fn slot_of(&self, tag: &[u8]) -> u16 {
        if self.is_cluster() { slot::slot_of(tag) } else { NO_SLOT }
    }

    /// The passwords that no error may show. An external pool does not reveal its password.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        match self {
            Self::Server { address, .. } => address.passwords(),
            Self::Cluster { seeds, .. } => seeds.passwords(),
            Self::External(_) => Passwords::default(),
        }
    }

    /// Opens a pool on the current runtime. A pool that the store creates dials at once.
    pub(crate) fn open(&self, settings: Settings) -> Pool {
        let first_dial = FirstDial::begin(settings.first_dial_deadline);
        match self {
            Self::Server { address, size } => {
                Pool::Server(Box::new(ServerPool::open(address.clone(), *size, settings, first_dial)))
            }
            Self::Cluster { seeds, size } => Pool::Cluster(Arc::new(Nodes::new(seeds.clone(), *size, settings))),
            Self::External(pool) => Pool::External {
                pool: pool.clone(),
                liveness: Arc::new(PoolLiveness::new(Duration::MAX)),
                deadline: settings.deadline,
            },
        }
    }
}
