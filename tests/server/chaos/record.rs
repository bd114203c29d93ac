//! A worker's record of one request, encoded as bytes on a socket.

use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Allowed by the store.
    Allowed,
    /// Denied by the store.
    Denied,
    /// Denied by the deny cache.
    Cached,
    /// No verdict; the failure policy decided. A denial by the local fallback counts here too.
    Passed,
    /// No verdict; refused with 503 by the failure policy.
    Refused,
    /// No verdict; refused with 503 because the process sends more than Redis answers in time.
    Overloaded,
    /// Not a request: the overrun of a plain sleep, during which the process did not run.
    Oversleep,
    /// Not a request: memory and task count of the process.
    Usage,
    /// Not counted as a request: a call of the service without the limiter.
    Unlimited,
}

use Kind::{Allowed, Cached, Denied, Overloaded, Oversleep, Passed, Refused, Unlimited, Usage};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) key: u8,
    pub(crate) cost: u16,
    /// The wait of the request, or the overrun of the sleep.
    pub(crate) wait_us: u32,
    /// End time by the machine's clock, which Redis shares.
    pub(crate) end_us: u64,
    /// The store's time of the decision; resident bytes of [`Usage`].
    pub(crate) time_us: u64,
    /// Retry-After of a denial in µs; 1 for a request without a verdict while the breaker was open; tasks of
    /// [`Usage`].
    pub(crate) extra: u64,
}

impl Record {
    pub(crate) const SIZE: usize = 32;

    pub(crate) fn start_us(&self) -> u64 {
        self.end_us - u64::from(self.wait_us)
    }

    pub(crate) fn is_request(&self) -> bool {
        !matches!(self.kind, Oversleep | Unlimited | Usage)
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::SIZE] {
        let Self { kind, key, cost, wait_us, end_us, time_us, extra } = self;
        let mut bytes = [0; Self::SIZE];
        bytes[0] = kind as u8;
        bytes[1] = key;
        bytes[2..4].copy_from_slice(&cost.to_le_bytes());
        bytes[4..8].copy_from_slice(&wait_us.to_le_bytes());
        for (target, number) in bytes[8..].chunks_exact_mut(8).zip([end_us, time_us, extra]) {
            target.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let kinds = [Allowed, Denied, Cached, Passed, Refused, Overloaded, Oversleep, Usage, Unlimited];
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        Self {
            kind: kinds[usize::from(bytes[0])],
            key: bytes[1],
            cost: u16::from_le_bytes([bytes[2], bytes[3]]),
            wait_us: u32::from_le_bytes(bytes[4..8].try_into().unwrap()),
            end_us: number(8),
            time_us: number(16),
            extra: number(24),
        }
    }
}

pub(crate) fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}
