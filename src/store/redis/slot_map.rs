//! Which master has which slot of a cluster.

use std::sync::Arc;

use redis::Value;

use super::batch::SLOTS;

/// Ranges of slots and where their masters are, as a node tells it: sorted, so that two nodes can be compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Layout(Vec<Range>);

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Range {
    first: u16,
    last: u16,
    at: At,
}

/// Where a node is.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct At {
    pub(super) host: Arc<str>,
    pub(super) port: u16,
}

impl At {
    /// The address by which the node at `asked` names another one. One that does not know its own name leaves it out or
    /// says "?".
    pub(super) fn named(host: &str, port: u16, asked: &str) -> Self {
        let host = if matches!(host, "" | "?") { asked } else { host };
        Self { host: host.into(), port }
    }
}

impl Layout {
    /// Reads the reply to CLUSTER SLOTS of the node at `host`. `None` if it names no slot.
    pub(super) fn read(reply: &Value, host: &str) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut ranges: Vec<_> = ranges.iter().filter_map(|range| Range::read(range, host)).collect();
        ranges.sort();
        (!ranges.is_empty()).then_some(Self(ranges))
    }
}

impl Range {
    /// First slot, last slot, the master, and perhaps replicas.
    fn read(range: &Value, asked: &str) -> Option<Self> {
        let Value::Array(range) = range else { return None };
        let [first, last, Value::Array(master), ..] = &range[..] else { return None };
        let [host, port, ..] = &master[..] else { return None };
        // A node that does not know the name that it is to be called by may tell its address beside it.
        let named = text(host).filter(|host| *host != "?").or_else(|| address(master.get(3)?));
        let (first, last, at) =
            (integer(first)?, integer(last)?, At::named(named.unwrap_or(""), integer(port)?, asked));
        (first <= last && last < SLOTS).then_some(Self { first, last, at })
    }
}

