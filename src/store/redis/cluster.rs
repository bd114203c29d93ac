//! The address of a cluster: some of its nodes, through which the others are found.

use std::{fmt, io, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult, Value};
use tokio::task::JoinSet;

use super::{
    address::Security,
    connection::Connection,
    encryption, error,
    health::{Health, Network},
    pool::PATIENCE,
    resp,
    slot_map::{At, Layout},
    url,
    words::Passwords,
};
use crate::{
    error::{ConfigError, Error, ErrorKind as Kind},
    runtime::deadline::within,
};

/// The nodes of a cluster that were given; the others are found through them.
#[derive(Clone)]
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
}

impl Cluster {
    pub(super) fn new(nodes: impl IntoIterator<Item: AsRef<str>>, security: &Security) -> Result<Self, ConfigError> {
        let seeds: Vec<_> =
            nodes.into_iter().map(|node| url::read(node.as_ref(), security)).collect::<Result<_, _>>()?;
        if seeds.is_empty() {
            return Err(url::invalid("there is no node of a cluster; give one at least"));
        }
        if seeds.iter().any(|seed| matches!(seed.addr(), ConnectionAddr::Unix(_))) {
            return Err(url::invalid("the nodes of a cluster are reached by TCP; write redis://host:port"));
        }
        if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
            return Err(url::invalid("a cluster has no database but 0; write redis://host:port"));
        }
        Ok(Self { seeds })
    }

    /// The map of slots as the first of them has it that answers.
    pub(super) async fn ask(&self, deadline: Duration) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        for seed in self.seeds.clone() {
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
                // The runtime ends.
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| Error::new(Kind::Unavailable, "no node of the cluster answers")))
    }

    /// What no error is to show.
    pub(super) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(&self.seeds)
    }

    /// The way to a node that another one has named. Login and TLS are those of the first node that was given.
    pub(super) fn node(&self, At { host, port }: &At) -> RedisResult<Client> {
        let first = &self.seeds[0];
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

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.seeds.iter().map(|seed| seed.addr().to_string())).finish()
    }
}

fn host(addr: &ConnectionAddr) -> &str {
    match addr {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
        // Not of a cluster, see above.
        _ => "",
    }
}

/// A connection that is used once.
async fn dial(seed: &ConnectionInfo, deadline: Duration) -> Result<Connection, Error> {
    let dialled = async {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        resp::dial(&Client::open(seed.clone())?, config, &Arc::default()).await
    };
    let late = || Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
    let wire = within(PATIENCE, dialled).await.unwrap_or_else(late);
    let wire = match wire {
        Ok(wire) => wire,
        Err(error) => return Err(encryption::failure_of(&error, seed).await),
    };
    let health = Health::new(Arc::new(Network::new(deadline)), Arc::default());
    Ok(Connection::new(wire, Arc::new(health), deadline))
}

/// What a node says of the slots.
pub(super) async fn layout(
    connection: &mut Connection,
    host: &str,
    passwords: &Passwords<'_>,
) -> Result<Layout, Error> {
    let reply = connection.query::<Value>(redis::cmd("CLUSTER").arg("SLOTS")).await;
    let reply = reply.map_err(|error| error::convert(&error, passwords))?;
    Layout::read(&reply, host).ok_or_else(|| Error::new(Kind::Unavailable, "the cluster has no slots yet"))
}
