//! The network between processes and servers, in the time of the world.

mod connection;
mod stream;

use std::{cell::RefCell, collections::BTreeMap, io};

use tollgate::world::{Dialled, Stream};

pub(crate) use self::connection::Connection;
use self::stream::{ClientEnd, Pipe};
use crate::server::cluster::{FIRST_PORT, Slots};
use crate::server::reply::{Bytes, Decoded, decode};
use crate::server::{Server, sentinel::Role};
use crate::time::{START_US, ms, now};
use crate::{random::Rng, rare};

/// The way between a process and a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// One way, in milliseconds.
    pub(crate) delay: u64,
    pub(crate) jitter: u64,
    /// Until when nothing arrives at the server, and at the client.
    pub(crate) to_server_blocked: u64,
    pub(crate) to_client_blocked: u64,
    /// The most bytes that a connection delivers in a millisecond, to the server and to the client.
    pub(crate) bytes_to_server: usize,
    pub(crate) bytes_to_client: usize,
}

/// What happens to a server beside its data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub(crate) is_down: bool,
    /// Whether it accepts no further connections.
    pub(crate) is_crowded: bool,
    /// Until when it stands still, with its connections open.
    pub(crate) frozen_until: u64,
    /// How far its clock is off, in microseconds.
    pub(crate) clock_us: i64,
    /// How much faster its clock runs, in millionths, and since when.
    pub(crate) drift: (i64, u64),
    /// After how long it closes a connection that is idle, in milliseconds.
    pub(crate) closes_idle: Option<u64>,
}

pub(crate) struct Network {
    connections: Vec<Connection>,
    /// By process, then by server.
    pub(crate) links: Vec<Vec<Link>>,
    pub(crate) servers: Vec<Server>,
    pub(crate) lives: Vec<Life>,
    pub(crate) slots: Option<Slots>,
    /// A server that is cut off from its sentinels, or stays a master beside the one that was elected.
    pub(crate) former: Option<usize>,
    /// When a former master last ran a script for each process, beside the one that was elected.
    pub(crate) served_by_former: BTreeMap<usize, u64>,
    rng: Rng,
    /// A hash of all commands and when they ran.
    pub(crate) trace: u64,
    /// The number of commands.
    pub(crate) commands: u64,
    pub(crate) dials: u64,
    pub(crate) most_connections: usize,
}

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
    /// The calls of the script, if they are recorded.
    static RECORDED: RefCell<Option<Vec<Vec<Bytes>>>> = const { RefCell::new(None) };
    /// The process that runs now.
    static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(crate) fn set(network: Option<Network>) {
    NETWORK.set(network);
}

/// Calls `work` with the network of this thread's world.
pub(crate) fn with<T>(work: impl FnOnce(&mut Network) -> T) -> T {
    NETWORK.with_borrow_mut(|network| work(network.as_mut().expect("a world has a network")))
}

/// The connections of a process to each server that are still open.
pub(crate) fn connections_of(process: usize) -> Vec<usize> {
    with(|network| (0..network.servers.len()).map(|server| network.between(process, server).count()).collect())
}

/// Records the calls of the script on this thread.
pub(crate) fn record_calls() {
    RECORDED.set(Some(vec![]));
}

/// The calls that were recorded. Each has the server's time as the client's clock, so that it can be repeated.
pub(crate) fn recorded_calls() -> Vec<Vec<Bytes>> {
    RECORDED.take().unwrap_or_default()
}

fn record(command: &[Bytes], now_us: i64) {
    RECORDED.with_borrow_mut(|recorded| {
        let Some(recorded) = recorded.as_mut().filter(|_| command[0].starts_with(b"EVAL")) else { return };
        let count: usize = String::from_utf8_lossy(&command[2]).parse().unwrap_or(0);
        let mut call = command[..3 + count + 1].to_vec();
        call.push(now_us.to_string().into_bytes());
        recorded.push(call);
    });
}

/// Sets the process whose dials follow.
pub(crate) fn set_current(process: usize) {
    CURRENT.set(process);
}