/// What new servers tell beside the name: pairs, or a map.
fn address(beside: &Value) -> Option<&str> {
    match beside {
        Value::Array(pairs) => {
            pairs.chunks_exact(2).find(|pair| text(&pair[0]) == Some("ip")).and_then(|pair| text(&pair[1]))
        }
        Value::Map(pairs) => pairs.iter().find(|(name, _)| text(name) == Some("ip")).and_then(|(_, ip)| text(ip)),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

/// What several nodes say, which may differ while one is cut off from the others or has not heard of a change.
#[derive(Debug)]
pub(super) struct Poll {
    asked: usize,
    /// How many have said so.
    answers: Vec<(Layout, usize)>,
    missing: usize,
}

impl Poll {
    pub(super) fn of(asked: usize) -> Self {
        Self { asked, answers: Vec::new(), missing: asked }
    }

    pub(super) fn add(&mut self, answer: Option<Layout>) {
        self.missing = self.missing.saturating_sub(1);
        let Some(answer) = answer else { return };
        match self.answers.iter_mut().find(|(layout, _)| *layout == answer) {
            Some((_, count)) => *count += 1,
            None => self.answers.push((answer, 1)),
        }
    }

    /// Whether further answers make no difference.
    pub(super) fn is_decided(&self) -> bool {
        self.missing == 0 || self.answers.iter().any(|(_, count)| count * 2 > self.asked)
    }

    /// What most of them say.
    pub(super) fn most(self) -> Option<Layout> {
        self.answers.into_iter().max_by_key(|(_, count)| *count).map(|(layout, _)| layout)
    }
}

/// Slots and their masters.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotMap {
    masters: Vec<At>,
    /// By slot, the place in `masters`. Empty before anything is known.
    owners: Vec<Option<u16>>,
}

impl SlotMap {
    pub(super) fn owner(&self, slot: u16) -> Option<&At> {
        let place = (*self.owners.get(usize::from(slot))?)?;
        self.masters.get(usize::from(place))
    }

    pub(super) fn masters(&self) -> &[At] {
        &self.masters
    }

    /// Takes over a layout, and tells whether it changes anything.
    pub(super) fn learn(&mut self, layout: &Layout) -> bool {
        let mut next = Self::default();
        for Range { first, last, at } in &layout.0 {
            (*first..=*last).for_each(|slot| next.moved(slot, at));
        }
        let changed = (0..SLOTS).any(|slot| self.owner(slot) != next.owner(slot));
        *self = next;
        changed
    }

    /// Takes over what is said of one slot.
    pub(super) fn moved(&mut self, slot: u16, at: &At) {
        if slot >= SLOTS || self.owner(slot) == Some(at) {
            return;
        }
        let place = self.masters.iter().position(|known| known == at).unwrap_or_else(|| {
            self.masters.push(at.clone());
            self.masters.len() - 1
        });
        self.owners.resize(usize::from(SLOTS), None);
        self.owners[usize::from(slot)] = u16::try_from(place).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> At {
        At { host: host.into(), port }
    }

    fn layout(reply: &str) -> Option<Layout> {
        Layout::read(&redis::parse_redis_value(reply.as_bytes()).unwrap(), "asked")
    }

    /// As servers put it: with a name of the node's own, and with what newer ones tell beside it.
    const REPLY: &str = "*3\r\n\
        *4\r\n:5461\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:7002\r\n$2\r\nid\r\n*0\r\n\
        *3\r\n$9\r\n127.0.0.1\r\n:7005\r\n$2\r\nid\r\n\
        *3\r\n:0\r\n:5459\r\n*2\r\n$0\r\n\r\n:7001\r\n\
        *3\r\n:5460\r\n:5460\r\n*2\r\n$-1\r\n:7003\r\n";

    #[test]
    fn a_node_without_a_name_is_where_its_address_is() {
        let beside = ["*2\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n", "%1\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n"];
        for (host, at) in [("?", at("127.0.0.3", 7)), ("n", at("n", 7))] {
            for beside in beside {
                let entry = format!("*4\r\n$1\r\n{host}\r\n:7\r\n$2\r\nid\r\n{beside}");
                let layout = layout(&format!("*1\r\n*3\r\n:0\r\n:9\r\n{entry}")).unwrap();
                assert_eq!(layout.0[0].at, at, "{host} {beside:?}");
            }
        }
        let alone = layout("*1\r\n*3\r\n:0\r\n:9\r\n*3\r\n$1\r\n?\r\n:7\r\n$2\r\nid\r\n").unwrap();
        assert_eq!(alone.0[0].at, at("asked", 7));
    }

    #[test]
    fn slots_belong_to_the_masters_that_a_node_names() {
        let mut map = SlotMap::default();
        assert_eq!(map.owner(0), None);
        assert!(map.learn(&layout(REPLY).unwrap()));
        assert!(!map.learn(&layout(REPLY).unwrap()));
        for (slot, owner) in [
            (0, at("asked", 7001)),
            (5_459, at("asked", 7001)),
            (5_460, at("asked", 7003)),
            (5_461, at("127.0.0.1", 7002)),
            (16_383, at("127.0.0.1", 7002)),
        ] {
            assert_eq!(map.owner(slot), Some(&owner), "{slot}");
        }
        assert_eq!(map.owner(16_384), None);
        map.moved(7, &at("new", 1));
        assert_eq!((map.owner(7), map.owner(8)), (Some(&at("new", 1)), Some(&at("asked", 7001))));
        assert!(map.learn(&layout(REPLY).unwrap()), "the slot is back");
    }

    #[test]
    fn replies_that_name_no_slot_are_no_layout() {
        for reply in ["*0\r\n", "$2\r\nOK\r\n", ":1\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n*3\r\n:9\r\n:3\r\n*0\r\n"] {
            assert_eq!(layout(reply), None, "{reply:?}");
        }
    }

    #[test]
    fn most_nodes_are_right() {
        let (old, new) = (layout(REPLY).unwrap(), layout(&REPLY.replace("7001", "7009")).unwrap());
        let mut poll = Poll::of(4);
        poll.add(Some(old.clone()));
        poll.add(Some(new.clone()));
        poll.add(Some(new.clone()));
        assert!(!poll.is_decided());
        poll.add(None);
        assert!(poll.is_decided());
        assert_eq!(poll.most(), Some(new.clone()));
        // More than half need not wait for the others, one of which may be silent.
        let mut poll = Poll::of(3);
        poll.add(Some(new.clone()));
        poll.add(Some(new.clone()));
        assert!(poll.is_decided());
        assert!(Poll::of(0).is_decided() && Poll::of(0).most().is_none());
        let mut poll = Poll::of(1);
        poll.add(None);
        assert!(poll.is_decided() && poll.most().is_none());
    }
}
