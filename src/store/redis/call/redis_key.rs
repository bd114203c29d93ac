//! The Redis key of a count: `{prefix}{{subject}}:{policy}:{form}`, on a cluster `{prefix}{{tag}}{{subject}}:…`, and
//! the hash tags of a cluster's keys.
//!
//! Only checks of one slot can share a call, and a cluster has 16 384 slots. So subjects are divided into a few groups,
//! and all subjects of a group share a tag and thereby a slot.
//!
//! Slots are divided into neighbouring ranges of equal size, one for each group. A subject belongs to the group whose
//! range contains its own slot, and the slot of the group's tag is in that range too. So the groups are spread evenly
//! over the slots, and a subject is on the node that would have it without groups, unless a boundary between two nodes
//! is within the range.

use std::ops::RangeInclusive;

use super::outgoing::Receipt;
use crate::policy::{Algorithm, Policy};
use crate::store::redis::net::slot::{NO_SLOT, SLOT_COUNT, slot_of};
use crate::{error::ConfigError, key::Key};

/// The Redis keys of a store.
#[derive(Debug)]
pub(crate) struct RedisKeys {
    prefix: Box<str>,
    slots: Slots,
}

/// How the slot of a count follows from its subject.
#[derive(Debug)]
pub(crate) enum Slots {
    /// There are no slots, because there is one server.
    OneServer,
    /// The subject is the hash tag.
    BySubject,
    /// The subjects of a group share a hash tag.
    ByGroup(HashTags),
}

