//! Dials one server and negotiates the version of the protocol.
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
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, aio::MultiplexedConnection,
};

/// Time after which a dial is given up, if the deadline is short. TLS, a distant server, or a server that was just
/// elected and is dialled by all instances take a while.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_millis(1_200);

/// A connection of the redis crate, and whether the server has closed it.
pub(crate) struct Wire {
    pub(crate) connection: MultiplexedConnection,
    /// Becomes true when the server closes the connection, also while it is idle. Stays false with RESP2.
    pub(crate) closed: Arc<AtomicBool>,
}

impl Wire {
    /// Dials the server of `client`. Looks the name of the server up again.
    pub(crate) async fn dial(client: &Client, config: AsyncConnectionConfig) -> RedisResult<Self> {
        let closed = Arc::<AtomicBool>::default();
        let info = client.get_connection_info();
        if info.redis_settings().protocol() == ProtocolVersion::RESP2 {
            let connection = connect(client, &config).await?;
            return Ok(Self { connection, closed });
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
        let connection = match connect(client, &watched).await {
            Err(error) if lacks_resp3(&error) => {
                let client = Client::open(with_protocol(info.clone(), ProtocolVersion::RESP2))?;
                connect(&client, &config).await?
            }
            result => result?,
        };
        Ok(Self { connection, closed })
    }
}

/// The one place that opens connections for commands.
async fn connect(client: &Client, config: &AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
    #[cfg(feature = "test-util")]
    if let Some(connection) = super::simulated::connect(client.get_connection_info(), config).await {
        return connection;
    }
    client.get_multiplexed_async_connection_with_config(config).await
}

/// Sets the version of the protocol with which an address is dialled.
pub(crate) fn with_protocol(info: ConnectionInfo, protocol: ProtocolVersion) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.set_redis_settings(settings)
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
