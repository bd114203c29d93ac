//! The client's end of a connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::{collections::VecDeque, io, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What both ends of a connection share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes that the client has written and the network has not taken.
    pub(super) written: Vec<u8>,
    /// Bytes that have arrived at the client.
    arrived: VecDeque<u8>,
    /// Whether the server has closed the connection, after what has arrived.
    is_closed: bool,
    is_reset: bool,
    /// Whether the client has dropped its end.
    pub(super) is_dropped: bool,
    reader: Option<Waker>,
}

impl Shared {
    pub(super) fn deliver(&mut self, bytes: &[u8]) {
        self.arrived.extend(bytes);
        self.wake();
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
        self.wake();
    }

    pub(super) fn reset(&mut self) {
        self.is_reset = true;
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// The client's end.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe(Arc<Mutex<Shared>>);

impl Pipe {
    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream that the client holds. Dropping it closes the connection.
pub(super) struct ClientEnd(pub(super) Pipe);

impl AsyncRead for ClientEnd {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.0.lock();
        if shared.is_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if shared.arrived.is_empty() && !shared.is_closed {
            shared.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(shared.arrived.len());
        let bytes: Vec<u8> = shared.arrived.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClientEnd {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = self.0.lock();
        if shared.is_reset {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        shared.written.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.0.lock().is_dropped = true;
    }
}
