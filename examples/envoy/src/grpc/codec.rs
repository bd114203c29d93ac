//! A codec for messages whose texts may be no UTF-8.

use std::{fmt, marker::PhantomData};

use prost::{
    Message,
    bytes::Buf,
    encoding::{DecodeContext, decode_key, skip_field},
};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder},
};
use tonic_prost::ProstEncoder;

/// A message whose texts are UTF-8, as those of protobuf are.
pub(super) trait Utf8: Message + Default + 'static {
    /// The same message with texts of any bytes.
    type AnyText: Message + Default + Into<Self>;
}

/// Writes `E`, and reads `D`.
pub(super) struct AnyText<E, D>(PhantomData<fn() -> (E, D)>);

impl<E, D> Default for AnyText<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E: Message + 'static, D: Utf8> Codec for AnyText<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = ProstEncoder<E>;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<E: 'static, D: Utf8> Decoder for AnyText<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        // The buffer has the whole message in one piece.
        let message = buffer.chunk();
        if has_too_many_parts(message) {
            return Err(Status::out_of_range(format!("the message has more than {MOST_PARTS} parts")));
        }
        // Nearly all texts are UTF-8.
        let read = D::decode(message).or_else(|error| match D::AnyText::decode(message) {
            Ok(any) => Ok(any.into()),
            Err(_) => Err(Status::internal(error.to_string())),
        });
        buffer.advance(buffer.remaining());
        read.map(Some)
    }
}

/// A descriptor or a bucket may have two bytes, and takes a hundred in memory.
const MOST_PARTS: usize = 200_000;

fn has_too_many_parts(mut message: &[u8]) -> bool {
    for _ in 0..=MOST_PARTS {
        let Ok((tag, wire_type)) = decode_key(&mut message) else { return false };
        if skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_err() {
            return false;
        }
    }
    true
}

impl<E, D> fmt::Debug for AnyText<E, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyText")
    }
}
