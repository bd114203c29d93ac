//! WebSockets (RFC 6455), as far as short messages need them: the accepted key of the handshake, and single frames.

use std::io;

use base64::{Engine, engine::general_purpose::STANDARD};
use sha1_smol::Sha1;
use tokio::io::{AsyncRead, AsyncReadExt};

pub(super) const TEXT: u8 = 1;
pub(super) const CLOSE: u8 = 8;

/// The answer to the key of a client.
pub(super) fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::from(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")).digest().bytes())
}

pub(super) fn key(number: u64) -> String {
    STANDARD.encode([number.to_be_bytes(), number.to_le_bytes()].concat())
}

/// A frame of at most 125 bytes. Those of clients are masked.
pub(super) fn frame(kind: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let mut frame = vec![0x80 | kind, masked | u8::try_from(payload.len()).unwrap()];
    frame.extend(mask.into_iter().flatten());
    let mask = mask.unwrap_or_default().into_iter().cycle();
    frame.extend(payload.iter().zip(mask).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Reads a frame: its kind and its payload.
pub(super) async fn read(io: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    io.read_exact(&mut head).await?;
    let (mut mask, mut payload) = ([0; 4], vec![0; usize::from(head[1] & 0x7f)]);
    if head[1] & 0x80 != 0 {
        io.read_exact(&mut mask).await?;
    }
    io.read_exact(&mut payload).await?;
    payload.iter_mut().zip(mask.into_iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
    Ok((head[0] & 0x0f, payload))
}

#[test]
fn the_key_of_the_specification_is_accepted_as_it_says() {
    assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}
