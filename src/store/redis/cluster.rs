//! A cluster: who has which slot, and what to do when it moves.
//!
//! redis' connection keeps the map of slots and a socket to every master. It is told to send nothing twice, for it
//! would also send again what may have run. A redirection is another matter: the node has refused to run the call, and
//! has named the one that will. That is followed here.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::{
    Cmd, ErrorKind, FromRedisValue, ProtocolVersion, RedisError, RedisResult, ServerErrorKind, Value,
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};

use super::{
    address::{self, Security, tcp_settings},
    pace::LONGEST,
    resp,
};

/// The nodes of a cluster that were given; the others are found through them.
#[derive(Clone)]
pub(super) struct Cluster {
    client: ClusterClient,
    nodes: Vec<String>,
}

impl Cluster {
    pub(super) fn new(
        nodes: impl IntoIterator<Item: AsRef<str>>,
        security: &Security,
        deadline: Duration,
    ) -> RedisResult<Self> {
        let infos: Vec<_> =
            nodes.into_iter().map(|url| address::info(url.as_ref(), security)).collect::<RedisResult<_>>()?;
        // With RESP3 the client reconnects as soon as a node goes. How that goes together with its search for the map of
        // slots is not tested yet.
        let infos: Vec<_> = infos.into_iter().map(|info| resp::with(info, ProtocolVersion::RESP2)).collect();
        let nodes = infos.iter().map(|info| info.addr().to_string()).collect();
        let builder = ClusterClient::builder(infos)
            // Law 9: what may have run is never sent again.
            .retries(0)
            .connection_timeout(LONGEST)
            // A command has a deadline of its own, which does not count the time in which the process did not run.
            .response_timeout(deadline.saturating_mul(4))
            .overall_response_timeout(None)
            .tcp_settings(tcp_settings());
        #[cfg(feature = "tls")]
        let builder = match &security.certificates {
            Some(certificates) => builder.certs(certificates.clone()),
            None => builder,
        };
        Ok(Self { client: builder.build()?, nodes })
    }

    pub(super) async fn dial(&self) -> RedisResult<Nodes> {
        Ok(Nodes { connection: self.client.get_async_connection().await?, lost: Arc::default() })
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.nodes).finish()
    }
}

/// Connections to all nodes of a cluster. Clones share them.
#[derive(Clone)]
pub(super) struct Nodes {
    connection: ClusterConnection,
    /// The last node that we were sent to and had no connection to, and when.
    lost: Arc<Mutex<Option<(String, Instant)>>>,
}

/// While slots move, a node may send us on to one that sends us on. More than this is a quarrel.
const REDIRECTIONS: usize = 4;
/// A master that died is named by the others until they have elected another one. Each time somebody asks for it in vain
/// the client dials all nodes anew, and nobody is served meanwhile.
const LOST: Duration = Duration::from_millis(200);

impl Nodes {
    /// Sends a command to the node that has its key, and on to where that node says it is.
    pub(super) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let mut result = command.query_async::<Value>(&mut self.connection).await;
        for _ in 0..REDIRECTIONS {
            let Some(redirection) = result.as_ref().err().and_then(Redirection::read) else {
                return Ok(redis::from_redis_value(result?)?);
            };
            let named = redirection.address.clone();
            if self.is_lost(&named) {
                return Err(RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot's node is gone")));
            }
            result = redirection.follow(&mut self.connection, command).await;
            if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ClusterConnectionNotFound) {
                *self.lost() = Some((named, Instant::now()));
            }
        }
        result.and_then(|value| Ok(redis::from_redis_value(value)?)).map_err(|error| match Redirection::read(&error) {
            Some(_) => RedisError::from((ErrorKind::ClusterConnectionNotFound, "the slot is on the move")),
            None => error,
        })
    }

    /// Sends a command to any one master; left to itself the client would ask all of them.
    pub(super) async fn query_any<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let master = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
        let reply = self.connection.route_command(command.clone(), master).await?;
        Ok(redis::from_redis_value(reply.extract_error()?)?)
    }

    fn is_lost(&self, node: &str) -> bool {
        self.lost().as_ref().is_some_and(|(lost, at)| lost == node && at.elapsed() < LOST)
    }

    fn lost(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        // It is put in whole.
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Redirection {
    asks: bool,
    address: String,
    node: SingleNodeRoutingInfo,
}

impl Redirection {
    fn read(error: &RedisError) -> Option<Self> {
        let asks = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            _ => return None,
        };
        let (address, _) = error.redirect_node()?;
        let (host, port) = address.rsplit_once(':')?;
        let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? };
        Some(Self { asks, address: address.to_owned(), node })
    }

    /// Sends a command to the named node. What that node answers may be an error, such as NOSCRIPT, and the client
    /// hands out the error of a routed command as a value.
    async fn follow(self, cluster: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
        if !self.asks {
            let reply = cluster.route_command(command.clone(), RoutingInfo::SingleNode(self.node)).await?;
            return reply.extract_error();
        }
        // The new owner takes it before the slot is its own only if it is told that we were sent.
        let mut pipeline = redis::pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let replies = cluster.route_pipeline(pipeline, 1, 1, self.node).await?;
        replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
    }
}
