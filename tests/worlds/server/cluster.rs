//! The slots of a cluster: who has them, and which of them are on the move.

use super::reply::{Bytes, Reply};

pub(crate) const SLOTS: u16 = 16_384;
/// The port of the first server. The others follow.
pub(crate) const FIRST_PORT: u16 = 7_000;
pub(crate) const HOST: &str = "10.0.0.1";

/// Slots that move from one server to another, key by key.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Move {
    fn has(&self, slot: u16) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        self.has(slot_of(key))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Slots {
    owners: Vec<usize>,
    pub(crate) moving: Option<Move>,
    /// Whether the cluster answers at all.
    pub(crate) is_down: bool,
}

/// What a server answers to a command with keys before it runs it.
pub(super) enum Routed {
    Here,
    Elsewhere(Reply),
}

impl Slots {
    /// Equal ranges for each server.
    pub(crate) fn of(servers: usize) -> Self {
        let owner = |slot: usize| slot * servers / usize::from(SLOTS);
        Self { owners: (0..usize::from(SLOTS)).map(owner).collect(), moving: None, is_down: false }
    }

    /// Gives the slots of a move to their new server.
    pub(crate) fn finish_move(&mut self) {
        if let Some(moved) = self.moving.take() {
            self.owners[usize::from(moved.first)..=usize::from(moved.last)].fill(moved.to);
        }
    }

    /// The first range of slots of a server.
    pub(crate) fn range_of(&self, server: usize) -> Option<(u16, u16)> {
        self.ranges().into_iter().find(|(_, _, owner)| *owner == server).map(|(first, last, _)| (first, last))
    }

    fn ranges(&self) -> Vec<(u16, u16, usize)> {
        let mut ranges: Vec<(u16, u16, usize)> = vec![];
        for (slot, owner) in (0..SLOTS).zip(&self.owners) {
            match ranges.last_mut() {
                Some((_, last, range_owner)) if range_owner == owner => *last = slot,
                _ => ranges.push((slot, slot, *owner)),
            }
        }
        ranges
    }

    /// The reply to CLUSTER SLOTS.
    pub(super) fn reply(&self) -> Reply {
        let node = |server: usize| {
            let (port, id) = (i64::from(FIRST_PORT) + server as i64, format!("{server:040}"));
            Reply::List(vec![Reply::Bulk(HOST.into()), Reply::Integer(port), Reply::Bulk(id.into_bytes())])
        };
        let range = |(first, last, owner): (u16, u16, usize)| {
            Reply::List(vec![Reply::Integer(first.into()), Reply::Integer(last.into()), node(owner)])
        };
        Reply::List(self.ranges().into_iter().map(range).collect())
    }

    /// Whether a server gives the slot of these keys to another one.
    pub(super) fn are_given_away(&self, server: usize, keys: &[Bytes]) -> bool {
        let is_given = |moving: &Move| moving.from == server && keys.first().is_some_and(|key| moving.has_key(key));
        self.moving.as_ref().is_some_and(is_given)
    }

    /// Routes a command with these keys as Redis 7.0 does.
    pub(super) fn route(
        &self,
        server: usize,
        keys: &[Bytes],
        is_asking: bool,
        mut has: impl FnMut(&[u8]) -> bool,
    ) -> Routed {
        let Some(slot) = keys.first().map(|key| slot_of(key)) else { return Routed::Here };
        let refuse = |text: String| Routed::Elsewhere(Reply::Error(text));
        if self.is_down {
            return refuse("CLUSTERDOWN The cluster is down".to_owned());
        }
        if keys.iter().any(|key| slot_of(key) != slot) {
            return refuse("CROSSSLOT Keys in request don't hash to the same slot".to_owned());
        }
        let port = |server: usize| usize::from(FIRST_PORT) + server;
        let owner = self.owners[usize::from(slot)];
        let moving = self.moving.as_ref().filter(|moving| moving.has(slot));
        match moving {
            Some(moving) if moving.from == server && owner == server => {
                if keys.iter().all(|key| has(key)) {
                    return Routed::Here;
                }
                return refuse(format!("ASK {slot} {HOST}:{}", port(moving.to)));
            }
            Some(moving) if moving.to == server && is_asking => {
                let are_several = keys.iter().any(|key| *key != keys[0]);
                if are_several && !keys.iter().all(|key| has(key)) {
                    return refuse("TRYAGAIN Multiple keys request during rehashing of slot".to_owned());
                }
                return Routed::Here;
            }
            _ => {}
        }
        if owner == server { Routed::Here } else { refuse(format!("MOVED {slot} {HOST}:{}", port(owner))) }
    }
}

/// The slot of a key: that of its hash tag, if it has one.
fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}
