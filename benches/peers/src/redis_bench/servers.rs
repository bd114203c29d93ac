//! The servers of the compared limiters.

use std::time::Duration;

use crate::{Result, args::Args, endpoint::Endpoint, report::Report, server::Server};

/// Redis, and the servers that the command line names.
pub struct Servers {
    pub redis: Server,
    has_redis_cell: bool,
    throttlecrab: Option<Server>,
}

/// How the limiters of one measurement reach the servers.
pub struct Endpoints {
    pub redis: Endpoint,
    pub has_redis_cell: bool,
    pub throttlecrab: Option<Endpoint>,
}

impl Servers {
    /// A server or module that does not start is reported, and the run continues without it.
    pub fn start(args: &Args, report: &mut Report) -> Result<Self> {
        let with_module = match &args.redis_cell {
            Some(path) => Server::redis(Some(path)),
            None => Err("pass --redis-cell PATH to measure it".into()),
        };
        let throttlecrab = match &args.throttlecrab {
            Some(path) => Server::throttlecrab(path),
            None => Err("pass --throttlecrab PATH to measure it".into()),
        };
        let mut or_leave_out = |name, server: Result<Server>| match server {
            Ok(server) => Some(server),
            Err(error) => {
                report.leave_out(name, error);
                None
            }
        };
        let with_module = or_leave_out("redis-cell", with_module);
        let throttlecrab = or_leave_out("throttlecrab-server", throttlecrab);
        let has_redis_cell = with_module.is_some();
        let redis = with_module.map_or_else(|| Server::redis(None), Ok)?;
        Ok(Self { redis, has_redis_cell, throttlecrab })
    }

    /// Without a network in between.
    pub fn direct(&self) -> Endpoints {
        self.endpoints(Server::endpoint)
    }

    /// Each server behind a simulated network of its own.
    pub fn behind(&self, round_trip: Duration) -> Endpoints {
        self.endpoints(|server| server.behind(round_trip))
    }

    fn endpoints(&self, endpoint: impl Fn(&Server) -> Endpoint) -> Endpoints {
        Endpoints {
            redis: endpoint(&self.redis),
            has_redis_cell: self.has_redis_cell,
            throttlecrab: self.throttlecrab.as_ref().map(endpoint),
        }
    }
}
