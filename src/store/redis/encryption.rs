//! Whether a server that could not be spoken to speaks TLS where the URL has none, or the other way round.
//!
//! Neither side says so: a plain Redis waits for the rest of a TLS greeting, and one with TLS hangs up on a plain
//! command. So a dial that fails before any has succeeded is followed by a question of a few bytes, which the other kind
//! of server answers.

use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, ErrorKind as RedisErrorKind, RedisError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{error, words::Passwords};
use crate::{
    error::{Error, ErrorKind},
    runtime::deadline::within,
};

/// How long the question may take: a connection and a round trip.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a plain server answers with a line.
const PLAIN_QUESTION: &[u8] = b"PING\r\n";
/// A greeting of TLS that is too short, which a server with TLS answers with an alert.
const TLS_QUESTION: &[u8] = &[0x16, 0x03, 0x01, 0x00, 0x05, 0x01, 0x00, 0x00, 0x01, 0x00];

/// The error of a failed dial, which says so if only the scheme of the URL is wrong.
pub(super) async fn failure_of(error: &RedisError, info: &ConnectionInfo) -> Error {
    let converted = error::convert_dial(error, &Passwords::of([info]));
    let has_connected = !error.is_connection_refusal();
    let says_nothing = matches!(error.kind(), RedisErrorKind::Io | RedisErrorKind::Parse);
    match has_connected && says_nothing {
        true => mismatch(info.addr()).await.unwrap_or(converted),
        false => converted,
    }
}

async fn mismatch(address: &ConnectionAddr) -> Option<Error> {
    let (host, port, question, is_encrypted) = match address {
        ConnectionAddr::Tcp(host, port) => (host, *port, TLS_QUESTION, false),
        ConnectionAddr::TcpTls { host, port, .. } => (host, *port, PLAIN_QUESTION, true),
        _ => return None,
    };
    let text = match (is_encrypted, within(PATIENCE, first_byte(host, port, question)).await??) {
        (true, b'+' | b'-') => "the server does not speak TLS on this port; write redis:// instead of rediss://",
        (false, 0x15 | 0x16) => "the server speaks TLS on this port; write rediss:// instead of redis://",
        _ => return None,
    };
    Some(Error::new(ErrorKind::Misconfigured, text))
}

/// The first byte of the answer to a question.
async fn first_byte(host: &str, port: u16, question: &[u8]) -> Option<u8> {
    let mut stream = TcpStream::connect((host, port)).await.ok()?;
    stream.write_all(question).await.ok()?;
    stream.read_u8().await.ok()
}
