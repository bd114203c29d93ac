//! What faults do to a world, and how they end.

use super::{World, masters};
use crate::network::{self, Connection, Link, Network};
use crate::plan::fault::{ELECTED_AFTER, Fault, Kind};
use crate::server::{Trouble, cluster::Move, commands::Refusal, database::Database};
use crate::{place::Pause, time::now};

/// How a slow way is, in milliseconds, and how few bytes a dribble is.
const SLOW: u64 = 30;
const DRIBBLE: usize = 7;
/// The most bytes of commands that arrive in a millisecond.
const TRICKLE: usize = 60;
/// How late bytes may be, in milliseconds.
const JITTER: u64 = 50;
/// After how long idle connections are closed, in milliseconds.
const IDLE: u64 = 60;

impl World {
    /// Lets a fault begin. Returns whether it could.
    pub(super) fn begin(&mut self, fault: &Fault) -> bool {
        let (process, server, end) = (fault.process, fault.server, fault.end());
        match fault.kind {
            Kind::Pause => self.stand_still(process, None, end),
            Kind::BlockThread => self.stand_still(process, Some(0), end),
            Kind::IdleRuntime => {
                let last = self.processes[process].count_runtimes() - 1;
                if last == 0 {
                    return false;
                }
                self.stand_still(process, Some(last), end);
            }
            Kind::Kill => self.restart(process),
            Kind::EndRuntime => return self.processes[process].end_last_runtime(),
            Kind::DropHandles => {
                self.processes[process].replace_limiter();
                self.dial_first(process);
            }
            Kind::CloseLimiter => {
                let limiter = self.processes[process].limiter();
                self.processes[process].runtime(0).spawn(async move { limiter.close().await });
            }
            Kind::Rewind => {
                let data = self.snapshots.get(&server).cloned().unwrap_or_default();
                network::with(|network| {
                    network.lives[server].is_down = true;
                    network.servers[server].with_data(|now| now.database = data);
                });
            }
            Kind::Move => return self.begin_move(server),
            Kind::Failover => return network::with(masters::fail_over),
            Kind::LoseMaster => return network::with(masters::lose),
            Kind::TwoMasters => return network::with(masters::leave_two),
            Kind::Split => return network::with(|network| masters::split(network, process, end)),
            _ => network::with(|network| begin(network, fault)),
        }
        true
    }

    fn stand_still(&mut self, process: usize, runtime: Option<usize>, to: u64) {
        self.processes[process].stand_still(runtime, to);
        // The first dials go on afterwards.
        let rest = self.dialled_by.get(&process).map_or(0, |until| until.saturating_sub(now()));
        self.pauses.push(Pause { process, runtime, from: now(), to: to + rest });
    }

    /// A new limiter dials when its runtimes run.
    fn dial_first(&mut self, process: usize) {
        let until = now() + FIRST_DIAL;
        self.dialled_by.insert(process, until);
        self.pauses.push(Pause { process, runtime: None, from: now(), to: until });
        for (runtime, away) in self.processes[process].away().enumerate().filter(|(_, away)| *away > 0) {
            self.pauses.push(Pause { process, runtime: Some(runtime), from: now(), to: until + away });
        }
    }

