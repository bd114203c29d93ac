//! Large files load in a time that grows with their size.

use std::time::{Duration, Instant};
use std::{fmt::Write, fs, sync::LazyLock};

use tollgate::{GlobalKey, limits::LimitsConfig};

use super::{check, mistakes, with_policy};
use crate::support::app::limiter;

/// A file with this number of routes.
fn file(routes: u64) -> String {
    let mut text = String::new();
    for number in 0..routes {
        writeln!(text, "routes.\"/r{number}\" = {{ cost = {} }}", 1 + number % 60).unwrap();
    }
    with_policy(&text)
}

/// The time that a processor has worked for this thread, where Linux tells it. Elsewhere the time that has passed.
fn processor_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    // A kernel that does not count shows zeros, also for the number of times that the thread was run.
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok().filter(|text| text.trim() != "0 0 0");
    let nanos = text.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// The time of a load: reading, checking and making a layer.
fn load(file: &str) -> Duration {
    let start = processor_time();
    let _ = check(file).unwrap().layer(limiter(), GlobalKey).unwrap();
    processor_time() - start
}

/// A load that grew with the square of the routes would take eight times as long as eight loads of an eighth of them.
#[test]
fn eight_times_the_routes_load_in_about_eight_times_the_time() {
    let files = [file(1_000), file(8_000)];
    let [mut small, mut large] = [Duration::ZERO; 2];
    // The time of a thread advances in ticks of some milliseconds.
    while small < Duration::from_millis(100) {
        small += (0..8).map(|_| load(&files[0])).sum::<Duration>();
        large += load(&files[1]);
    }
    assert!(large < 2 * small, "8 loads of 1 000 routes in {small:?}, of 8 000 in {large:?}");
}

/// The tree of a route is as deep as its segments, and the thread that watches the file has a small stack.
#[test]
fn law_6_a_route_with_thousands_of_segments_is_a_mistake() {
    let with_route = |segments: usize| with_policy(&format!("routes.\"{}\".cost = 2", "/a".repeat(segments)));
    let [mistake] = &mistakes(&with_route(20_000))[..] else { panic!("one mistake") };
    assert!(
        mistake.ends_with(
            "a route with 20000 segments is too long; write {*rest} in place of the last ones, at most 256 in all"
        ),
        "{mistake}"
    );
    assert!(check(&with_route(256)).unwrap().layer(limiter(), GlobalKey).is_ok());
}

/// To compare these two names letter by letter would take an hour.
#[test]
fn law_6_long_names_are_compared_in_a_short_time() {
    let policy = |name: &str| format!("policies.{name}.rate = \"5/s\"\n");
    let others: String = (0..8).map(|number| policy(&format!("q{number}"))).collect();
    let (known, unknown) = ("x".repeat(400_000), "y".repeat(400_000));
    let file = format!("{others}{}routes.\"/a\".policies = [\"{unknown}\"]", policy(&known));
    let [unusable, wrong] = &mistakes(&with_policy(&file))[..] else { panic!("two mistakes") };
    assert!(unusable.contains("is not usable in a header") || unusable.ends_with("..."), "{unusable}");
    assert!(wrong.contains(": no policy is called \"yyy") && wrong.len() < 600, "{wrong}");
}

/// Advice compares a name with all known ones, which takes longer than to read it. Of many mistakes, few are kept.
#[test]
fn law_6_advice_is_made_only_for_the_mistakes_that_are_kept() {
    for start in ["unknown", "routes.\"/a\".costs.unknown"] {
        let lines: String = (0..5_000).map(|number| format!("{start}{number} = 1\n")).collect();
        let text = with_policy(&lines);
        let (mut read, mut checked) = (Duration::ZERO, Duration::ZERO);
        // The time of a thread advances in ticks of some milliseconds.
        while read < Duration::from_millis(40) {
            let begin = processor_time();
            let file: toml::Value = toml::from_str(&text).unwrap();
            let middle = processor_time();
            assert_eq!(file.try_into::<LimitsConfig>().unwrap_err().message().lines().count(), 33);
            read += middle - begin;
            checked += processor_time() - middle;
        }
        assert!(checked < 20 * read, "{start}: read in {read:?}, checked in {checked:?}");
    }
}

#[test]
fn a_request_is_charged_under_64_policies_at_most() {
    let file = |policies: usize| {
        let names: Vec<String> = (0..policies).map(|number| format!("\"p{number}\"")).collect();
        let rates: String = names.iter().map(|name| format!("policies.{name}.rate = \"60/min\"\n")).collect();
        format!("{rates}default.policies = [{}]", names.join(", "))
    };
    check(&file(64)).unwrap();
    assert_eq!(mistakes(&file(65)), ["default.policies: 65 policies are too many; name at most 64"]);
}

#[test]
fn the_mistakes_of_many_policies_are_counted() {
    let policies: String = (0..100).map(|number| format!("policies.q{number}.rate = \"fast\"\n")).collect();
    let text = check(&with_policy(&policies)).unwrap_err();
    assert!(text.ends_with("\nand 68 further mistakes, which are shown when these are corrected"), "{text}");
}
