//! Which drivers the current tokio runtime has.
//!
//! A runtime that was built without `enable_all()` may lack timers or I/O. tokio offers no query and panics where one is
//! used. So each is tried out before it is needed, and what is missing is remembered: one panic is caught for each
//! runtime and driver, and none is met in the path of a request.

use std::{
    cell::Cell,
    collections::HashSet,
    panic::catch_unwind,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::runtime::{self, Handle};

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

/// What has been found missing.
fn missing() -> MutexGuard<'static, HashSet<(runtime::Id, Driver)>> {
    static MISSING: LazyLock<Mutex<HashSet<(runtime::Id, Driver)>>> = LazyLock::new(Mutex::default);
    // No invariant spans a panic.
    MISSING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Whether the current runtime has this driver. `false` without a runtime.
    pub(crate) fn is_there(self) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        let this = (runtime.id(), self);
        // Only a panic hook asks for what is being tried out: it is missing, and another panic would end the process.
        if TRIED.get() == Some(self) || missing().contains(&this) {
            return false;
        }
        // Without a lock: a panic hook is the user's code and may check a limit, on this thread or on another.
        let outer = TRIED.replace(Some(self));
        let is_there = catch_unwind(|| self.try_out()).is_ok();
        TRIED.set(outer);
        if !is_there {
            missing().insert(this);
        }
        is_there
    }

    /// Panics if it is missing.
    fn try_out(self) {
        match self {
            #[cfg(feature = "redis")]
            Self::Io => {
                // A machine without a free port says nothing about the runtime.
                let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0));
                if let Some(socket) = socket.ok().filter(|socket| socket.set_nonblocking(true).is_ok()) {
                    drop(tokio::net::UdpSocket::from_std(socket));
                }
            }
            Self::Timers => drop(tokio::time::sleep(Duration::ZERO)),
        }
    }
}
