//! The hash tags of a cluster's keys.
//!
//! Only checks of one slot can share a call, and a cluster has 16 384 slots. So subjects are divided into a few groups,
//! and all subjects of a group share a tag and thereby a slot.
//!
//! Slots are divided into neighbouring ranges of equal size, one for each group. A subject belongs to the group whose
//! range contains its own slot, and the slot of the group's tag is in that range too. So the groups are spread evenly
//! over the slots, and a subject is on the node that would have it without groups, unless a boundary between two nodes
//! is within the range.

use std::ops::RangeInclusive;

use super::super::net::slot::{SLOT_COUNT, slot_of};
use crate::error::ConfigError;

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
    use super::*;
    use crate::key::Key;

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
