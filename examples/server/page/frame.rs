//! The events since the last frame, as the text that all viewers get.

use std::hash::{BuildHasher, RandomState};
use std::{collections::HashMap, io::Write, mem};

use axum::body::Bytes;
use tollgate::observe::Event;

use crate::page::json::Fields;
use crate::page::record::{self, Seen};

/// Events of a frame. Further ones are counted.
const MOST_EVENTS: usize = 500;

#[derive(Default)]
pub(super) struct Frame {
    events: Vec<Recorded>,
    /// The refusals among the events, by what they have in common with the next ones.
    refusals: HashMap<u64, usize>,
    hasher: RandomState,
    left_out: u64,
}

struct Recorded {
    /// An object without its end, because it may get two more fields.
    text: Vec<u8>,
    repeats: u64,
    /// The time of the last repeat.
    until_us: u64,
}

impl Frame {
    /// Adds an event. A refusal like one before is a repeat of it, because a client that is refused may send thousands
    /// within a frame.
    pub(super) fn add(&mut self, event: &Event<'_>, seen: &Seen<'_>) {
        let alike = self.alike(event, seen);
        if let Some(&index) = alike.and_then(|alike| self.refusals.get(&alike)) {
            let Recorded { repeats, until_us, .. } = &mut self.events[index];
            (*repeats, *until_us) = (*repeats + 1, seen.at_us);
            return;
        }
        if self.events.len() >= MOST_EVENTS {
            self.left_out += 1;
            return;
        }
        if let Some(alike) = alike {
            self.refusals.insert(alike, self.events.len());
        }
        let mut text = Vec::with_capacity(600);
        record::write(&mut Fields::begin(&mut text), event, seen);
        self.events.push(Recorded { text, repeats: 0, until_us: seen.at_us });
    }

    /// A hash of what makes two refusals look alike on the page; `None` for any other event.
    fn alike(&self, event: &Event<'_>, seen: &Seen<'_>) -> Option<u64> {
        let decision = event.decision().filter(|decision| !decision.is_allowed())?;
        let charges: Vec<_> = event.charges().map(|(_, policy, cost)| (policy.name(), cost)).collect();
        let violated: Vec<_> = decision.policies().iter().map(|standing| standing.violated).collect();
        let beside: Vec<_> = seen.beside.iter().map(|beside| beside.is_allowed).collect();
        let request = (event.method(), event.route(), event.outcome(), record::source(decision.source()));
        Some(self.hasher.hash_one((request, seen.keys, charges, violated, beside)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The frame as a message, which may have no events.
    pub(super) fn take(&mut self) -> Bytes {
        self.refusals.clear();
        let (now, left_out) = (record::now(), mem::take(&mut self.left_out));
        let mut text = format!("data: {{\"now\":{now},\"left_out\":{left_out},\"events\":[").into_bytes();
        for (index, Recorded { text: event, repeats, until_us }) in self.events.drain(..).enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&event);
            // Writing to memory cannot fail.
            let _ = match repeats {
                0 => write!(text, "}}"),
                _ => write!(text, ",\"repeats\":{repeats},\"until\":{}}}", record::millis(until_us)),
            };
        }
        text.extend_from_slice(b"]}\n\n");
        text.into()
    }
}
