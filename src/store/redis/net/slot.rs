//! Hash slots of a cluster.

/// The slot of all keys on a server that is not part of a cluster.
pub(crate) const NO_SLOT: u16 = 0;

/// The number of slots of a cluster.
pub(crate) const SLOT_COUNT: u16 = 16_384;

/// The slot of the Redis keys with this hash tag.
pub(crate) fn slot_of(tag: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag) % SLOT_COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        let slot = |key: &str| slot_of(key.as_bytes());
        // The replies of `CLUSTER KEYSLOT`.
        assert_eq!((slot("123456789"), slot("foo"), slot("bar")), (0x31c3, 12_182, 5_061));
    }
}
