//! The nodes of a cluster that the URLs name. The other nodes are found through them.

use std::{fmt, sync::Arc, time::Duration};

use redis::ConnectionAddr;
use tokio::task::JoinSet;

use super::super::connection::{Connection, no_reply};
use super::super::endpoint::{Announcer, Endpoint, Security};
use super::super::liveness::{ConnectionLiveness, PoolLiveness};
use super::super::{error, url};
use super::super::{first_dial::DialProgress, redact::Passwords, wire::Wire};
use super::slot_map::{Layout, NodeAddress};
use crate::error::{ConfigError, Error, ErrorKind};
use crate::runtime::deadline::within;

/// The nodes of a cluster that the caller has given.
#[derive(Clone)]
pub(crate) struct Seeds(Vec<Endpoint>);

impl Seeds {
    pub(crate) fn new(urls: impl IntoIterator<Item: AsRef<str>>, security: &Security) -> Result<Self, ConfigError> {
        let seeds: Vec<_> = urls.into_iter().map(|url| url::read(url.as_ref(), security)).collect::<Result<_, _>>()?;
        if seeds.is_empty() {
            return Err(url::invalid("there is no node of a cluster; give the URL of at least one"));
        }
        if seeds.iter().any(|seed| matches!(seed.info.addr(), ConnectionAddr::Unix(_))) {
            return Err(url::invalid("the nodes of a cluster are reached by TCP; write redis://host:port"));
        }
        if seeds.iter().any(|seed| seed.info.redis_settings().db() != 0) {
            return Err(url::invalid("a cluster has only database 0; write redis://host:port"));
        }
        Ok(Self(seeds))
    }

    /// The layout that the first seed to answer reports. All seeds are asked at the same time. Each dial may take
    /// `patience`, and each command `deadline`.
    pub(crate) async fn layout(
        &self,
        patience: Duration,
        deadline: Duration,
        progress: &DialProgress,
    ) -> Result<Layout, Error> {
        let mut asked = JoinSet::new();
        for seed in self.0.clone() {
            let progress = progress.clone();
            asked.spawn(async move {
                let mut connection = dial(&seed, patience, deadline, &progress).await?;
                layout(&mut connection, seed.host(), &seed.passwords()).await
            });
        }
        let mut failure = None;
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok(layout)) => return Ok(layout),
                Ok(Err(error)) if failure.as_ref().is_none_or(|known| weight(&error) >= weight(known)) => {
                    failure = Some(error);
                }
                Ok(Err(_)) => {}
                // The runtime is shutting down.
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no node of the cluster answers")))
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(self.0.iter().flat_map(Endpoint::secrets))
    }

    /// A node that another node has named. Login and TLS settings are those of the first seed.
    pub(crate) fn node(&self, NodeAddress { host, port }: &NodeAddress) -> Endpoint {
        self.0[0].on_host(host.to_string(), *port, Some(Announcer::Cluster))
    }
}

impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|seed| seed.info.addr().to_string())).finish()
    }
}

/// How much an error says. What is wrong with the setup says more than another answer, and a node that does not answer
/// says least.
fn weight(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::StoreMisconfigured => 2,
        _ if error.is_late() => 0,
        _ => 1,
    }
}

/// A connection for a single use.
async fn dial(
    seed: &Endpoint,
    patience: Duration,
    deadline: Duration,
    progress: &DialProgress,
) -> Result<Connection, Error> {
    match within(patience, Wire::dial(seed, progress)).await.unwrap_or_else(no_reply) {
        Ok(wire) => {
            let liveness = ConnectionLiveness::of_wire(Arc::new(PoolLiveness::new(deadline)), &wire);
            Ok(Connection::new(wire, Arc::new(liveness), deadline))
        }
        Err(error) => Err(error::convert_dial(&error, &seed.passwords())),
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
