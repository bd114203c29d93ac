//! A long run of everything at once: two processes with live changes of limits, leases, waiters and slots, over all
//! faults that lose no counts. Memory, file handles and tasks stay flat, and no window has more than its limit.
//!
//! `TOLLGATE_SOAK_SECONDS` sets the duration, and `TOLLGATE_SOAK_SVG` the file of the chart.

mod chart;
mod life;
mod sample;
mod spent;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{env, fs};

use self::sample::Sample;
use self::spent::{Spendings, Spent};
use crate::scenario::{ONE_SECOND_US, print_line, undisturbed};
use crate::{environment::Environment, faults::LOSSLESS, record::now_us, soak::SERVER, target::Target};

const HOUR: u64 = 3_600;
const LIVES: usize = 2;
/// The duration of a fault, and the pause between two of them.
const HOLD: Duration = Duration::from_millis(700);
const CALM: Duration = Duration::from_secs(3);
/// A call has ended and is reported after this time.
const REPORTED_US: u64 = 10 * ONE_SECOND_US;

#[test]
#[ignore = "takes an hour: tests/run --long"]
fn long_hour_of_faults_and_changes_grows_nothing_and_never_exceeds_a_limit() {
    let seconds = env::var("TOLLGATE_SOAK_SECONDS").map_or(HOUR, |text| text.parse().unwrap());
    undisturbed(|| run(Duration::from_secs(seconds)));
}

/// Not a test: the entry point of the processes.
#[test]
#[ignore = "started by the test above"]
fn life_process() {
    life::main();
}

/// What the processes have reported.
#[derive(Default)]
struct Reported {
    spendings: Spendings,
    samples: [Vec<Sample>; LIVES],
}

fn run(duration: Duration) {
    let mut environment = Environment::start(SERVER, true, HOLD);
    let reported = Arc::new(Mutex::new(Reported::default()));
    let lives: Vec<Life> =
        (0..LIVES).map(|number| Life::start(number, &environment.address(), duration, &reported)).collect();
    let (start, mut faults) = (Instant::now(), 0);
    for scenario in LOSSLESS.iter().cycle() {
        thread::sleep(CALM);
        if start.elapsed() + Duration::from_secs(5) > duration {
            break;
        }
        (scenario.fault)(&mut environment);
        environment.serves_again_us();
        faults += 1;
        lock(&reported).spendings.judge(now_us() - REPORTED_US);
    }
    lives.into_iter().for_each(Life::join);
    let mut reported = lock(&reported);
    reported.spendings.judge(u64::MAX);
    let found = reported.spendings.found();
    let minutes = duration.as_secs_f64() / 60.0;
    print_line(&format!("day {minutes:.1} minutes, {faults} faults: {found:?}"));
    if let Some(path) = env::var_os("TOLLGATE_SOAK_SVG") {
        fs::write(path, chart::draw(&reported.samples, minutes, faults)).unwrap();
    }
    for found in found {
        assert_eq!(found.over, 0, "{found:?}");
        assert!(found.most * 5 >= found.limit * 4, "the limit was not contended: {found:?}");
    }
    for (number, samples) in reported.samples.iter().enumerate() {
        let growth = sample::growth(samples);
        print_line(&format!("day process {number}: {growth:?}"));
        growth.assert_flat();
    }
}

fn lock(reported: &Mutex<Reported>) -> MutexGuard<'_, Reported> {
    reported.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process, killed when this value is dropped.
struct Life {
    process: Child,
    reader: Option<JoinHandle<()>>,
}

impl Life {
    fn start(number: usize, target: &str, duration: Duration, reported: &Arc<Mutex<Reported>>) -> Self {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["--exact", "day::life_process", "--ignored", "--nocapture"])
            .env("RUST_BACKTRACE", "0")
            .env("CHAOS_TARGET", target)
            .env("CHAOS_SECONDS", duration.as_secs().to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, reported) = (BufReader::new(process.stdout.take().unwrap()).lines(), Arc::clone(reported));
        let reader = thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(sample) = Sample::parse(&line) {
                    lock(&reported).samples[number].push(sample);
                } else if let Some((count, spent)) = Spent::parse(&line) {
                    lock(&reported).spendings.add(&count, spent);
                }
            }
        });
        Self { process, reader: Some(reader) }
    }

    fn join(mut self) {
        let status = self.process.wait().unwrap();
        assert!(status.success(), "a process has failed, see above");
        self.reader.take().unwrap().join().unwrap();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Both calls fail without effect for a process that has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
