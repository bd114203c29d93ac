//! Detects `redis://` for a server with TLS, and `rediss://` for a server without.
//!
//! Neither server reports the mistake: one without TLS waits for the rest of the TLS handshake, one with TLS hangs up
//! on a plain command. So after a failed dial, if none has succeeded yet, a few bytes are sent that only the other kind
//! of server answers.

use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind as RedisErrorKind, RedisError};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use super::{error, redact::Passwords};
use crate::{
    error::{Error, ErrorKind},
    runtime::deadline::within,
};

/// Time for the probe: a connection and a round trip.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// A server without TLS answers these bytes with a line.
const PLAIN_PROBE: &[u8] = b"PING\r\n";
/// A TLS handshake that is too short. A server with TLS answers with an alert.
const TLS_PROBE: &[u8] = &[0x16, 0x03, 0x01, 0x00, 0x05, 0x01, 0x00, 0x00, 0x01, 0x00];

/// The error of a failed dial. It names the right scheme if the scheme of the URL is wrong.
pub(crate) async fn dial_error(error: &RedisError, info: &ConnectionInfo) -> Error {
    let converted = error::convert_dial(error, &Passwords::of([info]));
    let has_connected = !error.is_connection_refusal();
    let is_unspecific = matches!(error.kind(), RedisErrorKind::Io | RedisErrorKind::Parse);
    match has_connected && is_unspecific {
        true => mismatch(info.addr()).await.unwrap_or(converted),
        false => converted,
    }
}

/// Probes the server. Returns an error if the server expects the other scheme.
async fn mismatch(address: &ConnectionAddr) -> Option<Error> {
    let (host, port, probe, is_encrypted) = match address {
        ConnectionAddr::Tcp(host, port) => (host, *port, TLS_PROBE, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host, *port, PLAIN_PROBE, true),
        _ => return None,
    };
    let text = match (is_encrypted, within(PROBE_TIMEOUT, first_byte(host, port, probe)).await??) {
        (true, b'+' | b'-') => "the server does not speak TLS on this port; write redis:// instead of rediss://",
        (false, 0x15 | 0x16) => "the server speaks TLS on this port; write rediss:// instead of redis://",
        _ => return None,
    };
    Some(Error::new(ErrorKind::Misconfigured, text))
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
