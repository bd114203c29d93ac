//! The slots of a cluster and their masters.

use std::sync::Arc;

use redis::Value;

use super::super::slot::SLOT_COUNT;

/// The slot ranges and their masters as one node reports them. Sorted, so that the reports of two nodes can be
/// compared.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Layout(Vec<Range>);

/// Neighbouring slots of one master, from `first` to `last`.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Range {
    first: u16,
    last: u16,
    master: NodeAddress,
}

/// Host and port of a node.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct NodeAddress {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl NodeAddress {
    /// The address of a node that the node at `asked` names. A node without a configured host leaves the host out or
    /// reports "?".
    pub(crate) fn named(host: &str, port: u16, asked: &str) -> Self {
        let host = if matches!(host, "" | "?") { asked } else { host };
        Self { host: host.into(), port }
    }
}

impl Layout {
    /// Reads the reply to CLUSTER SLOTS of the node at `host`. `None` if the reply names no slot.
    pub(crate) fn read(reply: &Value, host: &str) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut ranges: Vec<_> = ranges.iter().filter_map(|range| Range::read(range, host)).collect();
        ranges.sort();
        (!ranges.is_empty()).then_some(Self(ranges))
    }
}

impl Range {
    /// Reads the first slot, the last slot and the master. Replicas may follow.
    fn read(range: &Value, asked: &str) -> Option<Self> {
        let Value::Array(range) = range else { return None };
        let [first, last, Value::Array(master), ..] = &range[..] else { return None };
        let [host, port, ..] = &master[..] else { return None };
        // A node without a preferred host name may report its IP address in the metadata.
        let named = text(host).filter(|host| *host != "?").or_else(|| ip_address(master.get(3)?));
        let (first, last, master_address) =
            (integer(first)?, integer(last)?, NodeAddress::named(named.unwrap_or(""), integer(port)?, asked));
        (first <= last && last < SLOT_COUNT).then_some(Self { first, last, master: master_address })
    }
}

