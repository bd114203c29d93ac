//! The outage as a chart: a panel for each failure policy.

use tollgate::FailurePolicy;

use super::client::{Slice, Watched};
use super::load::{BETWEEN_REQUESTS, INSTANCES, LIMIT, SLICE, Times, WINDOW};
use crate::svg::{AMBER, Axis, DARK, GREEN, GREY, Line, Panel, RED, Span, Stroke, panels};

pub fn draw(all: &[Watched], times: Times, redis_version: &str) -> String {
    let (sent, limit) = (1.0 / BETWEEN_REQUESTS.as_secs_f64(), LIMIT as f64 / WINDOW.as_secs_f64());
    let subtitle = format!(
        "One client, {sent:.0} requests/s, a limit of {limit:.0}/s, Redis {redis_version}. Below each panel: the breaker"
    );
    let all: Vec<Panel> = all.iter().map(|watched| panel(watched, times)).collect();
    panels("Redis freezes and comes back", &subtitle, &all)
}

fn panel(watched: &Watched, times: Times) -> Panel {
    let [frozen, back, end] = [times.frozen, times.back, times.end].map(|time| time.as_secs_f64());
    let slices = watched.slices(times.end);
    let line = |label: &str, colour, stroke, of: fn(&Slice) -> u32| Line {
        label: label.to_owned(),
        colour,
        stroke,
        is_marked: false,
        // Requests a second, in the middle of each slice.
        points: slices
            .iter()
            .enumerate()
            .map(|(number, slice)| {
                ((number as f64 + 0.5) * SLICE.as_secs_f64(), f64::from(of(slice)) / SLICE.as_secs_f64())
            })
            .collect(),
    };
    let second = |at: f64| (at, format!("{at:.0} s"));
    Panel {
        title: match watched.policy {
            FailurePolicy::Local => format!("{}, one of {INSTANCES} instances", watched.name()),
            _ => watched.name().to_owned(),
        },
        x: Axis {
            title: "",
            ticks: (0..=5).map(|tick| second(end / 5.0 * f64::from(tick))).collect(),
            is_logarithmic: false,
        },
        y: Axis {
            title: "requests/s",
            ticks: [0.0, 50.0, 100.0, 150.0, 200.0, 250.0].map(|rate| (rate, format!("{rate:.0}"))).to_vec(),
            is_logarithmic: false,
        },
        lines: vec![
            line("pass", GREEN, Stroke::Solid, |slice| slice.passed),
            line("429", DARK, Stroke::Dashed, |slice| slice.denied),
            line("503", RED, Stroke::Solid, |slice| slice.closed),
        ],
        background: vec![Span { label: "Redis is frozen".to_owned(), colour: GREY, from: frozen, to: back }],
        strip: states(watched, end),
    }
}

/// The breaker is closed at the start.
fn states(watched: &Watched, end: f64) -> Vec<Span> {
    let mut states = vec![(0.0, "closed")];
    states.extend(watched.states().iter().map(|(at, state)| (at.as_secs_f64(), *state)));
    let ends = states.iter().skip(1).map(|(at, _)| *at).chain([end]);
    let spans = states.iter().zip(ends).map(|(&(from, state), to)| {
        let colour = match state {
            "closed" => GREEN,
            "open" => RED,
            _ => AMBER,
        };
        Span { label: state.to_owned(), colour, from, to: to.min(end) }
    });
    spans.filter(|span| span.from < span.to).collect()
}