    /// Kills a process and starts another one in its place.
    pub(super) fn restart(&mut self, number: usize) {
        network::with(|network| network.reset(Some(number), None));
        let new = self.start_process(number, 1);
        std::mem::replace(&mut self.processes[number], new).kill();
        self.dial_first(number);
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
            Kind::CloseIdle => network.lives[server].closes_idle = None,
            Kind::Loading | Kind::Busy | Kind::NoLogin | Kind::WrongLogin | Kind::NoPermission => {
                network.servers[server].trouble = None;
            }
            Kind::Full | Kind::Replica | Kind::TooFewReplicas => {
                network.servers[server].end_refusal();
            }
            // The others learn of it as well.
            Kind::Failover => network.set_master(network.master(), usize::MAX),
            Kind::LoseMaster => {
                let lost = network.master();
                network.lives[lost].is_down = false;
                masters::replace(network, lost, self.snapshots.get(&lost));
            }
            Kind::TwoMasters | Kind::Split => masters::end_two(network),
            Kind::ClusterDown => network.slots.iter_mut().for_each(|slots| slots.is_down = false),
            Kind::Slow | Kind::Jitter | Kind::Dribble | Kind::Trickle => network.links[process].fill(normal),
            Kind::Move => {
                while let Some(moving) = network.slots.as_ref().and_then(|slots| slots.moving.clone())
                    && move_key(network, &moving)
                {}
                network.slots.iter_mut().for_each(crate::server::cluster::Slots::finish_move);
            }
            _ => {}
        });
    }

    /// The sentinels of the larger side of a split elect its replica.
    pub(super) fn elect(&self, fault: &Fault) {
        if fault.kind == Kind::Split && now() == fault.at + ELECTED_AFTER {
            network::with(|network| {
                let data = network.former.and_then(|former| self.snapshots.get(&former));
                masters::elect_beside_former(network, data);
            });
        }
    }

    /// The network as the plan has it.
    pub(super) fn link(&self) -> Link {
        let (delay, jitter) = (self.plan.delay, self.plan.jitter);
        let (bytes_to_server, bytes_to_client) = (usize::MAX, usize::MAX);
        Link { delay, jitter, to_server_blocked: 0, to_client_blocked: 0, bytes_to_server, bytes_to_client }
    }

    /// What a server has some time before a failover to a replica that lags.
    pub(super) fn take_snapshot(&mut self, fault: &Fault) {
        let server = match fault.kind {
            Kind::Rewind => fault.server,
            Kind::LoseMaster | Kind::Split => network::with(|network| network.master()),
            _ => return,
        };
        let data: Database = network::with(|network| network.servers[server].with_data(|data| data.database.clone()));
        self.snapshots.insert(server, data);
    }
}

/// How long a new process may wait for its first connection, in milliseconds.
const FIRST_DIAL: u64 = 400;

/// Faults of servers and of the network.
fn begin(network: &mut Network, fault: &Fault) {
    let (Fault { kind, process, server, .. }, end) = (*fault, fault.end());
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
        Kind::NoLogin => network.servers[server].trouble = Some(Trouble::NoLogin),
        Kind::NoPermission => network.servers[server].trouble = Some(Trouble::NoPermission),
        Kind::WrongLogin => {
            network.servers[server].trouble = Some(Trouble::WrongLogin);
            network.close(server);
        }
        Kind::Full => refuse(network, Refusal::Full),
        Kind::Replica => refuse(network, Refusal::Replica),
        Kind::TooFewReplicas => refuse(network, Refusal::TooFewReplicas),
        Kind::Crowded => {
            network.lives[server].is_crowded = true;
            network.close(server);
        }
        Kind::Flush => network.servers[server].flush_scripts(),
        Kind::Close => network.close(server),
        Kind::CloseIdle => network.lives[server].closes_idle = Some(IDLE),
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
        Kind::HalfOpen => network.between(process, server).for_each(Connection::forget),
        Kind::HalfClosed => network.between(process, server).for_each(Connection::half_close),
        Kind::Slow => network.links[process].iter_mut().for_each(|link| link.delay += SLOW),
        Kind::Jitter => network.links[process].iter_mut().for_each(|link| link.jitter = JITTER),
        Kind::Dribble => network.links[process].iter_mut().for_each(|link| link.bytes_to_client = DRIBBLE),
        Kind::Trickle => network.links[process].iter_mut().for_each(|link| link.bytes_to_server = TRICKLE),
        Kind::FastClock | Kind::SlowClock => {
            // What has drifted by now stays.
            let clock_us = network.clock_us(server) - network.true_us();
            let life = &mut network.lives[server];
            (life.clock_us, life.drift) = (clock_us, (fault.drift().unwrap_or(0), now()));
        }
        Kind::AheadSeconds | Kind::BackSeconds | Kind::AheadHour | Kind::BackHour => {
            let step_us = kind.clock_step().unwrap_or(0) * 1_000_000;
            network.lives.iter_mut().for_each(|life| life.clock_us += step_us);
        }
        _ => unreachable!("the world begins {kind:?}"),
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
