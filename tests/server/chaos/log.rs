//! The log of a worker: records of requests, memory, tasks and overruns of sleeps.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};
use std::{fs, rc::Rc};

use tokio::time::sleep;

use crate::record::{Kind, Record, now_us};
use crate::scheduling::TIMER_SLACK_US;

#[derive(Debug)]
pub(crate) struct Log {
    /// One instant on both clocks.
    clocks: Cell<(Instant, u64)>,
    pub(crate) records: RefCell<Vec<Record>>,
    pub(crate) ended: Cell<bool>,
    /// Requests without a response yet.
    pub(crate) in_flight: Cell<u32>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            clocks: Cell::new(clocks()),
            records: RefCell::default(),
            ended: Cell::default(),
            in_flight: Cell::default(),
        }
    }

    pub(crate) fn time_us(&self, at: Instant) -> u64 {
        let (base, base_us) = self.clocks.get();
        match at.checked_duration_since(base) {
            Some(later) => base_us + later.as_micros() as u64,
            None => base_us - (base - at).as_micros() as u64,
        }
    }

    pub(crate) fn add(&self, record: Record) {
        self.records.borrow_mut().push(record);
    }

    /// Records memory and tasks, and realigns the clocks.
    pub(crate) fn usage(&self) {
        self.clocks.set(clocks());
        // The second number is the resident pages; 0 where the file does not exist.
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64;
        let (kind, end_us, time_us) = (Kind::Usage, now_us(), pages * 4096);
        self.add(Record { kind, key: 0, cost: 0, wait_us: 0, end_us, time_us, extra: tasks });
    }
}

/// Reads both clocks; repeats the reading if the process was stopped in between.
fn clocks() -> (Instant, u64) {
    loop {
        let (before, now_us) = (Instant::now(), now_us());
        if before.elapsed() < Duration::from_micros(100) {
            return (before, now_us);
        }
    }
}

/// Sleeps in a loop and records every overrun, during which the process did not run. The sleeps are short, so one is
/// always about to end, also when the process is stopped.
pub(crate) async fn measure_oversleep(log: Rc<Log>) {
    const SLEEP: Duration = Duration::from_millis(1);
    let mut start = Instant::now();
    loop {
        sleep(SLEEP).await;
        let end = Instant::now();
        let wait_us = u32::try_from((end - start - SLEEP).as_micros()).unwrap();
        if wait_us > TIMER_SLACK_US {
            let end_us = log.time_us(end);
            log.add(Record { kind: Kind::Oversleep, key: 0, cost: 0, wait_us, end_us, time_us: 0, extra: 0 });
        }
        // The end of this sleep starts the next measurement, so that no stop falls between two measurements.
        start = end;
    }
}
