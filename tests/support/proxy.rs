//! A TCP proxy for faults: it can go silent, change its target, or take its time to accept.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

/// Forwards connections until the test's process ends.
#[derive(Clone)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    target: AtomicU16,
    /// Connections up to this number forward nothing any more.
    silenced: AtomicU32,
    accepted: AtomicU32,
    mute: AtomicBool,
}

impl Proxy {
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Arc::new(Shared { target: target.into(), silenced: 0.into(), accepted: 0.into(), mute: false.into() });
        let this = Self { port, shared };
        let proxy = this.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = proxy.shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
                proxy.serve(client, number);
            }
        });
        this
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections came so far.
    pub fn accepted(&self) -> u32 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Makes the connections that there are half open: nothing is forwarded, and nobody is told.
    pub fn silence(&self) {
        self.shared.silenced.store(self.accepted(), Ordering::SeqCst);
    }

    /// Sends new connections elsewhere; those that there are stay.
    pub fn retarget(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
    }

    /// While mute, connections are accepted and nothing is forwarded yet.
    pub fn mute(&self, mute: bool) {
        self.shared.mute.store(mute, Ordering::SeqCst);
    }

    fn serve(&self, client: TcpStream, number: u32) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.shared.target.load(Ordering::SeqCst))) else { return };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to, shared) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(&self.shared));
            thread::spawn(move || pump(from, to, &shared, number));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared, number: u32) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        // A connection that is silenced stays so; one that is mute goes on later.
        while shared.mute.load(Ordering::SeqCst) || number <= shared.silenced.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
