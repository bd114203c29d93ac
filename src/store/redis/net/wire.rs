//! Dials one server, with TLS or without, and negotiates the version of the protocol.
//!
//! A server may close an idle connection: after its `timeout`, before a restart, or when it becomes a replica. With
//! RESP3 the client reports the close at once, so that no check is sent on a closed connection. Servers and proxies
//! without RESP3 get RESP2.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

#[cfg(feature = "test-util")]
use redis::ConnectionAddr;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
    aio::MultiplexedConnection,
};

#[cfg(any(feature = "test-util", feature = "tls"))]
use tokio::io::{AsyncRead, AsyncWrite};

use super::{endpoint::Endpoint, followed::Tenure, progress::DialProgress, tls_mismatch};
#[cfg(feature = "test-util")]
use crate::runtime::world;

/// A connection of the redis crate, and whether the server has closed it.
pub(crate) struct Wire {
    pub(crate) connection: MultiplexedConnection,
    /// Becomes true when the server closes the connection, also while it is idle. Stays false with RESP2.
    pub(crate) closed: Arc<AtomicBool>,
    /// `None` for a server that is not behind sentinels.
    pub(crate) tenure: Option<Tenure>,
}

impl Wire {
    /// Dials a server, for as long as the caller waits. Looks the name of the server up again, and asks for the login.
    pub(crate) async fn dial(endpoint: &Endpoint, progress: &DialProgress) -> RedisResult<Self> {
        let endpoint = &endpoint.logged_in()?;
        tls_mismatch::explained(endpoint, Self::negotiate(endpoint, progress)).await
    }

    async fn negotiate(endpoint: &Endpoint, progress: &DialProgress) -> RedisResult<Self> {
        let closed = Arc::<AtomicBool>::default();
        let config = AsyncConnectionConfig::new()
            // The caller limits the time of a dial, and [`Connection`](super::connection::Connection) that of a
            // command. Neither counts time in which the process did not run.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        if endpoint.info.redis_settings().protocol() == ProtocolVersion::RESP2 {
            let connection = connect(endpoint, config, progress).await?;
            return Ok(Self { connection, closed, tenure: None });
        }
        let watched = config.clone().set_push_sender({
            let closed = Arc::clone(&closed);
            move |push: PushInfo| {
                if push.kind == PushKind::Disconnection {
                    closed.store(true, Ordering::Release);
                }
                Ok::<(), Infallible>(())
            }
        });
        let connection = match connect(endpoint, watched, progress).await {
            Err(error) if lacks_resp3(&error) => connect(&endpoint.with_resp2(), config, progress).await?,
            result => result?,
        };
        Ok(Self { connection, closed, tenure: None })
    }
}

/// The one place that opens connections for commands.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only handshakes of TLS have progress"))]
async fn connect(
    endpoint: &Endpoint,
    config: AsyncConnectionConfig,
    progress: &DialProgress,
) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "test-util")]
    if let ConnectionAddr::Tcp(host, port) = endpoint.info.addr()
        && let Some(dialled) = world::dial(host, *port)
    {
        return connection_over(dialled.await?, endpoint, config).await;
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &endpoint.tls {
        return connection_over(
            tls.connect(&endpoint.info, endpoint.naming_advice(), progress).await?,
            endpoint,
            config,
        )
        .await;
    }
    Client::open(endpoint.info.clone())?.get_multiplexed_async_connection_with_config(&config).await
}

/// Logs in over a stream that is not the redis crate's.
#[cfg(any(feature = "test-util", feature = "tls"))]
async fn connection_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    endpoint: &Endpoint,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let settings = endpoint.info.redis_settings();
    let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    // The driver ends with the last clone of the connection.
    tokio::spawn(driver);
    Ok(connection)
}

/// Whether the server lacks RESP3, or even the command HELLO, which requests RESP3. Some servers hang up instead of
/// replying.
fn lacks_resp3(error: &RedisError) -> bool {
    let names_hello = || error.detail().is_some_and(|text| text.to_ascii_uppercase().contains("HELLO"));
    match error.kind() {
        ErrorKind::RESP3NotSupported => true,
        ErrorKind::Io => error.is_connection_dropped() && !error.is_connection_refusal(),
        _ => error.code() == Some("NOPROTO") || (error.code() == Some("ERR") && names_hello()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_proxies_without_resp3_are_recognised() {
        for (reply, expected) in [
            ("-NOPROTO unsupported protocol version", true),
            ("-ERR unknown command 'HELLO', with args beginning with: '3'", true),
            ("-ERR unknown command `hello`, with args beginning with: `3`", true),
            ("-WRONGPASS invalid username-password pair or user is disabled.", false),
            ("-NOAUTH HELLO must be called with the client already authenticated", false),
            ("-ERR max number of clients reached", false),
        ] {
            let error = redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap().extract_error();
            assert_eq!(lacks_resp3(&error.unwrap_err()), expected, "{reply}");
        }
    }
}
