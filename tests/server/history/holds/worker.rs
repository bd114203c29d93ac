//! A worker process: holds, settles, drops and charges at random, and records each call before and after it.

use std::cell::{Cell, RefCell};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs::File, io::Write, rc::Rc};

use tokio::task::LocalSet;
use tollgate::{
    Check, Error, Limiter, Policy, RedisStore, limiter::HoldAnswer, policy::HoldSettings, store::SettleAnswer,
};

use super::record::{Kind, Record};
use crate::support::random::Random;

/// Few keys and short windows, so that limits are always contended.
pub(super) const KEYS: u64 = 25;
pub(super) const LIMIT: u64 = 40;
pub(super) const WINDOW: Duration = Duration::from_millis(20);
/// Long enough for a restart of Redis.
pub(super) const TTL: Duration = Duration::from_secs(2);
const IN_FLIGHT: u64 = 64;
const MAX_COST: u64 = 10;

/// The limit that is contended.
fn contended() -> Policy {
    Policy::new("contended", LIMIT, WINDOW).unwrap().with_holds(HoldSettings::new().with_ttl(TTL))
}

/// Counts all units of the run beside it.
pub(super) fn ledger() -> Policy {
    Policy::per_hour("ledger", Policy::MAX_LIMIT).unwrap().with_holds(HoldSettings::new().with_ttl(TTL))
}

pub(super) fn spawn(url: &str, number: usize, output: &str) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "holds::holds_worker_process", "--ignored", "--nocapture"])
        .env("HOLDS_URL", url)
        .env("HOLDS_NUMBER", number.to_string())
        .env("HOLDS_OUTPUT", output)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Runs until the process is killed.
pub(super) fn main() {
    let process: u64 = env::var("HOLDS_NUMBER").unwrap().parse().unwrap();
    // Each record is one write, which a kill does not undo.
    let log = Rc::new(Log { process, file: RefCell::new(File::create(env::var("HOLDS_OUTPUT").unwrap()).unwrap()) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = RedisStore::builder().deadline(Duration::from_secs(1)).open(&env::var("HOLDS_URL").unwrap()).unwrap();
    let (limiter, numbers) = (Limiter::new(store).without_notices(), Rc::new(Cell::new(0)));
    LocalSet::new().block_on(&runtime, async {
        for task in 0..IN_FLIGHT {
            let random = Random(process * IN_FLIGHT + task);
            tokio::task::spawn_local(run(limiter.clone(), Rc::clone(&log), Rc::clone(&numbers), random));
        }
        std::future::pending::<()>().await;
    });
}

struct Log {
    process: u64,
    file: RefCell<File>,
}

impl Log {
    fn add(&self, kind: Kind, number: u64, a: u64, b: u64) {
        let record = Record { kind, process: self.process, number, a, b };
        self.file.borrow_mut().write_all(&record.to_bytes()).unwrap();
    }
}

async fn run(limiter: Limiter, log: Rc<Log>, numbers: Rc<Cell<u64>>, mut random: Random) {
    let (contended, ledger) = (contended(), ledger());
    loop {
        let number = numbers.replace(numbers.get() + 1);
        let (key, cost) = (random.below(KEYS), 1 + random.below(MAX_COST));
        let units = cost;
        if random.one_in(4) {
            let check = Check::new(key, &contended, units).and(key, &ledger, units);
            log.add(Kind::AskCharge, number, key, cost);
            match limiter.check_all(check).await {
                Ok(decision) if decision.is_allowed() => {
                    log.add(Kind::Passed, number, crate::support::time_us(&decision).unwrap(), 0);
                }
                Ok(_) => log.add(Kind::Denied, number, 0, 0),
                Err(error) => failed(&log, number, &error).await,
            }
            continue;
        }
        let check = Check::hold(key, &contended, units).and_hold(key, &ledger, units);
        log.add(Kind::AskHold, number, key, cost);
        let hold = match limiter.hold_all(check).await {
            Ok(HoldAnswer::Open(hold)) => hold,
            Ok(HoldAnswer::Denied(_)) => {
                log.add(Kind::Denied, number, 0, 0);
                continue;
            }
            Err(error) => {
                failed(&log, number, &error).await;
                continue;
            }
        };
        log.add(Kind::Passed, number, crate::support::time_us(hold.decision()).unwrap(), 0);
        match random.below(8) {
            0 => tokio::time::sleep(Duration::from_millis(random.below(4))).await,
            1 => tokio::task::yield_now().await,
            _ => {}
        }
        if random.one_in(16) {
            log.add(Kind::Dropped, number, now_us(), 0);
            drop(hold);
            continue;
        }
        // Most settle at or below what they held.
        let actual = random.below(cost + 3);
        log.add(Kind::AskSettlement, number, actual, now_us());
        match hold.settle(actual).await {
            Ok(SettleAnswer::Settled) => log.add(Kind::Settled, number, now_us(), 0),
            Ok(_) => log.add(Kind::Expired, number, 0, 0),
            // It is sent again in the background.
            Err(_) => log.add(Kind::Unknown, number, 0, 0),
        }
    }
}

/// A check without a verdict. The store may be down, so the task waits before it calls again.
async fn failed(log: &Log, number: u64, error: &Error) {
    log.add(if error.may_have_charged() { Kind::Unknown } else { Kind::Failed }, number, 0, 0);
    tokio::time::sleep(Duration::from_millis(10)).await;
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}