/// How long a dial waits before it tries a blocked network again.
const RETRY: u64 = 3;

/// Connects the current process to a server.
pub(crate) fn dial(_host: &str, port: u16) -> Dialled {
    let (process, server) = (CURRENT.get(), usize::from(port - FIRST_PORT));
    Box::pin(async move {
        with(|network| network.dials += 1);
        loop {
            let (link, life) = with(|network| (network.links[process][server], network.lives[server]));
            if link.to_server_blocked.max(link.to_client_blocked) > now() {
                tokio::time::sleep(ms(RETRY)).await;
                continue;
            }
            tokio::time::sleep(ms(2 * link.delay)).await;
            if life.is_down {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let pipe = Pipe::default();
            with(|network| network.connect(Connection::new(process, server, pipe.clone()), life.is_crowded));
            return Ok(Box::new(ClientEnd(pipe)) as Box<dyn Stream>);
        }
    })
}

impl Network {
    pub(crate) fn new(links: Vec<Vec<Link>>, servers: usize, slots: Option<Slots>, rng: Rng) -> Self {
        Self {
            connections: vec![],
            links,
            servers: (0..servers).map(Server::new).collect(),
            lives: vec![Life::default(); servers],
            slots,
            former: None,
            served_by_former: BTreeMap::new(),
            rng,
            trace: 0xcbf2_9ce4_8422_2325,
            commands: 0,
            dials: 0,
            most_connections: 0,
        }
    }

    fn connect(&mut self, connection: Connection, is_refused: bool) {
        if is_refused {
            let mut shared = connection.pipe.lock();
            shared.deliver(b"-ERR max number of clients reached\r\n");
            shared.close();
            return;
        }
        self.connections.push(connection);
        self.most_connections = self.most_connections.max(self.connections.len());
    }

    /// Resets the connections between a process and a server; `None` stands for all.
    pub(crate) fn reset(&mut self, process: Option<usize>, server: Option<usize>) {
        let is_meant = |connection: &&mut Connection| {
            process.is_none_or(|process| process == connection.process)
                && server.is_none_or(|server| server == connection.server)
        };
        self.connections.iter_mut().filter(is_meant).for_each(Connection::reset);
    }

    /// The server closes its connections.
    pub(crate) fn close(&mut self, server: usize) {
        self.connections.iter_mut().filter(|connection| connection.server == server).for_each(Connection::close);
    }

    /// The connections between a process and a server.
    pub(crate) fn between(&mut self, process: usize, server: usize) -> impl Iterator<Item = &mut Connection> {
        let is_between = move |connection: &&mut Connection| {
            connection.process == process && connection.server == server && !connection.is_over
        };
        self.connections.iter_mut().filter(is_between)
    }

    /// The server that is the master behind sentinels, or is to be elected.
    pub(crate) fn master(&self) -> usize {
        let is_master = |server: &Server| server.role == Role::Master;
        self.former.map_or_else(|| self.servers.iter().position(is_master).unwrap_or(0), |former| 1 - former)
    }

    /// Makes one of the first two servers the master, and the other one its replica. At most this number of sentinels
    /// learns of it.
    pub(crate) fn set_master(&mut self, master: usize, sentinels: usize) {
        self.servers[1 - master].set_role(Role::Replica);
        self.elect(master, sentinels);
    }

    /// Makes one of the first two servers a master, whatever the other one is. At most this number of sentinels learns
    /// of it.
    pub(crate) fn elect(&mut self, master: usize, sentinels: usize) {
        self.servers[master].set_role(Role::Master);
        for sentinel in self.servers.iter_mut().skip(2).take(sentinels) {
            sentinel.set_role(Role::Sentinel { names: master });
        }
    }

    /// The number of sentinels, which follow the master and its replica.
    pub(crate) fn sentinels(&self) -> usize {
        self.servers.len().saturating_sub(2)
    }

    /// Whether all sentinels name the master.
    pub(crate) fn sentinels_agree(&self) -> bool {
        let names = Role::Sentinel { names: self.master() };
        self.servers.iter().skip(2).all(|sentinel| sentinel.role == names)
    }

    /// Cuts off a server, a process and the last sentinel from all others.
    pub(crate) fn split(&mut self, alone: usize, server: usize, until: u64) {
        let last = self.servers.len() - 1;
        for (process, links) in self.links.iter_mut().enumerate() {
            for (other, link) in links.iter_mut().enumerate() {
                if (process == alone) != (other == server || other == last) {
                    link.to_server_blocked = link.to_server_blocked.max(until);
                    link.to_client_blocked = link.to_client_blocked.max(until);
                }
            }
        }
    }

    /// The time without drift and steps.
    pub(crate) fn true_us(&self) -> i64 {
        (START_US + now() * 1_000).cast_signed()
    }

    /// The time of a server's clock.
    pub(crate) fn clock_us(&self, server: usize) -> i64 {
        let life = self.lives[server];
        let (drift, since) = life.drift;
        let drifted_us = (now().saturating_sub(since) * 1_000).cast_signed() * drift / 1_000_000;
        self.true_us() + drifted_us + life.clock_us
    }

    /// Moves all bytes and lets all servers answer what has arrived.
    pub(crate) fn step(&mut self) {
        for index in 0..self.connections.len() {
            if !self.connections[index].is_over {
                self.step_connection(index);
            }
        }
        self.connections.retain(|connection| !connection.is_over);
    }

    fn step_connection(&mut self, index: usize) {
        let now = now();
        let (process, server) = (self.connections[index].process, self.connections[index].server);
        let (link, life) = (self.links[process][server], self.lives[server]);
        if self.connections[index].is_forgotten {
            return self.connections[index].lose();
        }
        if life.is_down {
            return self.connections[index].reset();
        }
        if life.closes_idle.is_some_and(|limit| self.connections[index].used_at + limit <= now) {
            return self.connections[index].close();
        }
        let written = self.connections[index].written();
        if !written.is_empty() {
            let at = now + link.delay + self.rng.below(link.jitter + 1);
            self.connections[index].send_to_server(at, written);
        }
        if link.to_server_blocked <= now {
            self.connections[index].arrive_at_server(now, link.bytes_to_server);
        }
        if life.frozen_until <= now {
            let replies = self.answer(index);
            if !replies.is_empty() {
                let at = now + link.delay + self.rng.below(link.jitter + 1);
                self.connections[index].send_to_client(at, replies);
            }
        }
        let connection = &mut self.connections[index];
        if link.to_client_blocked <= now {
            connection.arrive_at_client(now, link.bytes_to_client);
        }
        if connection.is_left() {
            connection.is_over = true;
        }
    }

    /// The replies to all whole commands that have arrived.
    fn answer(&mut self, index: usize) -> Vec<u8> {
        let now_us = self.clock_us(self.connections[index].server);
        let connection = &mut self.connections[index];
        let mut replies = vec![];
        while !connection.received.is_empty() {
            match decode(&connection.received) {
                Decoded::Command(command, length) => {
                    connection.received.drain(..length);
                    self.commands += 1;
                    record(&command, now_us);
                    for byte in command.iter().skip(3).flatten().copied().chain(now().to_le_bytes()) {
                        self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
                    }
                    let server = connection.server;
                    let former = self.former.filter(|former| self.servers[1 - former].role == Role::Master);
                    if command[0].starts_with(b"EVAL") && former.is_some() {
                        if former == Some(server) {
                            rare::taken("call-at-a-former-master");
                            self.served_by_former.insert(connection.process, now());
                        } else {
                            rare::taken("call-beside-a-former-master");
                        }
                    }
                    let reply =
                        self.servers[server].answer(&command, &mut connection.session, self.slots.as_ref(), now_us);
                    reply.encode(&mut replies);
                }
                Decoded::Incomplete => break,
                Decoded::Garbage => {
                    connection.close();
                    break;
                }
            }
        }
        replies
    }
}
