//! A bar chart of decisions per second.

use std::fmt::Write;

use super::{GREEN, GREY, INK, WIDTH, escape, open};

/// One bar with its label.
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub highlighted: bool,
}

const LEFT: f64 = 310.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 30.0;
const TOP: f64 = 64.0;

/// Draws the bars in the given order, scaled to the largest value.
pub fn bar_chart(title: &str, subtitle: &str, bars: &[Bar]) -> String {
    let largest = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
    let height = TOP + ROW * bars.len() as f64 + 16.0;
    let mut svg = open(title, subtitle, height);
    for (index, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let length = (WIDTH - LEFT - RIGHT) * bar.value / largest;
        let (fill, weight) = if bar.highlighted { (GREEN, "600") } else { (GREY, "400") };
        let (baseline, label, value) = (y + 17.0, escape(&bar.label), thousands(bar.value));
        let (end, value_at) = (LEFT - 10.0, LEFT + length + 8.0);
        // Writing to a String never fails.
        let _ = writeln!(
            svg,
            "<text x=\"{end}\" y=\"{baseline}\" text-anchor=\"end\" font-weight=\"{weight}\" fill=\"{INK}\">\
             {label}</text>\
             <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"20\" rx=\"3\" fill=\"{fill}\"/>\
             <text x=\"{value_at:.1}\" y=\"{baseline}\" fill=\"{INK}\">{value}</text>",
            y + 2.0,
        );
    }
    svg + "</svg>\n"
}

fn thousands(value: f64) -> String {
    format!("{:.0} k", value / 1_000.0)
}
