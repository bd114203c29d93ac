//! What a process uses, once a second.

use std::fs;

/// The resident memory in bytes, file handles, tasks of the runtime, and decisions since the last sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Milliseconds since the process has begun.
    pub(super) at: u64,
    pub(super) memory: u64,
    pub(super) handles: u64,
    pub(super) tasks: u64,
    pub(super) decisions: u64,
}

const WORD: &str = "sample ";

impl Sample {
    pub(super) fn take(at: u64, decisions: u64) -> Self {
        // The second number is the resident pages.
        let pages = fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        let handles = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() as u64;
        Self { at, memory: pages * 4096, handles, tasks, decisions }
    }

    pub(super) fn line(&self) -> String {
        let Self { at, memory, handles, tasks, decisions } = self;
        format!("{WORD}{at} {memory} {handles} {tasks} {decisions}")
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<u64> = line.strip_prefix(WORD)?.split(' ').map(|number| number.parse().unwrap()).collect();
        let [at, memory, handles, tasks, decisions] = numbers[..] else { return None };
        Some(Self { at, memory, handles, tasks, decisions })
    }
}

/// The medians of the first and of the last quarter after the warm-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    memory: (u64, u64),
    handles: (u64, u64),
    tasks: (u64, u64),
}

/// The part of a run after which all code has run and all tables have their size.
const WARM_UP: f64 = 0.2;

pub(super) fn growth(samples: &[Sample]) -> Growth {
    let end = samples.last().unwrap().at as f64;
    let (first, last) = (end * (WARM_UP + (1.0 - WARM_UP) / 4.0), end * (1.0 - (1.0 - WARM_UP) / 4.0));
    let quarters = |of: fn(&Sample) -> u64| {
        let between = |from: f64, until: f64| {
            let of_time = samples.iter().filter(|sample| (from..=until).contains(&(sample.at as f64)));
            let mut values: Vec<u64> = of_time.map(of).collect();
            values.sort_unstable();
            values[values.len() / 2]
        };
        (between(end * WARM_UP, first), between(last, end))
    };
    Growth {
        memory: quarters(|sample| sample.memory),
        handles: quarters(|sample| sample.handles),
        tasks: quarters(|sample| sample.tasks),
    }
}

impl Growth {
    /// The growth that the medians may differ by without a leak: one byte a decision would be far more in an hour.
    const MEMORY: u64 = 2 << 20;
    const HANDLES: u64 = 2;
    const TASKS: u64 = 4;

    pub(super) fn assert_flat(&self) {
        let Self { memory, handles, tasks } = self;
        assert!(memory.1 <= memory.0 + Self::MEMORY, "memory grows: {self:?}");
        assert!(handles.1 <= handles.0 + Self::HANDLES, "file handles grow: {self:?}");
        assert!(tasks.1 <= tasks.0 + Self::TASKS, "tasks grow: {self:?}");
    }
}
