//! The configured target of a store: a server, a cluster, or a pool of the caller.

use std::{sync::Arc, time::Duration};

use bb8_redis::{RedisConnectionManager, bb8};

use super::{
    address::{Address, Settings},
    cluster::{nodes::Nodes, seeds::Seeds},
    first_dial::FirstDial,
    liveness::PoolLiveness,
    pool::Pool,
    redact::Passwords,
    server_pool::ServerPool,
    slot::{self, NO_SLOT},
};

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
