//! What faults do to a world, and how they end.

use super::World;
use crate::{
    network::{self, Link, Network},
    plan::fault::{Fault, Kind},
    process::Process,
    server::{Trouble, cluster::Move, commands::Refusal, database::Database},
    time::now,
};

/// How a slow way is, in milliseconds, and how few bytes a dribble is.
const SLOW: u64 = 30;
const DRIBBLE: usize = 7;
/// How far a clock drifts, in millionths.
const DRIFT: i64 = 1_000;

impl World {
    /// Lets a fault begin. Returns whether it could.
    pub(super) fn begin(&mut self, fault: &Fault) -> bool {
        let (process, server, end) = (fault.process, fault.server, fault.end());
        match fault.kind {
            Kind::Pause => {
                self.processes[process].paused_until = end;
                self.pauses.push((process, now(), end));
            }
            Kind::Kill => self.restart(process),
            Kind::EndRuntime => return self.processes[process].end_second_runtime(),
            Kind::Rewind => {
                let data = self.snapshots.get(&server).cloned().unwrap_or_default();
                network::with(|network| {
                    network.lives[server].is_down = true;
                    network.servers[server].with_data(|now| now.database = data);
                });
            }
            Kind::Move => return self.begin_move(server),
            kind => network::with(|network| begin(network, kind, process, server, end)),
        }
        true
    }

    /// Kills a process and starts another one in its place.
    fn restart(&mut self, number: usize) {
        network::with(|network| network.reset(Some(number), None));
        let plan = self.plan.clone();
        let new = Process::start(number, plan.processes, plan.servers, false);
        std::mem::replace(&mut self.processes[number], new).kill();
        self.pauses.push((number, now(), now() + FIRST_DIAL));
        self.spawn_callers(number);
    }

    fn begin_move(&mut self, from: usize) -> bool {
        let to = (from + 1) % self.plan.servers;
        network::with(|network| {
            let Some(slots) = network.slots.as_mut().filter(|slots| slots.moving.is_none()) else { return false };
            let Some((first, last)) = slots.range_of(from) else { return false };
            slots.moving = Some(Move { first, last, from, to });
            true
        })
    }

    /// Moves the next key of the slots that move.
    pub(super) fn move_a_key(&self) {
        network::with(|network| {
            let Some(moving) = network.slots.as_ref().and_then(|slots| slots.moving.clone()) else { return };
            move_key(network, &moving);
        });
    }

    /// Ends a fault.
    pub(super) fn heal(&mut self, fault: &Fault) {
        let (process, server) = (fault.process, fault.server);
        let normal = self.link();
        network::with(|network| match fault.kind {
            Kind::Crash | Kind::Wipe | Kind::Rewind => network.lives[server].is_down = false,
            Kind::Crowded => network.lives[server].is_crowded = false,
            Kind::Loading | Kind::Busy => network.servers[server].trouble = None,
            Kind::Full | Kind::Replica | Kind::TooFewReplicas => {
                network.servers[server].with_data(|data| data.refusal = None);
            }
            Kind::ClusterDown => network.slots.iter_mut().for_each(|slots| slots.is_down = false),
            Kind::Slow | Kind::Dribble => network.links[process].fill(normal),
            Kind::Move => {
                while let Some(moving) = network.slots.as_ref().and_then(|slots| slots.moving.clone())
                    && move_key(network, &moving)
                {}
                network.slots.iter_mut().for_each(crate::server::cluster::Slots::finish_move);
            }
            _ => {}
        });
    }

    /// The network as the plan has it.
    pub(super) fn link(&self) -> Link {
        let (delay, jitter) = (self.plan.delay, self.plan.jitter);
        Link { delay, jitter, to_server_blocked: 0, to_client_blocked: 0, bytes: usize::MAX }
    }

    /// What a server has at this time, for a failover to a replica that lags.
    pub(super) fn take_snapshot(&mut self, server: usize) {
        let data: Database = network::with(|network| network.servers[server].with_data(|data| data.database.clone()));
        self.snapshots.insert(server, data);
    }
}

/// How long a new process may wait for its first connection, in milliseconds.
const FIRST_DIAL: u64 = 400;

/// Faults of servers and of the network.
fn begin(network: &mut Network, kind: Kind, process: usize, server: usize, end: u64) {
    let refuse = |network: &Network, refusal| network.servers[server].with_data(|data| data.refusal = Some(refusal));
    match kind {
        Kind::Freeze => network.lives[server].frozen_until = end,
        Kind::Crash => network.lives[server].is_down = true,
        Kind::Wipe => {
            network.lives[server].is_down = true;
            network.servers[server].flush_scripts();
            network.servers[server].with_data(|data| data.database.clear());
        }
        Kind::Loading => network.servers[server].trouble = Some(Trouble::Loading),
        Kind::Busy => network.servers[server].trouble = Some(Trouble::Busy),
        Kind::Full => refuse(network, Refusal::Full),
        Kind::Replica => refuse(network, Refusal::Replica),
        Kind::TooFewReplicas => refuse(network, Refusal::TooFewReplicas),
        Kind::Crowded => {
            network.lives[server].is_crowded = true;
            network.close(server);
        }
        Kind::Flush => network.servers[server].flush_scripts(),
        Kind::Close => network.close(server),
        Kind::Drift => network.lives[server].drift = DRIFT,
        Kind::ClusterDown => network.slots.iter_mut().for_each(|slots| slots.is_down = true),
        Kind::Cut | Kind::Deaf | Kind::Mute => {
            let link = &mut network.links[process][server];
            if kind != Kind::Mute {
                link.to_server_blocked = end;
            }
            if kind != Kind::Deaf {
                link.to_client_blocked = end;
            }
        }
        Kind::Reset => network.reset(Some(process), Some(server)),
        Kind::Slow => network.links[process].iter_mut().for_each(|link| link.delay += SLOW),
        Kind::Dribble => network.links[process].iter_mut().for_each(|link| link.bytes = DRIBBLE),
        Kind::AheadSeconds | Kind::BackSeconds | Kind::AheadHour | Kind::BackHour => {
            let step_us = kind.clock_step().unwrap_or(0) * 1_000_000;
            network.lives.iter_mut().for_each(|life| life.clock_us += step_us);
        }
        Kind::Rewind | Kind::Move | Kind::Pause | Kind::Kill | Kind::EndRuntime => {
            unreachable!("the world begins these")
        }
    }
}

/// Moves one key. Returns whether there was one.
fn move_key(network: &mut Network, moving: &Move) -> bool {
    let find = |database: &mut Database| database.names().into_iter().find(|key| moving.has_key(key));
    let Some(key) = network.servers[moving.from].with_data(|data| find(&mut data.database)) else { return false };
    let (from_us, to_us) = (network.clock_us(moving.from), network.clock_us(moving.to));
    network.servers[moving.from].with_data(|data| data.database.now_us = from_us);
    if let Some(entry) = network.servers[moving.from].with_data(|data| data.database.take(&key)) {
        network.servers[moving.to].with_data(|data| {
            data.database.now_us = to_us;
            data.database.put(key, entry);
        });
    }
    true
}
