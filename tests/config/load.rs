//! Large files load in a time that grows with their size.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use tollgate::GlobalKey;

use super::{check, with_policy};
use crate::support::app::limiter;

/// The shortest of several times of a load: reading, checking and making a layer.
fn load(routes: u32) -> Duration {
    let mut text = String::new();
    for number in 0..routes {
        writeln!(text, "routes.\"/r{number}\" = {{ cost = {} }}", 1 + number % 60).unwrap();
    }
    let file = with_policy(&text);
    let time = || {
        let start = Instant::now();
        let _ = check(&file).unwrap().layer(limiter(), GlobalKey).unwrap();
        start.elapsed()
    };
    (0..5).map(|_| time()).min().unwrap()
}

/// A load that grew with the square of the routes would take 64 times as long.
#[test]
fn eight_times_the_routes_load_in_about_eight_times_the_time() {
    let (small, large) = (load(1_000), load(8_000));
    assert!(large < 24 * small, "1 000 routes in {small:?}, 8 000 in {large:?}");
}
