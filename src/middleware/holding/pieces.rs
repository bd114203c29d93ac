//! Large frames in pieces, so that a body has not ended long before its client has got it.

use std::{any::Any, cmp::min};

use bytes::Bytes;
use http_body::Frame;

/// The largest piece, in bytes. A server takes the next one when it has room: hyper buffers about 400 kB of a response.
const LARGEST: usize = 64 << 10;

/// Takes what is beyond one piece out of a frame of [`Bytes`]. Other data stays whole: it has no cheap parts.
pub(super) fn cut<D: 'static>(frame: &mut Frame<D>) -> Option<Bytes> {
    let data = (frame.data_mut()? as &mut dyn Any).downcast_mut::<Bytes>()?;
    (data.len() > LARGEST).then(|| data.split_off(LARGEST))
}

/// The next piece of what was cut off.
pub(super) fn next<D: 'static>(rest: &mut Option<Bytes>) -> Option<Frame<D>> {
    let mut bytes = rest.take()?;
    let mut piece = Some(bytes.split_to(min(LARGEST, bytes.len())));
    *rest = Some(bytes).filter(|bytes| !bytes.is_empty());
    let piece = (&mut piece as &mut dyn Any).downcast_mut::<Option<D>>().and_then(Option::take);
    Some(Frame::data(piece.expect("only frames of `Bytes` are cut")))
}
