//! What a worker has to tell, and what it sees of the machine that it runs on.

use std::{
    cell::{Cell, RefCell},
    fs,
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    machine::ALWAYS_LATE_US,
    record::{Kind, Record, now_us},
};

#[derive(Debug)]
pub(crate) struct Log {
    /// The same moment by both clocks.
    clocks: Cell<(Instant, u64)>,
    pub(crate) records: RefCell<Vec<Record>>,
    pub(crate) ended: Cell<bool>,
    /// Requests that have no answer yet.
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

    /// Notes memory and tasks, and sets the clocks by each other.
    pub(crate) fn usage(&self) {
        self.clocks.set(clocks());
        // Resident pages are the second number. Where there is no such file there is nothing to compare.
        let pages = fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok()).unwrap_or(0);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64;
        let (kind, end_us, time_us) = (Kind::Usage, now_us(), pages * 4096);
        self.add(Record { kind, key: 0, cost: 0, wait_us: 0, end_us, time_us, extra: tasks });
    }
}

/// Reads both clocks, again if the process was stopped in between.
fn clocks() -> (Instant, u64) {
    loop {
        let (before, now_us) = (Instant::now(), now_us());
        if before.elapsed() < Duration::from_micros(100) {
            return (before, now_us);
        }
    }
}

/// Sleeps, again and again, and notes when that took too long: then the process did not get to run. The sleeps are short,
/// so that one that ends soon is there at any time, also right after a stop.
pub(crate) async fn oversleep(log: Rc<Log>) {
    const NAP: Duration = Duration::from_millis(1);
    let mut start = Instant::now();
    loop {
        // What is measured.
        sleep(NAP).await;
        let end = Instant::now();
        let wait_us = u32::try_from((end - start - NAP).as_micros()).unwrap();
        if wait_us > ALWAYS_LATE_US {
            let end_us = log.time_us(end);
            log.add(Record { kind: Kind::Late, key: 0, cost: 0, wait_us, end_us, time_us: 0, extra: 0 });
        }
        // And not when the next one begins, or a stop in between would go unseen.
        start = end;
    }
}
