//! The nodes of a cluster that the URLs name. The other nodes are found through them.

use std::{fmt, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisResult};
use tokio::task::JoinSet;

use super::{
    super::{
        connection::{Connection, no_reply},
        error,
        liveness::{ConnectionLiveness, PoolLiveness},
        redact::Passwords,
        tls_mismatch,
        url::{self, Security},
        wire::{DIAL_TIMEOUT, Wire},
    },
    slot_map::{Layout, NodeAddress},
};
use crate::{
    error::{ConfigError, Error, ErrorKind},
    runtime::deadline::within,
};

/// The nodes of a cluster that the caller has given.
#[derive(Clone)]
pub(crate) struct Seeds(Vec<ConnectionInfo>);

impl Seeds {
    pub(crate) fn new(urls: impl IntoIterator<Item: AsRef<str>>, security: &Security) -> Result<Self, ConfigError> {
        let seeds: Vec<_> = urls.into_iter().map(|url| url::read(url.as_ref(), security)).collect::<Result<_, _>>()?;
        if seeds.is_empty() {
            return Err(url::invalid("there is no node of a cluster; give the URL of at least one"));
        }
        if seeds.iter().any(|seed| matches!(seed.addr(), ConnectionAddr::Unix(_))) {
            return Err(url::invalid("the nodes of a cluster are reached by TCP; write redis://host:port"));
        }
        if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
            return Err(url::invalid("a cluster has only database 0; write redis://host:port"));
        }
        Ok(Self(seeds))
    }

    /// The layout that the first seed to answer reports. All seeds are asked at the same time.
    pub(crate) async fn layout(&self, deadline: Duration) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        for seed in self.0.clone() {
            asked.spawn(async move {
                let mut connection = dial(&seed, deadline).await?;
                layout(&mut connection, host(seed.addr()), &Passwords::of([&seed])).await
            });
        }
        let mut failure = None;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(layout)) => return Ok(layout),
                Ok(Err(error)) => failure = Some(error),
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no node of the cluster answers")))
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(&self.0)
    }

    /// A client for a node that another node has named. Login and TLS settings are those of the first seed.
    pub(crate) fn client(&self, NodeAddress { host, port }: &NodeAddress) -> RedisResult<Client> {
        let first = &self.0[0];
        let (host, port) = (host.to_string(), *port);
        let addr = match first.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(first.clone().set_addr(addr))
    }
}

impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|seed| seed.addr().to_string())).finish()
    }
}

fn host(addr: &ConnectionAddr) -> &str {
    match addr {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        // `Seeds::new` refuses the paths of sockets.
        _ => "",
    }
}

/// A connection for a single use.
async fn dial(seed: &ConnectionInfo, deadline: Duration) -> Result<Connection, Error> {
    let dialled = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Wire::dial(&Client::open(seed.clone())?, config).await
    };
    match within(DIAL_TIMEOUT, dialled).await.unwrap_or_else(no_reply) {
        Ok(wire) => {
            let liveness = ConnectionLiveness::new(Arc::new(PoolLiveness::new(deadline)), wire.closed);
            Ok(Connection::new(wire.connection, Arc::new(liveness), deadline))
        }
        Err(error) => Err(tls_mismatch::dial_error(&error, seed).await),
    }
}

/// The layout that the node at `host` reports.
pub(crate) async fn layout(
    connection: &mut Connection,
    host: &str,
    passwords: &Passwords<'_>,
) -> Result<Layout, Error> {
    let reply = connection.query(redis::cmd("CLUSTER").arg("SLOTS")).await;
    let reply = reply.map_err(|error| error::convert(&error, passwords))?;
    Layout::read(&reply, host).ok_or_else(|| Error::new(ErrorKind::Unavailable, "the cluster has no slots yet"))
}
