//! The world of this thread, as the crate sees it.

use std::cell::Cell;
#[cfg(feature = "redis")]
use std::{future::Future, io, pin::Pin};

#[cfg(feature = "redis")]
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream in place of a TCP connection.
#[cfg(feature = "redis")]
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

#[cfg(feature = "redis")]
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A dial in progress.
#[cfg(feature = "redis")]
pub type Dialled = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Dials a host and a port.
#[cfg(feature = "redis")]
pub type Dial = fn(&str, u16) -> Dialled;

thread_local! {
    static NOW_US: Cell<Option<u64>> = const { Cell::new(None) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    #[cfg(feature = "redis")]
    static DIAL: Cell<Option<Dial>> = const { Cell::new(None) };
}

pub(super) fn set_time_us(now_us: Option<u64>) {
    NOW_US.set(now_us);
}

pub(super) fn set_seed(seed: u64) {
    RANDOM.set(seed);
}

#[cfg(feature = "redis")]
pub(super) fn set_dial(dial: Option<Dial>) {
    DIAL.set(dial);
}

/// The time of this thread's world, in microseconds since the Unix epoch.
pub(crate) fn now_us() -> Option<u64> {
    NOW_US.get()
}

/// The next random number of this thread's world.
pub(super) fn random() -> Option<u64> {
    now_us()?;
    // SplitMix64.
    let state = RANDOM.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    RANDOM.set(state);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some(mixed ^ (mixed >> 31))
}

/// A dial in this thread's world.
#[cfg(feature = "redis")]
pub(crate) fn dial(host: &str, port: u16) -> Option<Dialled> {
    DIAL.get().map(|dial| dial(host, port))
}
