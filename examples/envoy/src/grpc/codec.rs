//! A codec for messages whose texts may be no UTF-8.

use std::{fmt, marker::PhantomData};

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{Message, bytes::Buf};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

/// A message whose texts are UTF-8, as those of protobuf are.
pub(super) trait Utf8: Message + Default + 'static {
    /// The same message with texts of any bytes.
    type AnyText: Message + Default + Into<Self>;
    /// The fields that lead from the message to its smallest parts. Those that repeat are on this way.
    const PARTS: &'static [u32];
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
        let (message, mut left) = (buffer.chunk(), MOST_PARTS);
        if has_too_many_parts(message, D::PARTS, &mut left) {
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

/// A descriptor, a bucket or an entry may have two bytes, and takes a hundred in memory.
const MOST_PARTS: usize = 200_000;

/// Takes the parts of a message from those that are `left`. Returns whether there are more.
fn has_too_many_parts(mut message: &[u8], way: &[u32], left: &mut usize) -> bool {
    // What cannot be read is refused by the decoder.
    while let Ok((tag, wire_type)) = decode_key(&mut message) {
        let Some(fewer) = left.checked_sub(1) else { return true };
        *left = fewer;
        let (field, rest) = (message, way.split_first().filter(|(next, _)| **next == tag));
        if skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_err() {
            return false;
        }
        if let (Some((_, rest)), WireType::LengthDelimited) = (rest, wire_type) {
            let mut part = &field[..field.len() - message.len()];
            if decode_varint(&mut part).is_ok() && has_too_many_parts(part, rest, left) {
                return true;
            }
        }
    }
    false
}

impl<E, D> fmt::Debug for AnyText<E, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyText")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of this number with this content.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2];
        prost::encoding::encode_varint(content.len() as u64, &mut bytes);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn parts_are_counted_on_each_level_and_texts_are_no_parts() {
        let is_refused = |message: &[u8], left: usize| has_too_many_parts(message, &[2, 1, 1], &mut { left });
        let empty = |count: usize| [0x0a, 0x00].repeat(count);
        let nested = field(2, &field(1, &empty(98)));
        assert!(!is_refused(&nested, 100) && is_refused(&nested, 99), "one usage, one bucket, and its entries");
        let flat = field(2, &[]).repeat(100);
        assert!(!is_refused(&flat, 100) && is_refused(&flat, 99));
        let text = field(2, &field(1, &field(1, &field(2, &empty(1_000)))));
        assert!(!is_refused(&text, 4), "what a value has is not looked at");
        assert!(!is_refused(&[0x12, 0x7f, 0x0a], 100), "the decoder refuses what is cut");
    }
}