impl RedisKeys {
    pub(crate) fn new(prefix: &str, slots: Slots) -> Self {
        Self { prefix: prefix.into(), slots }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The slot of all counts of a subject.
    pub(crate) fn slot_of(&self, key: &Key) -> u16 {
        match &self.slots {
            Slots::OneServer => NO_SLOT,
            Slots::BySubject => slot_of(key.encoded()),
            Slots::ByGroup(tags) => tags.of(key.encoded()).slot,
        }
    }

    /// The number of slots that subjects can be in.
    pub(crate) fn slot_count(&self) -> usize {
        match &self.slots {
            Slots::OneServer => 1,
            Slots::BySubject => usize::from(SLOT_COUNT),
            Slots::ByGroup(tags) => tags.len(),
        }
    }

    /// Appends the Redis key of a subject's count under a policy.
    ///
    /// The first text in braces is the hash tag, so all policies of a subject share a slot of a cluster. The prefix,
    /// the encoded subject ([`Key::encoded`]) and a policy's name contain no braces, so no input can choose the tag,
    /// and no two subjects or policies share a key. The form describes the value: algorithm and format version, window
    /// or calendar, and resolution. Values of another form are never read or written.
    pub(crate) fn encode(&self, encoded: &mut Vec<u8>, key: &Key, policy: &Policy) {
        self.encode_with(encoded, key, policy, b"");
    }

    /// Appends the Redis key of the open holds beside a subject's count. No count has it, because no name of a policy
    /// has parentheses, and what is added to the name of a count of denials or of a shard differs.
    pub(crate) fn encode_holds(&self, encoded: &mut Vec<u8>, key: &Key, policy: &Policy) {
        self.encode_with(encoded, key, policy, b"(holds)");
    }

    /// Appends the Redis key of the length of the last ban. `denials` is the policy that counts denials, whose name no
    /// user can choose.
    pub(crate) fn encode_last_ban(&self, encoded: &mut Vec<u8>, key: &Key, denials: &Policy) {
        self.encode_with(encoded, key, denials, b"+");
    }

    /// Appends the Redis key of a receipt in the slot of a subject. No count has it, because the keys of counts have a
    /// colon or a brace behind the first brace that closes.
    pub(crate) fn encode_receipt(&self, encoded: &mut Vec<u8>, key: &Key, receipt: Receipt) {
        encoded.extend_from_slice(self.prefix.as_bytes());
        encoded.push(b'{');
        match &self.slots {
            Slots::ByGroup(tags) => encoded.extend_from_slice(tags.of(key.encoded()).text.as_bytes()),
            _ => encoded.extend_from_slice(key.encoded()),
        }
        encoded.extend_from_slice(b"}(receipt)");
        encoded.extend_from_slice(itoa::Buffer::new().format(receipt.check).as_bytes());
        encoded.push(b':');
        encoded.extend_from_slice(itoa::Buffer::new().format(receipt.part).as_bytes());
    }

    /// Appends a Redis key with `part` behind the policy's name.
    #[inline]
    fn encode_with(&self, encoded: &mut Vec<u8>, key: &Key, policy: &Policy, part: &[u8]) {
        let (algorithm, window, resolution) = policy.form();
        let form: &[u8] = match algorithm {
            Algorithm::FixedWindow => b":f2:",
            Algorithm::SlidingWindowCounter => b":c2:",
            Algorithm::SlidingWindowLog => b":l5:",
            Algorithm::TokenBucket => b":b3:",
        };
        encoded.extend_from_slice(self.prefix.as_bytes());
        if let Slots::ByGroup(tags) = &self.slots {
            encoded.push(b'{');
            encoded.extend_from_slice(tags.of(key.encoded()).text.as_bytes());
            encoded.push(b'}');
        }
        encoded.push(b'{');
        encoded.extend_from_slice(key.encoded());
        encoded.extend_from_slice(b"}:");
        encoded.extend_from_slice(policy.name().as_bytes());
        encoded.extend_from_slice(part);
        if let Some(calendar) = policy.calendar_windows() {
            encoded.extend_from_slice(b":w1:");
            encoded.extend_from_slice(calendar.text().as_bytes());
            return;
        }
        encoded.extend_from_slice(form);
        push_time(encoded, window);
        if resolution > 1 {
            encoded.push(b'/');
            push_time(encoded, resolution);
        }
    }

    /// The Redis key of the count of `key` as text. `key` is hashed already if it has to be.
    pub(crate) fn text(&self, key: &Key, policy: &Policy) -> String {
        let mut encoded = Vec::new();
        self.encode(&mut encoded, key, policy);
        to_text(encoded)
    }

    /// The Redis key of the length of the last ban of `key` as text.
    pub(crate) fn last_ban_text(&self, key: &Key, denials: &Policy) -> String {
        let mut encoded = Vec::new();
        self.encode_last_ban(&mut encoded, key, denials);
        to_text(encoded)
    }

    /// The Redis key of the open holds of `key` as text.
    pub(crate) fn holds_text(&self, key: &Key, policy: &Policy) -> String {
        let mut encoded = Vec::new();
        self.encode_holds(&mut encoded, key, policy);
        to_text(encoded)
    }
}

/// A Redis key as text.
fn to_text(encoded: Vec<u8>) -> String {
    String::from_utf8(encoded).expect("the prefix is text, and all else is ASCII")
}

/// Appends a time in the longest unit that divides it, because Redis handles short keys faster.
fn push_time(encoded: &mut Vec<u8>, micros: u64) {
    const UNITS: [(u64, &str); 5] =
        [(86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let (length, unit) = UNITS.into_iter().find(|(length, _)| micros.is_multiple_of(*length)).unwrap_or((1, "us"));
    encoded.extend_from_slice(itoa::Buffer::new().format(micros / length).as_bytes());
    encoded.extend_from_slice(unit.as_bytes());
}

/// The number of groups that a store may have.
const COUNTS: RangeInclusive<u16> = 1..=1024;

/// The tags of all groups, in the order of their slots.
#[derive(Debug)]
pub(crate) struct HashTags(Box<[HashTag]>);

/// The tag of a group.
#[derive(Clone, Debug)]
pub(crate) struct HashTag {
    /// `{count}:{k}`, with the smallest `k` for which the slot is in the range of the group. The number of groups is a
    /// part of all tags, so instances with different numbers never use one key.
    pub(crate) text: Box<str>,
    pub(crate) slot: u16,
}

impl HashTags {
    /// The default number of groups: 16 for each of three masters, 12 for each of four, 8 for each of six.
    pub(crate) const DEFAULT_COUNT: u16 = 48;

    /// The tags of `count` groups.
    pub(crate) fn new(count: u16) -> Result<Self, ConfigError> {
        if !COUNTS.contains(&count) {
            return Err(ConfigError::new(format!(
                "{count} hash tags are out of range; use 1 to 1024, about 16 to 32 for each master"
            )));
        }
        let mut tags = vec![None; usize::from(count)];
        let mut missing = count;
        // A test shows that this ends for every number of groups.
        for k in 0_u32.. {
            let text = format!("{count}:{k}");
            let slot = slot_of(text.as_bytes());
            let tag = &mut tags[group_of(slot, count)];
            if tag.is_none() {
                *tag = Some(HashTag { text: text.into(), slot });
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        Ok(Self(tags.into_iter().flatten().collect()))
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The tag of a subject's group.
    pub(crate) fn of(&self, subject: &[u8]) -> &HashTag {
        let count = u16::try_from(self.0.len()).unwrap_or(SLOT_COUNT);
        &self.0[group_of(slot_of(subject), count)]
    }
}

/// The group in whose range `slot` is.
fn group_of(slot: u16, count: u16) -> usize {
    usize::from(slot) * usize::from(count) / usize::from(SLOT_COUNT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{key::Key, policy::Calendar};

    #[test]
    fn no_subject_chooses_the_tag() {
        let log = Policy::per_second("p", 1).unwrap();
        let coarse = log.clone().with_resolution(Duration::from_millis(10));
        let fixed = log.clone().with_algorithm(Algorithm::FixedWindow);
        let keys = RedisKeys::new("t:", Slots::OneServer);
        let encode = |key: &str, policy: &Policy| keys.text(&Key::from(key), policy);
        assert_eq!(encode("a", &log), "t:{a}:p:l5:1s");
        assert_eq!(encode("a", &coarse), "t:{a}:p:l5:1s/10ms");
        assert_eq!(encode("a", &fixed), "t:{a}:p:f2:1s");
        assert_eq!(encode("}{x}", &log), "t:{%7D%7Bx%7D}:p:l5:1s");
        let calendar = Calendar::monthly().on_day(15).at(9, 0).zone("+05:30");
        let calendar = Policy::calendar("p", 1, calendar).unwrap();
        assert_eq!(encode("a", &calendar), "t:{a}:p:w1:month-15T0900@+0530");
    }

    /// The hash tag of a Redis key, by the specification of the cluster.
    fn tag_of(key: &str) -> &str {
        let (_, tag) = key.split_once('{').unwrap();
        tag.split_once('}').unwrap().0
    }

    #[test]
    fn no_two_counts_on_a_cluster_share_a_key_and_no_input_chooses_the_tag() {
        let texts = ["a", "b", "a:b", "b:a", "b:c", "48:3", "{48:3}", "}{a}", "48:3}{a", "a}:b", "", "*", "|", "(a|)"];
        let subjects = texts.into_iter().flat_map(|text| {
            let key = Key::from(text);
            [Key::join([key.clone()]), Key::join([key.clone(), key.clone()]), Key::hashed(text), key]
        });
        let subjects: Vec<Key> = subjects.collect();
        let policies = ["a", "b", "a:b", "b:c", "b:p", "p", "p:l5:1s", "*|"].map(|name| Policy::per_second(name, 1));
        let mut seen = std::collections::HashSet::new();
        let by_group = |count| Slots::ByGroup(HashTags::new(count).unwrap());
        for slots in [Slots::BySubject, by_group(48), by_group(96), by_group(1)] {
            let keys = RedisKeys::new("t:", slots);
            for key in &subjects {
                for policy in &policies {
                    let text = keys.text(key, policy.as_ref().unwrap());
                    assert_eq!(slot_of(tag_of(&text).as_bytes()), keys.slot_of(key), "{text}");
                    if let Slots::ByGroup(tags) = &keys.slots {
                        assert_eq!(tag_of(&text), &*tags.of(key.encoded()).text, "{text}");
                    }
                    assert!(seen.insert(text.clone()), "{text} is the key of two counts");
                }
            }
        }
        assert_eq!(seen.len(), 4 * subjects.len() * policies.len());
    }

    #[test]
    fn times_are_in_the_longest_unit_that_divides_them() {
        for (micros, text) in [
            (1, "1us"),
            (1_001, "1001us"),
            (1_000, "1ms"),
            (90_000_000, "90s"),
            (60_000_000, "1m"),
            (3_600_000_000, "1h"),
            (5_400_000_000, "90m"),
            (366 * 86_400_000_000, "366d"),
        ] {
            let mut encoded = Vec::new();
            push_time(&mut encoded, micros);
            assert_eq!(encoded, text.as_bytes());
        }
    }

    #[test]
    fn every_group_of_every_number_of_groups_has_a_tag_in_its_own_range() {
        for count in COUNTS {
            let tags = HashTags::new(count).unwrap().0;
            assert_eq!(tags.len(), usize::from(count));
            for (group, HashTag { text, slot }) in tags.iter().enumerate() {
                assert_eq!((slot_of(text.as_bytes()), group_of(*slot, count)), (*slot, group), "{text}");
            }
        }
        for count in [0, 1025, u16::MAX] {
            let error = HashTags::new(count).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{count} hash tags are out of range; use 1 to 1024, ")), "{error}");
        }
    }

    #[test]
    fn the_tag_of_a_group_has_the_smallest_number() {
        let tags = HashTags::new(48).unwrap();
        // By `CLUSTER KEYSLOT`, "foo" is in slot 12182 and "48:14" in 11989. Group 35 has the slots 11947 to 12287, and
        // no smaller number is in them.
        let tag = tags.of(b"foo");
        assert_eq!((&*tag.text, tag.slot), ("48:14", 11_989));
        assert!((0..14).all(|k| !(11_947..=12_287).contains(&slot_of(format!("48:{k}").as_bytes()))));
    }

    /// The checks of each of `masters` that share the slots evenly, as for `redis-cli --cluster create`.
    fn loads(tags: &HashTags, masters: u16) -> Vec<usize> {
        let mut loads = vec![0; usize::from(masters)];
        for subject in 0..10_000_u32 {
            loads[group_of(tags.of(Key::hashed(subject.to_string()).encoded()).slot, masters)] += 1;
        }
        loads
    }

    #[test]
    fn the_load_of_the_masters_is_even() {
        let tags = HashTags::new(HashTags::DEFAULT_COUNT).unwrap();
        for masters in [1, 2, 3, 4, 6] {
            let loads = loads(&tags, masters);
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(most * 10 <= least * 11, "{loads:?}");
        }
    }
}
