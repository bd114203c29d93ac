//! Panels of lines, one below the other.

use std::fmt::Write;

use super::{FAINT, GRID, INK, WIDTH, escape, open};

/// Lines over a common axis.
pub struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Marked parts of the x axis, behind the lines.
    pub background: Vec<Span>,
    /// States over time, as a bar below the x axis.
    pub strip: Vec<Span>,
}

/// An axis from its first to its last tick.
pub struct Axis {
    pub title: &'static str,
    pub ticks: Vec<(f64, String)>,
    pub is_logarithmic: bool,
}

pub struct Line {
    pub label: String,
    pub colour: &'static str,
    pub stroke: Stroke,
    /// Whether a dot marks each point.
    pub is_marked: bool,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
pub enum Stroke {
    Solid,
    Dashed,
    /// A dot at each point, and no line between them.
    Dots,
}

/// A part of the x axis.
pub struct Span {
    pub label: String,
    pub colour: &'static str,
    pub from: f64,
    pub to: f64,
}

/// Room for the ticks and the title of the y axis.
const LEFT: f64 = 84.0;
/// Room for the names of the lines.
const RIGHT: f64 = 170.0;
const TOP: f64 = 66.0;
const TITLE: f64 = 28.0;
const PLOT: f64 = 150.0;
/// Room for the ticks and the title of the x axis.
const BELOW: f64 = 46.0;
const STRIP: f64 = 20.0;
/// Distance of two names of lines.
const NAME: f64 = 15.0;
/// Distance of two rows of the key, and the length of its samples.
const KEY: f64 = 20.0;
const SAMPLE: f64 = 24.0;

impl Axis {
    /// The place of a value between the first tick, 0, and the last, 1.
    fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_logarithmic { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let ends = self.ticks.first().zip(self.ticks.last()).map(|(first, last)| (scale(first.0), scale(last.0)));
        ends.map_or(0.0, |(first, last)| ((scale(value) - first) / (last - first)).clamp(0.0, 1.0))
    }
}

/// Draws the panels below a title.
pub fn panels(title: &str, subtitle: &str, panels: &[Panel]) -> String {
    let height = |panel: &Panel| TITLE + PLOT + BELOW + if panel.strip.is_empty() { 0.0 } else { STRIP };
    let mut svg = open(title, subtitle, TOP + panels.iter().map(height).sum::<f64>());
    let mut top = TOP;
    for panel in panels {
        draw(&mut svg, panel, top + TITLE);
        top += height(panel);
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, panel: &Panel, top: f64) {
    let (right, bottom) = (WIDTH - RIGHT, top + PLOT);
    let x = |value: f64| LEFT + panel.x.place(value) * (right - LEFT);
    let y = |value: f64| bottom - panel.y.place(value) * PLOT;
    // Writing to a String never fails.
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"{:.0}\" font-weight=\"600\" fill=\"{INK}\">{}</text>",
        top - 11.0,
        escape(&panel.title),
    );
    for span in &panel.background {
        let (from, to) = (x(span.from), x(span.to));
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{PLOT}\" fill=\"{}\" fill-opacity=\"0.3\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{FAINT}\">{}</text>",
            to - from,
            span.colour,
            from + 6.0,
            top + 14.0,
            escape(&span.label),
        );
    }
    for (value, label) in &panel.y.ticks {
        let at = y(*value);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"{GRID}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{FAINT}\">{}</text>",
            LEFT - 8.0,
            at + 4.5,
            escape(label),
        );
    }
    let below = bottom + if panel.strip.is_empty() { 0.0 } else { STRIP };
    for (value, label) in &panel.x.ticks {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{FAINT}\">{}</text>",
            x(*value),
            below + 18.0,
            escape(label),
        );
    }
    let _ = writeln!(
        svg,
        "<text transform=\"translate(22 {:.1}) rotate(-90)\" text-anchor=\"middle\" fill=\"{FAINT}\">{}</text>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{FAINT}\">{}</text>",
        top + PLOT / 2.0,
        escape(panel.y.title),
        (LEFT + right) / 2.0,
        below + 35.0,
        escape(panel.x.title),
    );
    strip(svg, panel, bottom + 6.0, x);
    for line in &panel.lines {
        let points: Vec<(f64, f64)> = line.points.iter().map(|(at, value)| (x(*at), y(*value))).collect();
        path(svg, line, &points);
    }
    if panel.lines.iter().filter_map(|line| line.points.last()).all(|end| x(end.0) > right - NAME) {
        names(svg, panel, y);
    } else {
        key(svg, panel, top);
    }
}

/// A line through its points on the page, and its dots.
fn path(svg: &mut String, line: &Line, points: &[(f64, f64)]) {
    let dots = || points.iter().map(|(x, y)| format!("M{x:.1} {y:.1}h0")).collect::<String>();
    let mut draw = |path: String, style: &str| {
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" {style}/>", line.colour);
    };
    let style = match line.stroke {
        Stroke::Solid => "stroke-width=\"2\" stroke-linejoin=\"round\"",
        Stroke::Dashed => "stroke-width=\"2\" stroke-linejoin=\"round\" stroke-dasharray=\"5 4\"",
        Stroke::Dots => return draw(dots(), "stroke-width=\"4\" stroke-linecap=\"round\""),
    };
    let steps = points.iter().enumerate().map(|(n, (x, y))| format!("{}{x:.1} {y:.1}", if n == 0 { "M" } else { "L" }));
    draw(steps.collect(), style);
    if line.is_marked {
        draw(dots(), "stroke-width=\"7\" stroke-linecap=\"round\"");
    }
}

/// A sample and the name of each line, in the order of the lines, beside a panel whose lines end apart from each other.
fn key(svg: &mut String, panel: &Panel, top: f64) {
    let left = WIDTH - RIGHT + 12.0;
    for (row, line) in panel.lines.iter().enumerate() {
        let at = top + KEY * (row as f64 + 0.5);
        if line.stroke == Stroke::Dots || line.is_marked {
            path(svg, line, &[(left, at), (left + SAMPLE / 2.0, at), (left + SAMPLE, at)]);
        } else {
            path(svg, line, &[(left, at), (left + SAMPLE, at)]);
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{INK}\">{}</text>",
            left + SAMPLE + 8.0,
            at + 4.5,
            escape(&line.label),
        );
    }
}

/// The states below the x axis, and their names beside it.
fn strip(svg: &mut String, panel: &Panel, top: f64, x: impl Fn(f64) -> f64) {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for span in &panel.strip {
        let (from, to) = (x(span.from), x(span.to));
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{}\"/>",
            to - from,
            span.colour,
        );
        if names.iter().all(|(name, _)| *name != span.label) {
            names.push((&span.label, span.colour));
        }
    }
    let mut at = WIDTH - RIGHT + 12.0;
    for (name, colour) in names {
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"{colour}\">{}</text>", top + 12.0, escape(name));
        at += 8.0 * (name.len() + 1) as f64;
    }
}

/// The name of each line beside its end, moved down where two would overlap.
fn names(svg: &mut String, panel: &Panel, y: impl Fn(f64) -> f64) {
    let ends = panel.lines.iter().filter_map(|line| line.points.last().map(|end| (y(end.1), line)));
    let mut ends: Vec<(f64, &Line)> = ends.collect();
    ends.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = f64::MIN;
    for (at, line) in ends {
        let at = at.max(free);
        free = at + NAME;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"600\" fill=\"{}\">{}</text>",
            WIDTH - RIGHT + 12.0,
            at + 4.5,
            line.colour,
            escape(&line.label),
        );
    }
}
