//! The version of Redis' protocol, and what it tells about closed connections.
//!
//! A server may close a connection while nothing is under way: after its `timeout`, before a restart, when it becomes a
//! replica. With RESP3 the client reports that at once, so that the next check does not have to find out. A server or a
//! proxy that does not know RESP3 gets RESP2.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, aio::MultiplexedConnection,
};

/// Asks for RESP3, unless the URL has a protocol.
pub(super) fn preferred(info: ConnectionInfo, url: &str) -> ConnectionInfo {
    if url.contains("protocol=") { info } else { with(info, ProtocolVersion::RESP3) }
}

pub(super) fn with(info: ConnectionInfo, protocol: ProtocolVersion) -> ConnectionInfo {
    let settings = info.redis_settings().clone().set_protocol(protocol);
    info.set_redis_settings(settings)
}

/// Dials a server. `closed` becomes true when the server closes the connection.
pub(super) async fn dial(
    client: &Client,
    config: AsyncConnectionConfig,
    closed: &Arc<AtomicBool>,
) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info();
    if info.redis_settings().protocol() == ProtocolVersion::RESP2 {
        return client.get_multiplexed_async_connection_with_config(&config).await;
    }
    let notes = config.clone().set_push_sender({
        let closed = Arc::clone(closed);
        move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                closed.store(true, Ordering::Release);
            }
            Ok::<(), Infallible>(())
        }
    });
    match client.get_multiplexed_async_connection_with_config(&notes).await {
        Err(error) if is_unknown(&error) => {
            let client = Client::open(with(info.clone(), ProtocolVersion::RESP2))?;
            client.get_multiplexed_async_connection_with_config(&config).await
        }
        result => result,
    }
}

/// Whether the other end does not know RESP3, or not the command that asks for it: it says so, or it hangs up.
fn is_unknown(error: &RedisError) -> bool {
    let names_it = || error.detail().is_some_and(|text| text.to_ascii_uppercase().contains("HELLO"));
    match error.kind() {
        ErrorKind::RESP3NotSupported => true,
        ErrorKind::Io => error.is_connection_dropped() && !error.is_connection_refusal(),
        _ => error.code() == Some("NOPROTO") || (error.code() == Some("ERR") && names_it()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_proxies_without_resp3_are_understood() {
        for (reply, unknown) in [
            ("-NOPROTO unsupported protocol version", true),
            ("-ERR unknown command 'HELLO', with args beginning with: '3'", true),
            ("-ERR unknown command `hello`, with args beginning with: `3`", true),
            ("-WRONGPASS invalid username-password pair or user is disabled.", false),
            ("-NOAUTH HELLO must be called with the client already authenticated", false),
            ("-ERR max number of clients reached", false),
        ] {
            let error = redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap().extract_error();
            assert_eq!(is_unknown(&error.unwrap_err()), unknown, "{reply}");
        }
    }
}
