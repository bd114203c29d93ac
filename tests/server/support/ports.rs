//! Free ports for servers that a test starts.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Below the ports that systems give to outgoing connections (from 32 768 on Linux): otherwise a connection of another
/// test may take a port before its server listens there. The buses of cluster nodes are 10 000 above.
const PORTS: Range<u16> = 10_000..20_000;
const PER_PROCESS: u16 = 500;

/// The ports of this process. No two test processes have the same ones.
struct Ports {
    range: Range<u16>,
    next: u16,
    /// Says to other processes that the range is taken, for as long as this process lives.
    _mark: UdpSocket,
}

impl Ports {
    fn of_this_process() -> Option<Self> {
        PORTS.step_by(PER_PROCESS.into()).find_map(|first| {
            let mark = UdpSocket::bind(("127.0.0.1", first)).ok()?;
            Some(Self { range: first..first + PER_PROCESS, next: first, _mark: mark })
        })
    }

    /// The next free port. A port comes again only after all others of the process, because a
    /// server may be started again on its own port.
    fn next_free(&mut self) -> Option<u16> {
        (0..PER_PROCESS).find_map(|_| {
            let port = self.next;
            self.next = if port + 1 < self.range.end { port + 1 } else { self.range.start };
            is_free(port).then_some(port)
        })
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A free port. Another one than the last 499, unless twenty other test processes run.
pub fn free_port() -> u16 {
    static PORTS: LazyLock<Mutex<Option<Ports>>> = LazyLock::new(|| Mutex::new(Ports::of_this_process()));
    let mut ports = PORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let any = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    ports.as_mut().and_then(Ports::next_free).unwrap_or_else(any)
}

/// A free port of a cluster node whose bus port is free too.
pub fn free_node_port() -> u16 {
    let is_bus_free = |port: &u16| port.checked_add(10_000).is_some_and(is_free);
    std::iter::repeat_with(free_port).find(is_bus_free).unwrap()
}
