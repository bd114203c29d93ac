//! An SVG with one panel per algorithm: the units admitted in the last window, over time.

use std::{fmt::Write, time::Duration};

use crate::{LIMIT, Run, STEP, WINDOW, micros};

/// Sizes and margins are in pixels.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
/// Height of the plot area of a panel.
const PANEL: f64 = 190.0;
/// Distance between the tops of two panels.
const PITCH: f64 = 278.0;
/// The time axis spans `FROM` to `TO` in seconds, the other axis 0 to `UNITS` in units.
const FROM: f64 = 8.0;
const TO: f64 = 22.0;
const UNITS: f64 = 112.0;

const INK: &str = "#1f2933";
const FAINT: &str = "#7b8794";
const GRID: &str = "#e4e7eb";
const WITHIN: &str = "#2f7ed8";
const OVER: &str = "#d64545";

/// Draws one panel for each run.
pub(crate) fn svg(runs: &[Run]) -> Result<String, std::fmt::Error> {
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
    let (limit, peak) = (LIMIT as f64, run.peak());
    let colour = if peak > LIMIT as usize { OVER } else { WITHIN };

    writeln!(svg, r#"<text x="{LEFT}" y="{}" font-size="15" font-weight="600">{}</text>"#, top + 8.0, run.title)?;
    writeln!(
        svg,
        r#"<text x="{right}" y="{}" text-anchor="end" fill="{colour}" font-weight="600">{} of {} allowed, at most {peak} in any {} s</text>"#,
        top + 8.0,
        run.allowed().count(),
        run.requests.len(),
        WINDOW.as_secs(),
    )?;

    // Solid grid lines mark units, dashed lines the boundaries of the fixed windows.
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

    // The area below the curve. The part above the limit is red.
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

    // One bar per request: blue for allowed, red for denied.
    let width = x(FROM + STEP.as_secs_f64()) - LEFT;
    for &(at, allowed) in &run.requests {
        let colour = if allowed { WITHIN } else { OVER };
        writeln!(
            svg,
            r#"<rect x="{:.2}" y="{:.1}" width="{:.2}" height="12" fill="{colour}"/>"#,
            x(seconds(at)),
            bottom + 9.0,
            width * 0.6,
        )?;
    }
    let after = run.requests.last().map_or(LEFT, |&(at, _)| x(seconds(at))) + 12.0;
    let (allowed, sent) = (run.allowed().count(), run.requests.len());
    write!(svg, r#"<text x="{after:.1}" y="{:.1}" fill="{WITHIN}">{allowed} allowed"#, bottom + 19.5)?;
    if allowed < sent {
        write!(svg, r#"<tspan fill="{OVER}" dx="8">{} denied</tspan>"#, sent - allowed)?;
    }
    writeln!(svg, "</text>")?;
    Ok(())
}

/// The SVG path of the units admitted in the last window, from the left edge of the panel to the right.
fn staircase(run: &Run, y: impl Fn(f64) -> f64) -> String {
    let mut changes: Vec<u64> = run.allowed().flat_map(|at| [at, at + micros(WINDOW)]).collect();
    changes.sort_unstable();
    changes.dedup();
    let mut path = format!("M{LEFT} {:.1}", y(0.0));
    for at in changes {
        // Writing to a string never fails.
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
