//! The latencies as a chart: a panel for each protocol and percentile.

use super::{latency::Curve, outcome::Latency, site::Variant, tools::Protocol};
use crate::svg::{Axis, BLUE, DARK, GREEN, Line, Panel, Stroke, panels};

const FIGURES: [(&str, fn(&Latency) -> f64); 3] =
    [("p50", |latency| latency.p50), ("p99", |latency| latency.p99), ("p99.9", |latency| latency.p999)];

pub fn draw(curves: &[Curve], redis_version: &str) -> String {
    let subtitle = format!(
        "The example server on one core; oha (open loop) and Redis {redis_version} on the other one, to 95 % of capacity"
    );
    let mut all = Vec::new();
    for protocol in Protocol::ALL {
        let curves: Vec<&Curve> = curves.iter().filter(|curve| curve.protocol == protocol).collect();
        all.extend(FIGURES.map(|(name, figure)| panel(&format!("{}, {name}", protocol.name()), &curves, figure)));
    }
    panels("Latency of a server with the layer and without", &subtitle, &all)
}

fn panel(title: &str, curves: &[&Curve], figure: fn(&Latency) -> f64) -> Panel {
    let highest = curves.iter().flat_map(|curve| &curve.points).map(|point| point.per_second).fold(1.0, f64::max);
    // Five ticks of whole thousands.
    let step = (highest / 5e3).ceil().max(1.0) * 1e3;
    let lines = curves.iter().map(|curve| Line {
        label: match curve.variant {
            Variant::NoLayer => "no layer".to_owned(),
            Variant::Memory => "counts in memory".to_owned(),
            Variant::Redis => "counts in Redis".to_owned(),
        },
        colour: match curve.variant {
            Variant::NoLayer => DARK,
            Variant::Memory => GREEN,
            Variant::Redis => BLUE,
        },
        stroke: if curve.variant == Variant::NoLayer { Stroke::Dashed } else { Stroke::Solid },
        points: curve.points.iter().map(|point| (point.per_second, figure(&point.latency) / 1e3)).collect(),
    });
    Panel {
        title: title.to_owned(),
        x: Axis {
            title: "requests/s",
            ticks: (0..=5)
                .map(|tick| (f64::from(tick) * step, format!("{:.0} k", f64::from(tick) * step / 1e3)))
                .collect(),
            is_logarithmic: false,
        },
        y: Axis {
            title: "milliseconds",
            ticks: [0.01, 0.1, 1.0, 10.0, 100.0].map(|at| (at, at.to_string())).to_vec(),
            is_logarithmic: true,
        },
        lines: lines.collect(),
        background: Vec::new(),
        strip: Vec::new(),
    }
}
