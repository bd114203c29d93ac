//! Messages of any bytes, as Envoy sends fields of requests that are no UTF-8.

use bytes::BufMut;
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Sends bytes, and reads `D`.
pub struct Raw<D>(std::marker::PhantomData<fn() -> D>);

impl<D> Default for Raw<D> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<D: Message + Default + 'static> Codec for Raw<D> {
    type Encode = Vec<u8>;
    type Decode = D;
    type Encoder = Self;
    type Decoder = ProstDecoder<D>;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> ProstDecoder<D> {
        ProstDecoder::default()
    }
}

impl<D> Encoder for Raw<D> {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

/// The bytes of a message in which `{` stands for a byte that is no UTF-8.
pub fn with_byte(message: &impl Message, byte: u8) -> Vec<u8> {
    message.encode_to_vec().into_iter().map(|other| if other == b'{' { byte } else { other }).collect()
}
