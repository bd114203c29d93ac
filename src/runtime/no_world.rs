//! Without feature `test-util` there are no simulated worlds: see `world`.

pub(crate) use std::hash::RandomState;

pub(crate) use foldhash::fast::RandomState as FastState;

#[inline]
pub(crate) const fn now_us() -> Option<u64> {
    None
}
