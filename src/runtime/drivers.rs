//! The drivers of the current tokio runtime.
//!
//! A runtime that was built without `enable_all()` may lack timers or I/O. tokio has no query for this and panics when
//! a missing driver is used. Each driver is therefore tried out before it is needed, and a missing one is remembered:
//! one panic is caught for each runtime and driver, outside the path of a request.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::{cell::Cell, collections::HashSet, panic::catch_unwind, time::Duration};

use tokio::runtime::{self, Handle};

#[cfg(feature = "redis")]
use super::real_time::world_us;

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Driver {
    #[cfg(feature = "redis")]
    Io,
    Timers,
}

thread_local! {
    /// The driver that this thread is trying out.
    static TRIED: Cell<Option<Driver>> = const { Cell::new(None) };
}

/// The drivers that were found missing, by runtime.
fn missing() -> MutexGuard<'static, HashSet<(runtime::Id, Driver)>> {
    static MISSING: LazyLock<Mutex<HashSet<(runtime::Id, Driver)>>> = LazyLock::new(Mutex::default);
    // A panic under the lock leaves the set valid, so a poisoned lock is usable.
    MISSING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Whether the current runtime has this driver. `false` without a runtime.
    pub(crate) fn is_there(self) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let this = (runtime.id(), self);
        // While this thread tries the driver out, only a panic hook can call this function: the driver is missing, and
        // a second panic would abort the process.
        if TRIED.get() == Some(self) || missing().contains(&this) {
            return false;
        }
        // The lock is not held here, because a panic hook of the application may check a limit, on this thread or on
        // another one.
        let outer = TRIED.replace(Some(self));
        let is_there = catch_unwind(|| self.try_out()).is_ok();
        TRIED.set(outer);
        if !is_there {
            missing().insert(this);
        }
        is_there
    }

    /// Panics if the driver is missing.
    fn try_out(self) {
        match self {
            // The connections of a simulated world are no sockets.
            #[cfg(feature = "redis")]
            Self::Io if world_us().is_some() => {}
            #[cfg(feature = "redis")]
            Self::Io => {
                // Without a free port the driver counts as present, because nothing shows that it is missing.
                let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
                if let Some(socket) = socket.ok().filter(|socket| socket.set_nonblocking(true).is_ok()) {
                    drop(tokio::net::UdpSocket::from_std(socket));
                }
            }
            Self::Timers => drop(tokio::time::sleep(Duration::ZERO)),
        }
    }
}
