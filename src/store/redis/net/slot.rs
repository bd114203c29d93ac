//! Hash slots of a cluster.

/// The slot of all keys on a server that is not part of a cluster.
pub(crate) const NO_SLOT: u16 = 0;

/// The number of slots of a cluster.
pub(crate) const SLOT_COUNT: u16 = 16_384;

/// The slot of the Redis keys with this hash tag.
pub(crate) fn slot_of(tag: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| crc << 8 ^ REMAINDERS[usize::from(crc >> 8) ^ usize::from(*byte)];
    tag.iter().fold(0, step) % SLOT_COUNT
}

/// CRC-16/XMODEM of each byte: the remainder of its division by x^16 + x^12 + x^5 + 1.
const REMAINDERS: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

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
