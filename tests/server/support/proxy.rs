//! A TCP proxy that injects network faults, switchable at run time.

use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::{future::Future, io, net::TcpListener as Bound, sync::Arc, thread, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// How the proxy treats all connections, existing and new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Forward without a fault.
    Pass,
    /// Drop all data silently. Connections of this period stay half open, even after the fault ends.
    BlackHole,
    /// Close the direction to the client (FIN); the client may continue to send.
    HalfClose,
    /// Delay data by this time in both directions. Data in flight stays delayed when the fault ends.
    Latency(Duration),
    /// Hold all data back until the fault ends, then forward it.
    Mute,
    /// Stop listening, so that connections are refused.
    Refuse,
    /// Abort connections with a RST.
    Reset,
    /// Forward at most this many bytes per second in each direction.
    Throttle(u32),
}

/// Forwards connections until the test's process ends.
#[derive(Clone)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: AtomicU16,
    accepted: AtomicU32,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy)]
struct State {
    fault: Fault,
    /// Connections with numbers up to this one forward nothing.
    silenced: u32,
}

impl Proxy {
    pub fn to(target: u16) -> Self {
        let listener = Bound::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = watch::Sender::new(State { fault: Fault::Pass, silenced: 0 });
        let shared = Arc::new(Shared { target: target.into(), accepted: 0.into(), state });
        let this = Self { port, shared: Arc::clone(&shared) };
        // The proxy has a thread and a runtime of its own, so blocking and async tests can both use it.
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(listen(listener, shared)).unwrap();
        });
        this
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections accepted so far.
    pub fn accepted(&self) -> u32 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Applies a fault until the next call.
    pub fn set(&self, fault: Fault) {
        self.shared.state.send_modify(|state| state.fault = fault);
    }

    /// Makes all existing connections half open: they forward nothing and are not closed.
    pub fn silence(&self) {
        self.shared.state.send_modify(|state| state.silenced = self.accepted());
    }

    /// Sends new connections to another port; existing connections stay.
    pub fn retarget(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// Sets or clears [`Fault::Mute`]: connections are accepted, and data is held back.
    pub fn mute(&self, mute: bool) {
        self.set(if mute { Fault::Mute } else { Fault::Pass });
    }
}

async fn listen(listener: Bound, shared: Arc<Shared>) -> io::Result<()> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener)?;
    let mut state = shared.state.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let number = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(serve(accepted?.0, number, Arc::clone(&shared)));
            }
            () = until(&mut state, |state| state.fault == Fault::Refuse) => {
                drop(listener);
                until(&mut state, |state| state.fault != Fault::Refuse).await;
                listener = TcpListener::bind(address).await?;
            }
        }
    }
}

/// Waits for a state. The sender lives as long as the process, so an error cannot occur.
async fn until(state: &mut watch::Receiver<State>, condition: impl FnMut(&State) -> bool) {
    let _ = state.wait_for(condition).await;
}

async fn serve(mut client: TcpStream, number: u32, shared: Arc<Shared>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", shared.target.load(Ordering::SeqCst))).await?;
    // Without Nagle's algorithm the proxy adds no delay of its own.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let mut state = shared.state.subscribe();
    let ends = |state: &State| {
        state.silenced >= number
            || matches!(state.fault, Fault::BlackHole | Fault::HalfClose | Fault::Refuse | Fault::Reset)
    };
    {
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let up = pump(from_client, to_server, shared.state.subscribe());
        let down = pump(from_server, to_client, shared.state.subscribe());
        tokio::select! {
            // Polled first: a connection that starts silenced must not forward a single byte.
            biased;
            () = until(&mut state, ends) => {}
            () = up => return Ok(()),
            () = down => return Ok(()),
        }
    }
    let fault = state.borrow().fault;
    match fault {
        Fault::Refuse | Fault::Reset => client.set_zero_linger()?,
        Fault::HalfClose => client.shutdown().await?,
        _ => {}
    }
    if !matches!(fault, Fault::Refuse | Fault::Reset) {
        // Discards the client's data and keeps the server's end open.
        while client.read(&mut [0; 4096]).await? > 0 {}
    }
    Ok(())
}

/// Forwards in one direction: one half reads and sets the due time, the other half waits for it and writes.
async fn pump(mut from: ReadHalf<'_>, to: WriteHalf<'_>, state: watch::Receiver<State>) {
    let (line, delayed) = mpsc::channel(1024);
    let fault = state.clone();
    let read = async move {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let Fault::Latency(delay) = fault.borrow().fault else {
                let _ = line.send((Instant::now(), buffer[..length].to_vec())).await;
                continue;
            };
            let _ = line.send((Instant::now() + delay, buffer[..length].to_vec())).await;
        }
    };
    both(read, write(to, delayed, state)).await;
}

async fn both(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    tokio::join!(one, other);
}

/// Writes data when due. Ends at the end of the data or at a failed write.
async fn write(mut to: WriteHalf<'_>, mut line: mpsc::Receiver<(Instant, Vec<u8>)>, mut state: watch::Receiver<State>) {
    while let Some((due, bytes)) = line.recv().await {
        sleep_until(due).await;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            until(&mut state, |state| state.fault != Fault::Mute).await;
            let throttle = match state.borrow().fault {
                Fault::Throttle(rate) => Some(rate),
                _ => None,
            };
            // A throttled connection writes the bytes of 10 ms at a time.
            let length = throttle.map_or(rest.len(), |rate| rest.len().min(rate.div_ceil(100) as usize));
            if to.write_all(&rest[..length]).await.is_err() {
                line.close();
                return;
            }
            rest = &rest[length..];
            if throttle.is_some() {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    let _ = to.shutdown().await;
}
