//! Plays a history: lets the clients of all workers call at random, disturbs some of them, and records what they learn.

use std::time::{Duration, Instant};

use super::crew::{CLIENTS, Crew, WORKERS};
use super::history::Record;
use super::specification::{Hold, Operation};
use super::wire::{Call, Reply, Request};
use crate::support::{proxy::Fault, random::Random};

/// The calls of a history: 30 of each process.
const CALLS: u64 = 30 * WORKERS as u64;
const MAX_COST: u64 = 8;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Style {
    /// With resets. Denials are not remembered, because a process that remembers one notices the reset of another
    /// process within a second only.
    Resets,
    /// Denials are remembered, and some holds are too small. There are no resets.
    Remembers,
    /// Checks of one budget, peeks and resets, without faults.
    Plain,
    /// Checks, peeks and resets, so slowly that windows pass. Networks become slow and lose nothing, because a call
    /// without an answer has no time.
    Windows,
}

/// What happens to a worker in a history, and after how many calls.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    after: u64,
    worker: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Killed,
    Network(Fault, Duration),
}

struct Client {
    /// Open holds, and what they hold.
    holds: Vec<(Hold, u64)>,
    pending: Option<Pending>,
    pauses_until: Instant,
}

#[derive(Clone, Copy)]
struct Pending {
    call: Call,
    /// The number of the call in the record.
    number: usize,
    /// The number of the release by which a worker ends a hold without an answer.
    release: usize,
}

struct Player<'a> {
    crew: &'a mut Crew,
    random: Random,
    style: Style,
    key: u64,
    record: Record<Operation>,
    clients: Vec<Client>,
    holds: u64,
}

/// Plays one history under a key of its own.
pub(super) fn play(crew: &mut Crew, key: u64, style: Style) -> Record<Operation> {
    let client = |_| Client { holds: Vec::new(), pending: None, pauses_until: Instant::now() };
    let clients = (0..WORKERS * CLIENTS).map(client).collect();
    let random = Random(key);
    let mut player = Player { crew, random, style, key, record: Record::new(), clients, holds: 0 };
    player.play();
    player.record
}

