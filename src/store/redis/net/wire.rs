//! Dials one server, with TLS or without, negotiates the version of the protocol, and detects `redis://` for a server
//! with TLS and `rediss://` for a server without.
//!
//! A server may close an idle connection: after its `timeout`, before a restart, or when it becomes a replica. With
//! RESP3 the client reports the close at once, so that no check is sent on a closed connection. Servers and proxies
//! without RESP3 get RESP2.
//!
//! Neither server reports the mistake: one without TLS waits for the rest of the TLS handshake, one with TLS hangs up
//! on a plain command. So until a dial of the URL has succeeded, a few bytes are sent that only the other kind of
//! server answers: beside a handshake that takes long, and after a dial that has failed.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{convert::Infallible, io, pin::pin, sync::Arc, task::Poll, time::Duration};

use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
    aio::MultiplexedConnection,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net;

use super::endpoint::{Announcer, Endpoint};
use super::transit::{Recorded, Transit};
use super::{error, first_dial::DialProgress, followed::Tenure, host_names, tcp};
use crate::runtime::deadline::within;
#[cfg(feature = "test-util")]
use crate::runtime::world;

/// A connection of the redis crate, and whether the server has closed it.
pub(crate) struct Wire {
    pub(crate) connection: MultiplexedConnection,
    /// Becomes true when the server closes the connection, also while it is idle. Stays false with RESP2.
    pub(crate) closed: Arc<AtomicBool>,
    /// `None` for a server that is not behind sentinels.
    pub(crate) tenure: Option<Tenure>,
    pub(crate) transit: Arc<Transit>,
}

impl Wire {
    /// Dials a server, for as long as the caller waits. Looks the name of the server up again, and asks for the login.
    pub(crate) async fn dial(endpoint: &Endpoint, progress: &DialProgress) -> RedisResult<Self> {
        unless_panicking(async {
            let endpoint = &endpoint.logged_in()?;
            explained(endpoint, Self::negotiate(endpoint, progress)).await
        })
        .await
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
            let (connection, transit) = connect(endpoint, config, progress).await?;
            return Ok(Self { connection, closed, tenure: None, transit });
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
        let with_resp3 = || async {
            let mut dial = endpoint.resp3.dial();
            let result = connect(endpoint, watched.clone(), progress).await;
            dial.has_hung_up = result.as_ref().is_err_and(hangs_up);
            result.inspect(|_| endpoint.resp3.is_spoken())
        };
        let (connection, transit) = match with_resp3().await {
            // It restarts, or somebody has closed its connections.
            Err(error) if hangs_up(&error) && !endpoint.resp3.is_missing() => with_resp3().await?,
            Err(error) if hangs_up(&error) || lacks_resp3(&error) => {
                connect(&endpoint.with_resp2(), config, progress).await?
            }
            result => result?,
        };
        Ok(Self { connection, closed, tenure: None, transit })
    }
}

/// The result of a dial, or an error if it panics, for example in a cryptography provider. The panic would end the task
/// that dials or asks sentinels, and nothing would start it again.
async fn unless_panicking<T>(dial: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let mut dial = pin!(dial);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| dial.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(io::Error::other("the dial has panicked").into())),
    })
    .await
}

/// The one place that opens connections for commands.
#[cfg_attr(not(feature = "tls"), expect(unused_variables, reason = "only handshakes of TLS have progress"))]
async fn connect(
    endpoint: &Endpoint,
    config: AsyncConnectionConfig,
    progress: &DialProgress,
) -> RedisResult<(MultiplexedConnection, Arc<Transit>)> {
    #[cfg(feature = "test-util")]
    if let ConnectionAddr::Tcp(host, port) = endpoint.info.addr()
        && let Some(dialled) = world::dial(host, *port)
    {
        return connection_over(dialled.await?, endpoint, config).await;
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &endpoint.tls {
        let stream = tls.connect(&endpoint.info, endpoint.naming_advice(), progress).await?;
        return connection_over(stream, endpoint, config).await;
    }
    match endpoint.info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            connection_over(tcp::connect(host, *port, endpoint.info.tcp_settings()).await?, endpoint, config).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = net::UnixStream::connect(path).await.map_err(|error| of_socket(path, &error))?;
            connection_over(stream, endpoint, config).await
        }
        _ => Err((ErrorKind::InvalidClientConfig, "this platform has no Unix sockets; connect over TCP").into()),
    }
}

/// The error of a socket that does not take a connection. Waiting does not mend a missing permission or a path that is
/// too long: they are mistakes of the setup.
#[cfg(unix)]
fn of_socket(path: &std::path::Path, error: &io::Error) -> io::Error {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (io::ErrorKind::InvalidData, "; let this user write to it (unixsocketperm) and search its directories")
        }
        io::ErrorKind::InvalidInput => (io::ErrorKind::InvalidData, "; choose a shorter path"),
        kind => (kind, ""),
    };
    io::Error::new(kind, format!("the socket {}: {error}{advice}", path.display()))
}

/// Logs in over a stream.
async fn connection_over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    endpoint: &Endpoint,
    config: AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, Arc<Transit>)> {
    let settings = endpoint.info.redis_settings();
    let transit = Transit::new();
    let stream = Recorded::new(stream, &transit);
    let (connection, driver) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    // The driver ends with the last clone of the connection.
    tokio::spawn(Arc::clone(&transit).drive(driver));
    Ok((connection, transit))
}

/// Whether the server has closed the connection. Some servers without RESP3 do so instead of replying.
fn hangs_up(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Io && error.is_connection_dropped() && !error.is_connection_refusal()
}

