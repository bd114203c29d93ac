//! The chart of a run: what the processes use, over time.

use super::sample::Sample;
use crate::svg::{Axis, BLUE, GREEN, Line, Panel, Stroke, panels};

/// The most points of a line.
const POINTS: usize = 200;

pub(super) fn draw(processes: &[Vec<Sample>], minutes: f64, faults: usize) -> String {
    let subtitle = format!(
        "{minutes:.0} minutes, {} processes, {faults} faults of Redis and its network, a change of a limit every 5 s",
        processes.len()
    );
    let panel = |title: &str, unit, of: fn(&Sample) -> f64| Panel {
        title: title.to_owned(),
        x: Axis {
            title: "minutes",
            ticks: ticks(minutes, 5).into_iter().map(|at| (at, format!("{at:.0}"))).collect(),
            is_logarithmic: false,
        },
        y: Axis { title: unit, ticks: y_ticks(processes, of), is_logarithmic: false },
        lines: processes
            .iter()
            .zip([GREEN, BLUE])
            .zip(1..)
            .map(|((samples, colour), number)| Line {
                label: format!("process {number}"),
                colour,
                stroke: Stroke::Solid,
                is_marked: false,
                points: points(samples, of),
            })
            .collect(),
        background: Vec::new(),
        strip: Vec::new(),
    };
    let all = [
        panel("Resident memory", "MB", |sample| sample.memory as f64 / 1e6),
        panel("File handles", "", |sample| sample.handles as f64),
        panel("Tasks of the runtime", "", |sample| sample.tasks as f64),
        panel("Decisions", "a second", |sample| sample.decisions as f64),
    ];
    panels("Faults, changes of limits, leases, waiters and slots at the same time", &subtitle, &all)
}

/// Even steps from 0 to at least `most`, about as many as asked for.
fn ticks(most: f64, number: u32) -> Vec<f64> {
    let rough = (most / f64::from(number)).max(1.0);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= rough).unwrap();
    (0..=(most / step).ceil() as u32).map(|tick| f64::from(tick) * step).collect()
}

fn y_ticks(processes: &[Vec<Sample>], of: fn(&Sample) -> f64) -> Vec<(f64, String)> {
    let most = processes.iter().flat_map(|samples| points(samples, of)).map(|(_, value)| value).fold(1.0, f64::max);
    ticks(most, 4).into_iter().map(|value| (value, format!("{value:.0}"))).collect()
}

/// The largest value of each part of the run, so that no peak is left out.
fn points(samples: &[Sample], of: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let part = |part: &[Sample]| {
        let at = part[0].at as f64 / 60_000.0;
        (at, part.iter().map(of).fold(0.0, f64::max))
    };
    samples.chunks(samples.len().div_ceil(POINTS).max(1)).map(part).collect()
}
