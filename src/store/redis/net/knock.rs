//! Tells a network that has lost the packets of a handshake from a server that is busy.
//!
//! A knock is a connection with a few bytes that are no TLS. A server with TLS closes it at once, and computes nothing.

use std::{
    future::{Future, pending},
    net::SocketAddr,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::{backoff::MAX_PAUSE, progress::DialProgress};
use crate::runtime::deadline::within;

/// Answers in a row, each to a knock that began after the answer before it. A server handles what its connections have
/// sent in rounds. So it has read all that arrived before the first answer when it gives the second one.
const ANSWERS: u32 = 2;

/// No handshake of TLS begins like this.
const BYTES: &[u8] = b"PING\r\n";

/// Knocks at the server of a dial, whenever it `is_urgent`, until its answers show that the dial is lost. Never ends if
/// no server has accepted the connection of the dial.
pub(super) async fn until_lost(dial: DialProgress, is_urgent: impl Fn() -> bool) {
    match dial.server() {
        Some(address) => until_answered(|| async { is_urgent() && knock(address).await }).await,
        None => pending().await,
    }
}

/// Knocks until the server has answered [`ANSWERS`] times in a row.
pub(super) async fn until_answered<F: Future<Output = bool>>(knock: impl Fn() -> F) {
    let mut answers = 0;
    while answers < ANSWERS {
        let start = Instant::now();
        if within(MAX_PAUSE, knock()).await == Some(true) {
            answers += 1;
        } else {
            answers = 0;
            let _ = within(MAX_PAUSE.saturating_sub(start.elapsed()), pending::<()>()).await;
        }
    }
}

/// Whether the server answers. That it closes the connection is an answer.
async fn knock(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return false };
    if stream.write_all(BYTES).await.is_ok() {
        let _ = stream.read_u8().await;
    }
    true
}
