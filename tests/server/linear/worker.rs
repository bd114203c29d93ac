//! A worker process: makes the calls that the test writes to it, each as soon as it comes, and answers each.

use std::process::{Child, Command, Stdio};
use std::{cell::RefCell, collections::HashMap, env, io, rc::Rc, thread, time::Duration};

use tokio::{sync::mpsc, task::LocalSet};
use tollgate::limiter::{Hold, HoldAnswer};
use tollgate::{Check, Decision, Error, Limiter, Policy, decision::Source, policy::HoldSettings, store::SettleAnswer};

use super::plain_script::{Leaving, PlainScript};
use super::specification::{Answer, LIMITS};
use super::wire::{Call, Reply, Request};
use super::{two_calls::TwoCalls, windows};
use crate::support::{patient, print_line, time_us};

/// No faulty network answers within this, and a healthy one on a busy machine does. A call that takes longer has an
/// unknown fate, which is no error.
pub(super) const DEADLINE: Duration = Duration::from_millis(100);

/// What the workers ask.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Subject {
    /// With windows that are longer than a history, and holds.
    Tollgate,
    /// A store that is wrong, with one of these windows.
    TwoCalls,
    /// With windows that pass. Calls wait for Redis as long as it takes.
    Windows,
    /// Another store, with the same windows.
    PlainScript(Leaving),
}

impl Subject {
    const ALL: [Self; 6] = [
        Self::Tollgate,
        Self::TwoCalls,
        Self::Windows,
        Self::PlainScript(Leaving::Right),
        Self::PlainScript(Leaving::Early),
        Self::PlainScript(Leaving::Never),
    ];

    fn word(self) -> String {
        format!("{self:?}")
    }

    fn limiter(self, url: &str, remembers: bool) -> Limiter {
        match self {
            Self::Tollgate => {
                let store = patient().deadline(DEADLINE).first_dial_deadline(DEADLINE).breaker(None);
                Limiter::new(store.deny_cache(remembers).open(url).unwrap()).without_notices()
            }
            Self::TwoCalls => Limiter::new(TwoCalls::new(url)),
            Self::Windows => Limiter::new(patient().breaker(None).deny_cache(remembers).open(url).unwrap()),
            Self::PlainScript(leaving) => Limiter::new(PlainScript::new(url, leaving)),
        }
    }

    fn policies(self) -> [Policy; 2] {
        let names = [("one", LIMITS[0]), ("other", LIMITS[1])];
        match self {
            Self::Tollgate => {
                let holds = HoldSettings::new().with_ttl(Duration::from_secs(3_600));
                names.map(|(name, limit)| Policy::per_day(name, limit).unwrap().with_holds(holds))
            }
            Self::TwoCalls => names.map(|(name, limit)| Policy::per_day(name, limit).unwrap()),
            Self::Windows | Self::PlainScript(_) => windows::policies(),
        }
    }
}

/// Starts a worker that finds Redis at this URL.
pub(super) fn spawn(url: &str, subject: Subject) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "worker_process", "--ignored", "--nocapture"])
        .env("LINEAR_URL", url)
        .env("LINEAR_SUBJECT", subject.word())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The child process started by [`spawn`]. Ends with its standard input.
pub(super) fn main() {
    let url = env::var("LINEAR_URL").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let word = env::var("LINEAR_SUBJECT").unwrap();
    let subject = Subject::ALL.into_iter().find(|subject| subject.word() == word).unwrap();
    LocalSet::new().block_on(&runtime, async {
        let limiters = [false, true].map(|remembers| subject.limiter(&url, remembers));
        let worker = Rc::new(Worker { limiters, policies: subject.policies(), holds: RefCell::default() });
        let (sender, mut lines) = mpsc::unbounded_channel();
        thread::spawn(move || io::stdin().lines().try_for_each(|line| sender.send(line.unwrap())));
        // A failure is no concern of the worker: the calls that follow report it.
        let _ = worker.limiters[0].ready().await;
        // The test harness has begun a line.
        print_line(&format!("\n{}", Reply::Ready.to_line(0)));
        while let Some(line) = lines.recv().await {
            let (worker, request) = (Rc::clone(&worker), Request::from_line(&line));
            tokio::task::spawn_local(async move {
                let reply = worker.call(request).await;
                print_line(&reply.to_line(request.client));
            });
        }
    });
}

struct Worker {
    /// The second one remembers denials.
    limiters: [Limiter; 2],
    policies: [Policy; 2],
    holds: RefCell<HashMap<u64, Hold>>,
}

impl Worker {
    async fn call(&self, request: Request) -> Reply {
        let limiter = &self.limiters[usize::from(request.remembers)];
        match request.call {
            Call::Check(costs) => {
                let check = self.check(request.key, costs, None);
                limiter.check_all(check).await.map_or_else(failed, |decision| decided(&decision))
            }
            Call::Hold { hold, costs } => {
                let check = self.check(request.key, costs, Some(hold.budget));
                match limiter.hold_all(check).await {
                    Ok(HoldAnswer::Open(open)) => {
                        let reply = decided(open.decision());
                        self.holds.borrow_mut().insert(hold.number, open);
                        reply
                    }
                    Ok(HoldAnswer::Denied(decision)) => decided(&decision),
                    Err(error) => failed(error),
                }
            }
            Call::End { hold, actual } => {
                let hold = self.holds.borrow_mut().remove(&hold).unwrap();
                match hold.settle(actual).await {
                    Ok(SettleAnswer::NotHeld) => panic!("the store has made the hold"),
                    Ok(answer) => Reply::Ended { was_open: answer == SettleAnswer::Settled },
                    // It is sent again in the background.
                    Err(_) => Reply::Unknown,
                }
            }
            Call::Reset(budget) => {
                let found = limiter.reset(request.key, &self.policies[budget]).await;
                found.map_or_else(failed, |found| Reply::Reset { found })
            }
            Call::Peek(budget) => {
                let peek = limiter.peek(request.key, &self.policies[budget]).await;
                peek.map_or_else(failed, |decision| decided(&decision))
            }
        }
    }

    /// A check of the budgets that have a cost. The units of the budget `held` are held.
    fn check(&self, key: u64, costs: [u64; 2], held: Option<usize>) -> Check {
        let [one, other] = &self.policies;
        match (costs, held) {
            ([0, cost], None) => Check::new(key, other, cost),
            ([cost, 0], None) => Check::new(key, one, cost),
            ([cost, more], None) => Check::new(key, one, cost).and(key, other, more),
            ([cost, 0], Some(_)) => Check::hold(key, one, cost),
            ([0, cost], Some(_)) => Check::hold(key, other, cost),
            ([cost, more], Some(0)) => Check::hold(key, one, cost).and(key, other, more),
            ([cost, more], Some(_)) => Check::new(key, one, cost).and_hold(key, other, more),
        }
    }
}

fn decided(decision: &Decision) -> Reply {
    // What a remembered denial tells of other policies is old.
    let is_remembered = decision.source() == Source::DenyCache;
    let available = ["one", "other"].map(|name| {
        let standing = decision.policies().iter().find(|standing| standing.policy.name() == name)?;
        (!is_remembered).then_some(standing.available)
    });
    let time_us = time_us(decision).unwrap();
    let wait_us = decision.retry_after().map(|wait| wait.as_micros() as u64);
    Reply::Decided(Answer { is_allowed: decision.is_allowed(), available, time_us, wait_us })
}

fn failed(error: Error) -> Reply {
    if error.may_have_charged() { Reply::Unknown } else { Reply::Failed }
}
