//! Charts as plain SVG, on a white card, so that they are readable on a dark page too.

mod bars;
mod panels;

pub use self::{
    bars::{Bar, bar_chart},
    panels::{Axis, Line, Panel, Span, Stroke, panels},
};

const WIDTH: f64 = 760.0;

const INK: &str = "#1f2328";
const FAINT: &str = "#59636e";
const GRID: &str = "#e4e7eb";
pub const GREEN: &str = "#1a7f5a";
pub const BLUE: &str = "#2f6fd0";
pub const AMBER: &str = "#b7791f";
pub const RED: &str = "#c93c37";
pub const GREY: &str = "#afb8c1";
pub const DARK: &str = "#59636e";

/// The head of a chart: its card, its title and a line below that.
fn open(title: &str, subtitle: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"28\" font-size=\"16\" font-weight=\"600\" fill=\"{INK}\">{}</text>\n\
         <text x=\"16\" y=\"48\" fill=\"{FAINT}\">{}</text>\n",
        escape(title),
        escape(subtitle),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