/// The IP address in the metadata of a node: pairs with RESP2, a map with RESP3.
fn ip_address(metadata: &Value) -> Option<&str> {
    match metadata {
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

/// The reports of several nodes. They differ while a node is partitioned or has not received a change.
#[derive(Debug)]
pub(crate) struct Majority {
    asked: usize,
    /// Each layout with the number of nodes that reported it.
    answers: Vec<(Layout, usize)>,
    missing: usize,
}

impl Majority {
    /// Creates a vote among `asked` nodes.
    pub(crate) fn of(asked: usize) -> Self {
        Self { asked, answers: Vec::new(), missing: asked }
    }

    /// Adds the answer of one node. A node that has no answer has no vote.
    pub(crate) fn add(&mut self, answer: Option<Layout>) {
        self.missing = self.missing.saturating_sub(1);
        let Some(answer) = answer else { return };
        match self.answers.iter_mut().find(|(layout, _)| *layout == answer) {
            Some((_, count)) => *count += 1,
            None => self.answers.push((answer, 1)),
        }
    }

    /// Whether further answers cannot change the majority.
    pub(crate) fn is_decided(&self) -> bool {
        self.missing == 0 || self.answers.iter().any(|(_, count)| count * 2 > self.asked)
    }

    /// The layout that most nodes reported.
    pub(crate) fn most(self) -> Option<Layout> {
        self.answers.into_iter().max_by_key(|(_, count)| *count).map(|(layout, _)| layout)
    }
}

/// The master of each slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotMap {
    masters: Vec<NodeAddress>,
    /// For each slot the index of its master in `masters`. Empty before the first layout.
    owners: Vec<Option<u16>>,
}

impl SlotMap {
    pub(crate) fn owner(&self, slot: u16) -> Option<&NodeAddress> {
        let index = (*self.owners.get(usize::from(slot))?)?;
        self.masters.get(usize::from(index))
    }

    pub(crate) fn masters(&self) -> &[NodeAddress] {
        &self.masters
    }

    /// Replaces the map with a layout. Returns whether the layout changes an owner.
    pub(crate) fn replace(&mut self, layout: &Layout) -> bool {
        let mut next = Self::default();
        for Range { first, last, master } in &layout.0 {
            (*first..=*last).for_each(|slot| next.set_owner(slot, master));
        }
        let changed = (0..SLOT_COUNT).any(|slot| self.owner(slot) != next.owner(slot));
        *self = next;
        changed
    }

    /// Sets the owner of one slot.
    pub(crate) fn set_owner(&mut self, slot: u16, master: &NodeAddress) {
        if slot >= SLOT_COUNT || self.owner(slot) == Some(master) {
            return;
        }
        let index = self.masters.iter().position(|known| known == master).unwrap_or_else(|| {
            self.masters.push(master.clone());
            self.masters.len() - 1
        });
        self.owners.resize(usize::from(SLOT_COUNT), None);
        self.owners[usize::from(slot)] = u16::try_from(index).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> NodeAddress {
        NodeAddress { host: host.into(), port }
    }

    fn layout(reply: &str) -> Option<Layout> {
        Layout::read(&redis::parse_redis_value(reply.as_bytes()).unwrap(), "asked")
    }

    /// A reply with host names, with the metadata of newer servers, and with a node without a configured host.
    const REPLY: &str = "*3\r\n\
        *4\r\n:5461\r\n:16383\r\n*4\r\n$9\r\n127.0.0.1\r\n:7002\r\n$2\r\nid\r\n*0\r\n\
        *3\r\n$9\r\n127.0.0.1\r\n:7005\r\n$2\r\nid\r\n\
        *3\r\n:0\r\n:5459\r\n*2\r\n$0\r\n\r\n:7001\r\n\
        *3\r\n:5460\r\n:5460\r\n*2\r\n$-1\r\n:7003\r\n";

    #[test]
    fn a_node_without_a_host_name_is_reached_by_its_ip_address() {
        let beside = ["*2\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n", "%1\r\n$2\r\nip\r\n$9\r\n127.0.0.3\r\n"];
        for (host, at) in [("?", at("127.0.0.3", 7)), ("n", at("n", 7))] {
            // Proxies in front of a cluster may send simple strings.
            let texts = [format!("$1\r\n{host}\r\n"), format!("+{host}\r\n")];
            for (text, beside) in texts.iter().flat_map(|text| beside.map(|beside| (text, beside))) {
                let entry = format!("*4\r\n{text}:7\r\n$2\r\nid\r\n{beside}");
                let layout = layout(&format!("*1\r\n*3\r\n:0\r\n:9\r\n{entry}")).unwrap();
                assert_eq!(layout.0[0].master, at, "{text:?} {beside:?}");
            }
        }
        let alone = layout("*1\r\n*3\r\n:0\r\n:9\r\n*3\r\n$1\r\n?\r\n:7\r\n$2\r\nid\r\n").unwrap();
        assert_eq!(alone.0[0].master, at("asked", 7));
    }

    #[test]
    fn slots_belong_to_the_masters_in_the_reply() {
        let mut map = SlotMap::default();
        assert_eq!(map.owner(0), None);
        assert!(map.replace(&layout(REPLY).unwrap()));
        assert!(!map.replace(&layout(REPLY).unwrap()));
        for (slot, owner) in [
            (0, at("asked", 7001)),
            (5_459, at("asked", 7001)),
            (5_460, at("asked", 7003)),
            (5_461, at("127.0.0.1", 7002)),
            (16_383, at("127.0.0.1", 7002)),
        ] {
            assert_eq!(map.owner(slot), Some(&owner), "{slot}");
        }
        // A server may redirect to a slot that does not exist.
        map.set_owner(16_384, &at("new", 1));
        assert_eq!(map.owner(16_384), None);
        map.set_owner(7, &at("new", 1));
        assert_eq!((map.owner(7), map.owner(8)), (Some(&at("new", 1)), Some(&at("asked", 7001))));
        assert!(map.replace(&layout(REPLY).unwrap()), "the slot is back");
    }

    #[test]
    fn replies_that_name_no_slot_are_no_layout() {
        for reply in ["*0\r\n", "$2\r\nOK\r\n", ":1\r\n", "*1\r\n*1\r\n:1\r\n", "*1\r\n*3\r\n:9\r\n:3\r\n*0\r\n"] {
            assert_eq!(layout(reply), None, "{reply:?}");
        }
    }

    #[test]
    fn the_layout_of_most_nodes_wins() {
        let (old, new) = (layout(REPLY).unwrap(), layout(&REPLY.replace("7001", "7009")).unwrap());
        let mut majority = Majority::of(4);
        majority.add(Some(old.clone()));
        majority.add(Some(new.clone()));
        majority.add(Some(new.clone()));
        assert!(!majority.is_decided());
        majority.add(None);
        assert!(majority.is_decided());
        assert_eq!(majority.most(), Some(new.clone()));
        // More than half of the nodes decide, even if another one is silent.
        let mut majority = Majority::of(3);
        majority.add(Some(new.clone()));
        majority.add(Some(new.clone()));
        assert!(majority.is_decided());
        assert!(Majority::of(0).is_decided() && Majority::of(0).most().is_none());
        let mut majority = Majority::of(1);
        majority.add(None);
        assert!(majority.is_decided() && majority.most().is_none());
    }
}
