//! A connection on its way between a process and a server: bytes arrive late, and in order.

use std::collections::VecDeque;

use super::stream::Pipe;
use crate::server::{Session, reply::Bytes};
use crate::time::now;

/// Bytes, and when they arrive.
type Packet = (u64, Bytes);

pub(crate) struct Connection {
    pub(super) process: usize,
    pub(super) server: usize,
    pub(super) pipe: Pipe,
    pub(super) session: Session,
    to_server: VecDeque<Packet>,
    to_client: VecDeque<Packet>,
    /// What has arrived at the server and is no whole command yet, or waits for a server that stands still.
    pub(super) received: Bytes,
    pub(super) is_over: bool,
    /// When something last arrived at the server.
    pub(super) used_at: u64,
    /// Whether the network has forgotten it.
    pub(super) is_forgotten: bool,
    /// Whether the server has ended its side.
    is_half_closed: bool,
}

impl Connection {
    pub(super) fn new(process: usize, server: usize, pipe: Pipe) -> Self {
        let (to_server, to_client) = (VecDeque::new(), VecDeque::new());
        let session = Session::default();
        Self {
            process,
            server,
            pipe,
            session,
            to_server,
            to_client,
            received: vec![],
            is_over: false,
            used_at: now(),
            is_forgotten: false,
            is_half_closed: false,
        }
    }

    /// Takes what the client has written.
    pub(super) fn written(&self) -> Bytes {
        std::mem::take(&mut self.pipe.lock().written)
    }

    pub(super) fn send_to_server(&mut self, at: u64, bytes: Bytes) {
        push(&mut self.to_server, at, bytes);
    }

    pub(super) fn send_to_client(&mut self, at: u64, bytes: Bytes) {
        push(&mut self.to_client, at, bytes);
    }

    /// Delivers what is due, at most this number of bytes.
    pub(super) fn arrive_at_server(&mut self, now: u64, most: usize) {
        let bytes = due(&mut self.to_server, now, most);
        if !bytes.is_empty() {
            self.used_at = now;
            self.received.extend(bytes);
        }
    }

    pub(super) fn arrive_at_client(&mut self, now: u64, most: usize) {
        let bytes = due(&mut self.to_client, now, most);
        if !bytes.is_empty() && !self.is_half_closed {
            self.pipe.lock().deliver(&bytes);
        }
    }

    /// What is sent arrives nowhere.
    pub(super) fn lose(&mut self) {
        drop(self.written());
        self.is_over = self.pipe.lock().is_dropped;
    }

    /// The network forgets the connection, and neither side learns of it.
    pub(crate) fn forget(&mut self) {
        self.is_forgotten = true;
    }

    /// The server ends its side. It still does what arrives, and its replies are lost.
    pub(crate) fn half_close(&mut self) {
        self.is_half_closed = true;
        self.pipe.lock().close();
    }

    /// Ends the connection as a reset does: what is on its way is lost.
    pub(super) fn reset(&mut self) {
        self.is_over = true;
        self.pipe.lock().reset();
    }

    /// The server closes the connection.
    pub(super) fn close(&mut self) {
        self.is_over = true;
        self.pipe.lock().close();
    }

    /// Whether the client has gone and all that it has sent has arrived.
    pub(super) fn is_left(&self) -> bool {
        self.to_server.is_empty() && self.pipe.lock().is_dropped
    }
}

/// Never overtakes what was sent before.
fn push(packets: &mut VecDeque<Packet>, at: u64, bytes: Bytes) {
    let at = packets.back().map_or(at, |(before, _)| at.max(*before));
    packets.push_back((at, bytes));
}

/// What is due, at most this number of bytes.
fn due(packets: &mut VecDeque<Packet>, now: u64, most: usize) -> Bytes {
    let mut arrived = vec![];
    while arrived.len() < most
        && packets.front().is_some_and(|(at, _)| *at <= now)
        && let Some((_, mut bytes)) = packets.pop_front()
    {
        if bytes.len() > most - arrived.len() {
            packets.push_front((now, bytes.split_off(most - arrived.len())));
        }
        arrived.extend(bytes);
    }
    arrived
}
