//! Detects `redis://` for a server with TLS, and `rediss://` for a server without.
//!
//! Neither server reports the mistake: one without TLS waits for the rest of the TLS handshake, one with TLS hangs up
//! on a plain command. So until a dial of the URL has succeeded, a few bytes are sent that only the other kind of
//! server answers: beside a handshake that takes long, and after a dial that has failed.

use std::{
    future::{Future, pending, poll_fn},
    io,
    pin::pin,
    task::Poll,
    time::Duration,
};

use redis::{ConnectionAddr, ErrorKind as RedisErrorKind, RedisError, RedisResult};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use super::{announcer::Announcer, endpoint::Endpoint, error};
use crate::runtime::deadline::within;

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
    matches!(error.kind(), RedisErrorKind::Io | RedisErrorKind::Parse)
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
    answer(TcpStream::connect((host, port)).await.ok()?, probe).await
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, probe: &[u8]) -> Option<u8> {
    stream.write_all(probe).await.ok()?;
    stream.read_u8().await.ok()
}
