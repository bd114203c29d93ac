//! Why the log is the default: `cargo run --release --example boundary [-- --redis URL] [--svg FILE]`.
//!
//! A client sends a full burst just before a boundary of the clock-aligned window and another just after it. The fixed
//! window lets both through, twice the limit within two seconds; the sliding window log lets one through. Nothing waits:
//! time is a [`Clock`] of this example's own, which it moves by hand.

use std::{
    fmt::Write,
    fs, process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tollgate::{Algorithm, Limiter, MemoryStore, Policy, RedisStore, clock::Clock};

type Failure = Box<dyn std::error::Error>;

const LIMIT: u32 = 50;
const WINDOW: Duration = Duration::from_secs(10);
/// Between two requests of a burst.
const STEP: Duration = Duration::from_millis(20);
/// A boundary: a whole number of windows since the Unix epoch.
const BOUNDARY_US: u64 = 1_767_225_610_000_000;

/// Time that stands still until it is moved; clones share it.
#[derive(Clone, Debug, Default)]
struct HandMoved(Arc<AtomicU64>);

impl HandMoved {
    fn set_us(&self, now_us: u64) {
        self.0.store(now_us, Ordering::SeqCst);
    }
}

impl Clock for HandMoved {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What one algorithm made of the two bursts.
struct Run {
    title: &'static str,
    /// When, in microseconds since the start of the first window, and whether it passed.
    requests: Vec<(u64, bool)>,
    retry_after: Option<Duration>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> process::ExitCode {
    match run().await {
        Ok(()) => process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let (url, svg) = arguments()?;
    let clock = HandMoved::default();
    let limiter = match &url {
        Some(url) => Limiter::new(RedisStore::builder().clock(clock.clone()).connect(url)?),
        None => Limiter::new(MemoryStore::new().with_clock(clock.clone())),
    };
    // Its own key, so that every run finds an empty count.
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let key = format!("boundary:{}:{nanos}", process::id());

    let policy = Policy::new("boundary", LIMIT, WINDOW)?;
    let mut runs = Vec::new();
    for (title, algorithm) in
        [("fixed window", Algorithm::FixedWindow), ("sliding window log", Algorithm::SlidingWindowLog)]
    {
        runs.push(two_bursts(title, &limiter, &key, &policy.clone().with_algorithm(algorithm), &clock).await?);
    }

    println!(
        "{LIMIT} units per {WINDOW:?}; {LIMIT} requests just before a window's boundary, {LIMIT} just after it:\n"
    );
    for run in &runs {
        let (passed, sent) = (run.passed().count(), run.requests.len());
        print!("  {:20}{passed:4} of {sent} pass, at most {:3} in any {WINDOW:?}", run.title, run.peak());
        match run.retry_after {
            Some(wait) => println!("; the first refused one may come back in {wait:?}"),
            None => println!(),
        }
    }
    if let Some(file) = svg {
        fs::write(&file, plot(&runs)?)?;
        println!("\nThe plot is in {file}.");
    }
    Ok(())
}

async fn two_bursts(
    title: &'static str,
    limiter: &Limiter,
    key: &str,
    policy: &Policy,
    clock: &HandMoved,
) -> Result<Run, Failure> {
    let mut run = Run { title, requests: Vec::new(), retry_after: None };
    let start = BOUNDARY_US - micros(STEP) * u64::from(LIMIT);
    for request in 0..2 * u64::from(LIMIT) {
        let now = start + request * micros(STEP);
        clock.set_us(now);
        let decision = limiter.check(key, policy, 1).await?;
        run.requests.push((now - (BOUNDARY_US - micros(WINDOW)), decision.is_allowed()));
        run.retry_after = run.retry_after.or(decision.retry_after());
    }
    Ok(run)
}

impl Run {
    fn passed(&self) -> impl Iterator<Item = u64> {
        self.requests.iter().filter(|(_, passed)| *passed).map(|(at, _)| *at)
    }

    /// How many passed in the window that ends at `at`.
    fn in_window_at(&self, at: u64) -> usize {
        self.passed().filter(|&passed| passed <= at && at < passed + micros(WINDOW)).count()
    }

    /// The fullest window of all.
    fn peak(&self) -> usize {
        self.passed().map(|at| self.in_window_at(at)).max().unwrap_or(0)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Reads `--redis URL` and `--svg FILE`.
fn arguments() -> Result<(Option<String>, Option<String>), String> {
    const USAGE: &str = "Usage: boundary [--redis URL] [--svg FILE]";
    let (mut url, mut svg) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or(USAGE)?;
        match flag.as_str() {
            "--redis" => url = Some(value),
            "--svg" => svg = Some(value),
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok((url, svg))
}

// ## The plot: one panel per algorithm, the units admitted in the last window over time.

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const PANEL: f64 = 190.0;
const PITCH: f64 = 278.0;
/// The time axis goes from `FROM` to `TO` seconds, the units from 0 to `UNITS`.
const FROM: f64 = 8.0;
const TO: f64 = 22.0;
const UNITS: f64 = 112.0;

const INK: &str = "#1f2933";
const FAINT: &str = "#7b8794";
const GRID: &str = "#e4e7eb";
const WITHIN: &str = "#2f7ed8";
const OVER: &str = "#d64545";

fn plot(runs: &[Run]) -> Result<String, std::fmt::Error> {
    let height = TOP + PITCH * runs.len() as f64;
    let mut svg = String::new();
    writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13" fill="{INK}">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="32" font-size="19" font-weight="600">A full burst on each side of a boundary</text>
<text x="{LEFT}" y="54" fill="{FAINT}">The limit is {LIMIT} units per {window} s. The curves: units admitted in the last {window} s. The bars: every request.</text>"#,
        window = WINDOW.as_secs(),
    )?;
    for (index, run) in runs.iter().enumerate() {
        panel(&mut svg, run, TOP + PITCH * index as f64)?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn panel(svg: &mut String, run: &Run, top: f64) -> std::fmt::Result {
    let bottom = top + 24.0 + PANEL;
    let right = WIDTH - RIGHT;
    let y = |units: f64| bottom - units / UNITS * PANEL;
    let (limit, peak) = (f64::from(LIMIT), run.peak());
    let colour = if peak > LIMIT as usize { OVER } else { WITHIN };

    writeln!(svg, r#"<text x="{LEFT}" y="{}" font-size="15" font-weight="600">{}</text>"#, top + 8.0, run.title)?;
    writeln!(
        svg,
        r#"<text x="{right}" y="{}" text-anchor="end" fill="{colour}" font-weight="600">{} of {} pass, at most {peak} in any {} s</text>"#,
        top + 8.0,
        run.passed().count(),
        run.requests.len(),
        WINDOW.as_secs(),
    )?;

    // Axes: quiet lines for units, dashed ones for the boundaries of the clock-aligned windows.
    for units in [0.0, 50.0, 100.0] {
        writeln!(
            svg,
            r#"<line x1="{LEFT}" x2="{right}" y1="{0:.1}" y2="{0:.1}" stroke="{GRID}"/><text x="{1}" y="{2:.1}" text-anchor="end" fill="{FAINT}">{units}</text>"#,
            y(units),
            LEFT - 10.0,
            y(units) + 4.5,
        )?;
    }
    for second in [10.0, 20.0] {
        writeln!(
            svg,
            r#"<line x1="{0:.1}" x2="{0:.1}" y1="{1:.1}" y2="{bottom:.1}" stroke="{FAINT}" stroke-dasharray="3 4"/><text x="{2:.1}" y="{3:.1}" fill="{FAINT}" font-size="12">boundary</text>"#,
            x(second),
            top + 20.0,
            x(second) + 6.0,
            top + 30.0,
        )?;
    }
    for second in (8..=22).step_by(2) {
        let at = x(f64::from(second));
        writeln!(
            svg,
            r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle" fill="{FAINT}">{second} s</text>"#,
            bottom + 40.0
        )?;
    }

    // The curve, and in red what lies above the limit.
    let area = format!("{} V{:.1} H{LEFT} Z", staircase(run, y), y(0.0));
    writeln!(svg, r#"<path d="{area}" fill="{WITHIN}" fill-opacity="0.14"/>"#)?;
    if peak > LIMIT as usize {
        let clip = format!("over-{:.0}", top);
        writeln!(
            svg,
            r#"<clipPath id="{clip}"><rect x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}"/></clipPath>
<path d="{area}" fill="{OVER}" fill-opacity="0.30" clip-path="url(#{clip})"/>"#,
            top,
            right - LEFT,
            y(limit) - top,
        )?;
    }
    writeln!(
        svg,
        r#"<line x1="{LEFT}" x2="{right}" y1="{0:.1}" y2="{0:.1}" stroke="{OVER}" stroke-width="1.5"/><text x="{1}" y="{2:.1}" fill="{OVER}">limit</text>"#,
        y(limit),
        LEFT + 8.0,
        y(limit) - 6.0,
    )?;
    writeln!(
        svg,
        r#"<path d="{}" fill="none" stroke="{WITHIN}" stroke-width="2" stroke-linejoin="round"/>"#,
        staircase(run, y)
    )?;

    // Every request as a bar, and what became of it.
    let width = x(FROM + STEP.as_secs_f64()) - LEFT;
    for &(at, passed) in &run.requests {
        let colour = if passed { WITHIN } else { OVER };
        writeln!(
            svg,
            r#"<rect x="{:.2}" y="{:.1}" width="{:.2}" height="12" fill="{colour}"/>"#,
            x(seconds(at)),
            bottom + 9.0,
            width * 0.6,
        )?;
    }
    let after = run.requests.last().map_or(LEFT, |&(at, _)| x(seconds(at))) + 12.0;
    let (passed, sent) = (run.passed().count(), run.requests.len());
    write!(svg, r#"<text x="{after:.1}" y="{:.1}" fill="{WITHIN}">{passed} passed"#, bottom + 19.5)?;
    if passed < sent {
        write!(svg, r#"<tspan fill="{OVER}" dx="8">{} refused</tspan>"#, sent - passed)?;
    }
    writeln!(svg, "</text>")?;
    Ok(())
}

/// The units admitted in the last window, as a path from the left edge to the right one.
fn staircase(run: &Run, y: impl Fn(f64) -> f64) -> String {
    let mut changes: Vec<u64> = run.passed().flat_map(|at| [at, at + micros(WINDOW)]).collect();
    changes.sort_unstable();
    changes.dedup();
    let mut path = format!("M{LEFT} {:.1}", y(0.0));
    for at in changes {
        // Writing to a string cannot fail.
        let _ = write!(path, " H{:.2} V{:.1}", x(seconds(at)), y(run.in_window_at(at) as f64));
    }
    let _ = write!(path, " H{}", WIDTH - RIGHT);
    path
}

fn x(second: f64) -> f64 {
    LEFT + (second - FROM) / (TO - FROM) * (WIDTH - RIGHT - LEFT)
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}
