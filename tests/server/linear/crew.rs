//! The worker processes, each with a network of its own to one Redis.

use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{process::Child, thread, time::Duration};

use super::wire::{Reply, Request};
use super::worker::{self, Subject};
use crate::support::proxy::{Fault, Proxy};
use crate::support::redis_server::RedisServer;

pub(super) const WORKERS: usize = 4;
/// Calls of one process that are in flight together share a call of the script.
pub(super) const CLIENTS: usize = 2;

pub(super) struct Crew {
    _server: RedisServer,
    subject: Subject,
    workers: Vec<Worker>,
    sender: Sender<Heard>,
    receiver: Receiver<Heard>,
}

struct Worker {
    process: Child,
    /// Counts the processes with this index.
    life: u32,
    network: Proxy,
    is_ready: bool,
}

/// A line of a worker.
struct Heard {
    worker: usize,
    life: u32,
    client: u64,
    reply: Reply,
}

impl Crew {
    pub(super) fn new(subject: Subject) -> Self {
        let server = RedisServer::start();
        let (sender, receiver) = channel();
        let start = |index| {
            let network = Proxy::to(server.port());
            let process = start(&network, subject, index, 0, &sender);
            Worker { process, life: 0, network, is_ready: false }
        };
        let workers = (0..WORKERS).map(start).collect();
        Self { _server: server, subject, workers, sender, receiver }
    }

    pub(super) fn is_ready(&self, worker: usize) -> bool {
        self.workers[worker].is_ready
    }

    pub(super) fn send(&mut self, worker: usize, request: Request) {
        let input = self.workers[worker].process.stdin.as_mut().unwrap();
        writeln!(input, "{}", request.to_line()).unwrap();
    }

    /// Kills a worker as `kill -9` does, and starts another one in its place.
    pub(super) fn kill(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.process.kill().unwrap();
        worker.process.wait().unwrap();
        worker.life += 1;
        worker.is_ready = false;
        worker.process = start(&worker.network, self.subject, index, worker.life, &self.sender);
    }

    pub(super) fn disturb(&self, worker: usize, fault: Fault) {
        self.workers[worker].network.set(fault);
    }

    /// The next reply to a client, within this time.
    pub(super) fn hear(&mut self, within: Duration) -> Option<(usize, usize, Reply)> {
        let heard = self.receiver.recv_timeout(within).ok()?;
        let worker = &mut self.workers[heard.worker];
        // What a killed worker has written came too late: its caller has learned nothing.
        if heard.life != worker.life {
            return None;
        }
        if matches!(heard.reply, Reply::Ready) {
            worker.is_ready = true;
            return None;
        }
        Some((heard.worker, heard.client as usize, heard.reply))
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

fn start(network: &Proxy, subject: Subject, worker: usize, life: u32, sender: &Sender<Heard>) -> Child {
    let mut process = worker::spawn(&network.url(), subject);
    let (output, sender) = (process.stdout.take().unwrap(), sender.clone());
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some((client, reply)) = Reply::from_line(&line) {
                let _ = sender.send(Heard { worker, life, client, reply });
            }
        }
    });
    process
}