/// Whether the server lacks RESP3, or even the command HELLO, which requests RESP3.
fn lacks_resp3(error: &RedisError) -> bool {
    let names_hello = || error.detail().is_some_and(|text| text.to_ascii_uppercase().contains("HELLO"));
    match error.kind() {
        ErrorKind::RESP3NotSupported => true,
        _ => error.code() == Some("NOPROTO") || (error.code() == Some("ERR") && names_hello()),
    }
}

/// How long a handshake may take before the server is probed beside it. Checks wait longer for the first dial, so the
/// first of them learns what is wrong.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time for the probe after a dial that has failed: a connection and a round trip.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// A server without TLS answers these bytes with a line.
const PLAIN_PROBE: &[u8] = b"PING\r\n";
/// A TLS handshake that is too short. A server with TLS answers with an alert.
const TLS_PROBE: &[u8] = &[0x16, 0x03, 0x01, 0x00, 0x05, 0x01, 0x00, 0x00, 0x01, 0x00];

/// The result of a dial, or an error that names the right scheme if that of the URL is wrong.
pub(crate) async fn explained<T>(endpoint: &Endpoint, dial: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    if endpoint.scheme.is_right() {
        return dial.await;
    }
    let (mut dial, mut found) = (pin!(dial), pin!(mismatch_beside_a_handshake(endpoint)));
    let result = poll_fn(|cx| match dial.as_mut().poll(cx) {
        Poll::Pending => found.as_mut().poll(cx).map(Err),
        result => result,
    });
    match result.await {
        Ok(connected) => {
            endpoint.scheme.proves_right();
            Ok(connected)
        }
        Err(error) if is_unspecific(&error) => {
            let found = within(PROBE_TIMEOUT, mismatch(endpoint)).await.flatten();
            Err(found.unwrap_or(error))
        }
        Err(error) => Err(error),
    }
}

/// Whether an error may be that of a wrong scheme.
fn is_unspecific(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
        && !error.is_connection_refusal()
        && !error::is_invalid_data(error)
}

/// Resolves if a server that has not answered a handshake for some time speaks no TLS.
async fn mismatch_beside_a_handshake(endpoint: &Endpoint) -> RedisError {
    if endpoint.is_encrypted() {
        let _ = within(PATIENCE, pending::<()>()).await;
        if let Some(mismatch) = mismatch(endpoint).await {
            return mismatch;
        }
    }
    pending().await
}

/// Probes the server. Returns an error if the server expects the other scheme.
async fn mismatch(endpoint: &Endpoint) -> Option<RedisError> {
    let (host, port, probe, is_encrypted) = match endpoint.info.addr() {
        ConnectionAddr::Tcp(host, port) => (host, *port, TLS_PROBE, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host, *port, PLAIN_PROBE, true),
        _ => return None,
    };
    let text = match (is_encrypted, first_byte(host, port, probe).await?) {
        (true, b'+' | b'-') if endpoint.announcer == Some(Announcer::Cluster) => {
            "the cluster announces a port without TLS; set tls-cluster yes on each node, or write redis:// instead of \
             rediss://"
        }
        (true, b'+' | b'-') => "the server does not speak TLS on this port; write redis:// instead of rediss://",
        (false, 0x15 | 0x16) => "the server speaks TLS on this port; write rediss:// instead of redis://",
        _ => return None,
    };
    Some(RedisError::from(io::Error::new(io::ErrorKind::InvalidData, text)))
}

/// The first byte of the answer to the probe.
async fn first_byte(host: &str, port: u16, probe: &[u8]) -> Option<u8> {
    #[cfg(feature = "test-util")]
    if let Some(dialled) = crate::runtime::world::dial(host, port) {
        return answer(dialled.await.ok()?, probe).await;
    }
    let addresses = host_names::look_up(host, port).await.ok()?;
    answer(net::TcpStream::connect(&addresses[..]).await.ok()?, probe).await
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, probe: &[u8]) -> Option<u8> {
    stream.write_all(probe).await.ok()?;
    stream.read_u8().await.ok()
}

#[cfg(test)]
mod tests {
    use super::{super::endpoint::Security, *};

    /// Tests that run as root may use any socket, so this one makes the error itself.
    #[cfg(unix)]
    #[test]
    fn a_socket_of_another_user_is_a_mistake_of_the_setup() {
        let error = of_socket("/run/redis.sock".as_ref(), &io::ErrorKind::PermissionDenied.into());
        assert_eq!(
            error.to_string(),
            "the socket /run/redis.sock: permission denied; let this user write to it (unixsocketperm) and search its \
             directories"
        );
        assert!(error::is_invalid_data(&error.into()));
    }

    #[test]
    fn servers_and_proxies_without_resp3_are_recognised() {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut, UnexpectedEof};
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
        for (kind, expected) in
            [(ConnectionReset, true), (UnexpectedEof, true), (ConnectionRefused, false), (TimedOut, false)]
        {
            assert_eq!(hangs_up(&io::Error::from(kind).into()), expected, "{kind}");
        }
    }

    #[tokio::test]
    async fn no_server_is_probed_for_an_error_that_names_its_cause_or_after_a_dial_has_succeeded() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        let url = format!("redis://{}", server.local_addr().unwrap());
        let endpoint = super::super::url::read(&url, &Security::default()).unwrap();
        let io = |kind| RedisError::from(io::Error::from(kind));
        let login = redis::parse_redis_value(b"-WRONGPASS wrong\r\n").unwrap().extract_error().unwrap_err();
        let named = [io(io::ErrorKind::ConnectionRefused), io(io::ErrorKind::InvalidData), login].map(Err);
        for result in named.into_iter().chain([Ok(()), Err(io(io::ErrorKind::ConnectionReset))]) {
            let _ = explained(&endpoint, async { result }).await;
        }
        assert_eq!(server.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
