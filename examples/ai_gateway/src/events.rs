//! Server-sent events in a stream of bytes.

use std::mem;

use serde_json::Value;

/// The largest event, in bytes. Without a bound, an upstream that ends no event fills the memory.
const LARGEST: usize = 1 << 20;

/// The bytes of events whose ends have not been received.
#[derive(Default)]
pub(crate) struct Events {
    received: Vec<u8>,
    /// Where the last line begins.
    line: usize,
    /// How far ends of lines have been searched.
    searched: usize,
}

impl Events {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// The next event, with the empty line that ends it.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        while let Some(length) = self.received[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + length + 1;
            let is_empty = matches!(&self.received[self.line..end], b"\n" | b"\r\n");
            (self.line, self.searched) = (end, end);
            if is_empty {
                (self.line, self.searched) = (0, 0);
                return Some(self.received.drain(..end).collect());
            }
        }
        self.searched = self.received.len();
        None
    }

    /// Whether the next event is larger than it may be.
    pub(crate) fn is_too_large(&self) -> bool {
        self.received.len() > LARGEST
    }

    /// What has been received after the last event.
    pub(crate) fn rest(&mut self) -> Option<Vec<u8>> {
        (self.line, self.searched) = (0, 0);
        Some(mem::take(&mut self.received)).filter(|rest| !rest.is_empty())
    }
}

/// What an event says.
pub(crate) enum Data {
    Chunk(Value),
    /// The end of an answer, `[DONE]`.
    Done,
    /// Neither, such as a comment that keeps the connection alive.
    Other,
}

impl Data {
    /// Reads the lines of an event that are data.
    pub(crate) fn of(event: &[u8]) -> Self {
        let lines = event.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
        let data = lines.collect::<Vec<_>>().join(&b'\n');
        // JSON may have spaces around it.
        match data.trim_ascii() {
            b"[DONE]" => Self::Done,
            data => serde_json::from_slice(data).map_or(Self::Other, Self::Chunk),
        }
    }
}