impl Player<'_> {
    fn play(&mut self) {
        let mut troubles = self.troubles();
        let mut heals: Option<(usize, Instant)> = None;
        let (mut begun, started) = (0, Instant::now());
        while begun < CALLS || self.clients.iter().any(|client| client.pending.is_some()) {
            assert!(started.elapsed() < Duration::from_secs(30), "the history of key {} stands still", self.key);
            if let Some(trouble) = troubles.pop_if(|trouble| trouble.after <= begun) {
                match trouble.kind {
                    Kind::Killed => self.kill(trouble.worker),
                    Kind::Network(fault, lasts) => {
                        self.crew.disturb(trouble.worker, fault);
                        heals = Some((trouble.worker, Instant::now() + lasts));
                    }
                }
            }
            if let Some((worker, _)) = heals.take_if(|(_, until)| *until <= Instant::now()) {
                self.crew.disturb(worker, Fault::Pass);
            }
            let is_slow = heals.is_some() || (0..WORKERS).any(|worker| !self.crew.is_ready(worker));
            for client in 0..self.clients.len() {
                if begun < CALLS && self.begin(client, is_slow) {
                    begun += 1;
                }
            }
            if let Some((worker, client, reply)) = self.crew.hear(Duration::from_millis(1)) {
                self.note(worker * CLIENTS + client, reply);
            }
        }
        if let Some((worker, _)) = heals {
            self.crew.disturb(worker, Fault::Pass);
        }
    }

    /// In half of the histories one of the workers is killed or loses its network. The last trouble comes first.
    fn troubles(&mut self) -> Vec<Trouble> {
        if self.style == Style::Plain || self.random.one_in(2) {
            return Vec::new();
        }
        let kinds = [
            Kind::Killed,
            Kind::Network(Fault::Reset, Duration::from_millis(2)),
            Kind::Network(Fault::Refuse, Duration::from_millis(20)),
            Kind::Network(Fault::BlackHole, Duration::from_millis(20)),
            Kind::Network(Fault::Mute, Duration::from_millis(30)),
            // Longer than the deadline: what is held back arrives when its caller has long been told that it failed.
            Kind::Network(Fault::Mute, Duration::from_millis(120)),
            Kind::Network(Fault::Latency(Duration::from_millis(3)), Duration::from_millis(40)),
        ];
        let slow = &kinds[4..];
        let kinds = if self.style == Style::Windows { slow } else { &kinds };
        let (after, worker) = (10 + self.random.below(CALLS / 2), self.random.index(WORKERS));
        let mut troubles = vec![Trouble { after, worker, kind: self.random.pick(kinds) }];
        if self.style != Style::Windows && self.random.one_in(3) {
            troubles.insert(0, Trouble { after: after + 20, worker: self.random.index(WORKERS), kind: Kind::Killed });
        }
        troubles
    }

    /// Lets a client begin a call if it is idle and its worker runs.
    fn begin(&mut self, client: usize, is_slow: bool) -> bool {
        let (worker, now) = (client / CLIENTS, Instant::now());
        let state = &self.clients[client];
        if state.pending.is_some() || state.pauses_until > now || !self.crew.is_ready(worker) {
            return false;
        }
        let call = self.draw(client);
        // The others should not have made all of their calls before the trouble is over.
        let pause = match self.style {
            Style::Windows => self.random.below(12),
            _ if is_slow => self.random.below(8),
            _ => 0,
        };
        let (number, release) = (self.record.call(), self.record.call());
        let state = &mut self.clients[client];
        state.pauses_until = now + Duration::from_millis(pause);
        state.pending = Some(Pending { call, number, release });
        let remembers = self.style == Style::Remembers;
        let client = (client % CLIENTS) as u64;
        self.crew.send(worker, Request { client, key: self.key, remembers, call });
        true
    }

    fn draw(&mut self, client: usize) -> Call {
        let random = &mut self.random;
        let budget = random.index(2);
        if self.style == Style::Plain {
            let costs = [random.cost(MAX_COST), 0];
            return [Call::Check(costs), Call::Peek(0), Call::Reset(0)][random.weighted(&[8, 2, 1])];
        }
        let holds = &mut self.clients[client].holds;
        // What a call costs the other budget: in one of three checks, something.
        let mut costs = [0; 2];
        costs[budget] = random.cost(MAX_COST);
        if random.one_in(3) {
            costs[1 - budget] = random.cost(MAX_COST);
        }
        if self.style == Style::Windows {
            return [Call::Check(costs), Call::Peek(budget), Call::Reset(budget)][random.weighted(&[16, 3, 1])];
        }
        let ends = if holds.is_empty() { 0 } else { 8 };
        let resets = if self.style == Style::Resets { 1 } else { 0 };
        match random.weighted(&[3, 4, ends, 1, resets]) {
            0 => Call::Check(costs),
            1 => {
                self.holds += 1;
                Call::Hold { hold: Hold { number: self.holds, budget }, costs }
            }
            2 => {
                let (hold, held) = holds.swap_remove(random.index(holds.len()));
                let above = if self.style == Style::Remembers { 2 } else { 0 };
                // Every other hold is released.
                let actual = if random.one_in(2) { 0 } else { random.below(held + 1 + above) };
                Call::End { hold: hold.number, actual }
            }
            3 => Call::Peek(budget),
            _ => Call::Reset(budget),
        }
    }

    fn note(&mut self, client: usize, reply: Reply) {
        let Some(pending) = self.clients[client].pending.take() else { panic!("no call for {reply:?}") };
        let (record, number) = (&mut self.record, pending.number);
        match (pending.call, reply) {
            (_, Reply::Failed) => {}
            (_, Reply::Unknown) => self.lose(pending),
            (Call::Check(costs), Reply::Decided(answer)) => {
                record.answered(number, Operation::Check { costs, hold: None, answer: Some(answer) });
            }
            (Call::Hold { hold, costs }, Reply::Decided(answer)) => {
                record.answered(number, Operation::Check { costs, hold: Some(hold), answer: Some(answer) });
                if answer.is_allowed {
                    self.clients[client].holds.push((hold, costs[hold.budget]));
                }
            }
            (Call::End { hold, actual }, Reply::Ended { was_open }) => {
                record.answered(number, Operation::End { hold, actual, was_open: Some(was_open) });
            }
            (Call::Reset(budget), Reply::Reset { found }) => {
                record.answered(number, Operation::Reset { budget, found: Some(found) });
            }
            (Call::Peek(budget), Reply::Decided(answer)) => {
                if answer.available[budget].is_some() {
                    record.answered(number, Operation::Peek(answer));
                }
            }
            (call, reply) => panic!("{call:?} was answered with {reply:?}"),
        }
    }

    /// Notes a call without an answer.
    fn lose(&mut self, Pending { call, number, release }: Pending) {
        let operation = match call {
            Call::Check(costs) => Operation::Check { costs, hold: None, answer: None },
            Call::Hold { hold, costs } => {
                // The worker releases in the background what it may hold.
                self.record.unknown(release, Operation::End { hold: hold.number, actual: 0, was_open: None });
                Operation::Check { costs, hold: Some(hold), answer: None }
            }
            // It is sent again in the background.
            Call::End { hold, actual } => Operation::End { hold, actual, was_open: None },
            Call::Reset(budget) => Operation::Reset { budget, found: None },
            Call::Peek(_) => return,
        };
        self.record.unknown(number, operation);
    }

    fn kill(&mut self, worker: usize) {
        self.crew.kill(worker);
        for client in worker * CLIENTS..(worker + 1) * CLIENTS {
            // Its holds stay open.
            self.clients[client].holds.clear();
            if let Some(pending) = self.clients[client].pending.take() {
                self.lose(pending);
            }
        }
    }
}
