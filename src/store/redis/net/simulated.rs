//! Connections of a simulated world.

use std::io;

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError, RedisResult, aio::MultiplexedConnection,
};

use super::wire::DIAL_TIMEOUT;
use crate::runtime::{deadline::within, world};

/// Dials in the world of this thread. `None` outside of a world.
pub(super) async fn connect(
    info: &ConnectionInfo,
    config: &AsyncConnectionConfig,
) -> Option<RedisResult<MultiplexedConnection>> {
    let dialled = match info.addr() {
        ConnectionAddr::Tcp(host, port) => world::dial(host, *port)?,
        _ => return None,
    };
    let connected = async {
        let (settings, config) = (info.redis_settings(), config.clone());
        let (connection, driver) = MultiplexedConnection::new_with_config(settings, dialled.await?, config).await?;
        tokio::spawn(driver);
        Ok(connection)
    };
    let late = || Err(RedisError::from(io::Error::from(io::ErrorKind::TimedOut)));
    Some(within(DIAL_TIMEOUT, connected).await.unwrap_or_else(late))
}
