//! The latencies as a chart: a panel for each protocol and percentile.

use super::latency::{Curve, SHARES};
use super::{outcome::Latency, site::Variant, tools::Protocol};
use crate::svg::{Axis, BLUE, DARK, GREEN, Line, Panel, Stroke, panels};

const FIGURES: [(&str, fn(&Latency) -> f64); 3] = [
    ("p50: half of the requests take less", |latency| latency.p50),
    ("p99: 99 of 100 requests take less", |latency| latency.p99),
    ("p99.9: 999 of 1 000 requests take less", |latency| latency.p999),
];

pub fn draw(curves: &[Curve], redis_version: &str) -> String {
    let shares = SHARES.map(|share| share.to_string()).join(", ");
    let subtitle = format!(
        "Server on one core, oha and Redis {redis_version} on the other. Dots: {shares} % of each server's capacity"
    );
    let latencies = latencies(curves);
    let mut all = Vec::new();
    for protocol in Protocol::ALL {
        let curves: Vec<&Curve> = curves.iter().filter(|curve| curve.protocol == protocol).collect();
        let loads = loads(&curves);
        all.extend(FIGURES.map(|(name, figure)| {
            let title = format!("{}, {name}", protocol.name());
            Panel {
                title,
                x: Axis { title: "requests per second", ticks: loads.clone(), is_logarithmic: false },
                y: Axis { title: "latency, milliseconds", ticks: latencies.clone(), is_logarithmic: true },
                lines: curves.iter().map(|curve| line(curve, figure)).collect(),
                background: Vec::new(),
                strip: Vec::new(),
            }
        }));
    }
    panels("Latency of a server with the layer and without", &subtitle, &all)
}

/// Five steps of whole thousands, up to the highest load.
fn loads(curves: &[&Curve]) -> Vec<(f64, String)> {
    let highest = curves.iter().flat_map(|curve| &curve.points).map(|point| point.per_second).fold(1.0, f64::max);
    let step = (highest / 5e3).ceil() as u32;
    (0..=5_u32)
        .map(|tick| tick * step)
        .map(|thousands| {
            (f64::from(thousands) * 1e3, if thousands == 0 { "0".to_owned() } else { format!("{thousands} 000") })
        })
        .collect()
}

/// Powers of ten around all latencies: the same for each panel, so that panels can be compared.
fn latencies(curves: &[Curve]) -> Vec<(f64, String)> {
    let points = || curves.iter().flat_map(|curve| &curve.points).map(|point| point.latency);
    let lowest = points().map(|latency| latency.p50 / 1e3).fold(1.0, f64::min).max(0.01).log10().floor() as i32;
    let highest = points().map(|latency| latency.p999 / 1e3).fold(10.0, f64::max).log10().ceil() as i32;
    (lowest..=highest).map(|power| 10_f64.powi(power)).map(|at| (at, at.to_string())).collect()
}

fn line(curve: &Curve, figure: fn(&Latency) -> f64) -> Line {
    let (label, colour, stroke) = match curve.variant {
        Variant::NoLayer => ("no layer", DARK, Stroke::Dashed),
        Variant::Memory => ("layer, memory", GREEN, Stroke::Solid),
        Variant::Redis => ("layer, Redis", BLUE, Stroke::Solid),
    };
    Line {
        label: label.to_owned(),
        colour,
        stroke,
        is_marked: true,
        points: curve.points.iter().map(|point| (point.per_second, figure(&point.latency) / 1e3)).collect(),
    }
}
