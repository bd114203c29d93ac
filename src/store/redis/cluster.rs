//! A cluster: who has which slot, and what to do when it moves.
//!
//! redis' connection keeps the map of slots and a socket to every master. It is told to send nothing twice, for it
//! would also send again what may have run. A redirection is another matter: the node has refused to run the call, and
//! has named the one that will. That is followed here.

use std::{fmt, time::Duration};

use redis::{
    Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value,
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};

use super::{
    address::{self, Security, tcp_settings},
    pace::LONGEST,
};

/// The nodes of a cluster that were given; the others are found through them.
#[derive(Clone)]
pub(super) struct Cluster {
    client: ClusterClient,
    nodes: Vec<String>,
}

impl Cluster {
    pub(super) fn new<'a>(
        nodes: impl IntoIterator<Item = &'a str>,
        security: &Security,
        deadline: Duration,
    ) -> RedisResult<Self> {
        let infos: Vec<_> = nodes.into_iter().map(|url| address::info(url, security)).collect::<RedisResult<_>>()?;
        let nodes = infos.iter().map(|info| info.addr().to_string()).collect();
        let builder = ClusterClient::builder(infos)
            // Law 9: what may have run is never sent again.
            .retries(0)
            .connection_timeout(LONGEST)
            .response_timeout(deadline)
            .overall_response_timeout(Some(deadline))
            .tcp_settings(tcp_settings());
        #[cfg(feature = "tls")]
        let builder = match &security.certificates {
            Some(certificates) => builder.certs(certificates.clone()),
            None => builder,
        };
        Ok(Self { client: builder.build()?, nodes })
    }

    pub(super) async fn dial(&self) -> RedisResult<ClusterConnection> {
        self.client.get_async_connection().await
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.nodes).finish()
    }
}

/// While slots move, a node may send us on to one that sends us on. More than this is a quarrel.
const REDIRECTIONS: usize = 4;

/// Sends a command to the node that has its key, and on to where that node says it is.
pub(super) async fn query<T: FromRedisValue>(cluster: &mut ClusterConnection, command: &Cmd) -> RedisResult<T> {
    let mut result = command.query_async::<Value>(cluster).await;
    for _ in 0..REDIRECTIONS {
        let Some(redirection) = result.as_ref().err().and_then(Redirection::read) else {
            return Ok(redis::from_redis_value(result?)?);
        };
        result = redirection.follow(cluster, command).await;
    }
    result.and_then(|value| Ok(redis::from_redis_value(value)?)).map_err(|error| match Redirection::read(&error) {
        Some(_) => RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot is on the move")),
        None => error,
    })
}

/// Sends a command to any one master; left to itself the client would ask all of them.
pub(super) async fn query_any<T: FromRedisValue>(cluster: &mut ClusterConnection, command: &Cmd) -> RedisResult<T> {
    let master = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
    Ok(redis::from_redis_value(cluster.route_command(command.clone(), master).await?)?)
}

struct Redirection {
    asks: bool,
    node: SingleNodeRoutingInfo,
}

impl Redirection {
    fn read(error: &RedisError) -> Option<Self> {
        let asks = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            _ => return None,
        };
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? };
        Some(Self { asks, node })
    }

    async fn follow(self, cluster: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
        if !self.asks {
            return cluster.route_command(command.clone(), RoutingInfo::SingleNode(self.node)).await;
        }
        // The new owner takes it before the slot is its own only if it is told that we were sent.
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let replies = cluster.route_pipeline(pipeline, 1, 1, self.node).await?;
        replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }
}
