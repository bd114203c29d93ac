//! `/metrics` of `examples/server`, in the text format of Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use crate::running::Server;

const PAGE: &str = include_str!("../../../docs/operations.md");

type Labels = Vec<(String, String)>;

/// The upper bounds and the counts of the buckets of a histogram, and its sum and count.
type Buckets = (Vec<(f64, f64)>, BTreeMap<String, f64>);

/// A metric of the scrape.
#[derive(Debug)]
struct Metric {
    kind: String,
    /// The name, the labels and the value of each line.
    samples: Vec<(String, Labels, f64)>,
}

/// Reads a scrape, and panics where it breaks a rule of the format: each metric has one HELP and one TYPE line, and
/// its samples follow them.
fn parse(text: &str) -> BTreeMap<String, Metric> {
    assert!(text.ends_with('\n'), "the last line ends");
    let mut metrics = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let (name, help) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).expect(line);
        assert!(is_name(name) && !help.trim().is_empty(), "{line}");
        let line = lines.next().unwrap_or_default();
        let kind = line.strip_prefix(&format!("# TYPE {name} ")).expect(line);
        let samples = std::iter::from_fn(|| lines.next_if(|line| !line.starts_with('#'))).map(|line| {
            let sample = sample(line);
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| sample.0 == format!("{name}{suffix}")), "{line} is not of {name}");
            sample
        });
        let metric = Metric { kind: kind.to_owned(), samples: samples.collect() };
        let distinct: BTreeSet<_> = metric.samples.iter().map(|(name, labels, _)| (name, labels)).collect();
        assert_eq!(distinct.len(), metric.samples.len(), "{name}: a sample is there twice");
        assert!(metrics.insert(name.to_owned(), metric).is_none(), "{name} is there twice");
    }
    metrics
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// A line such as `name{label="value"} 1`.
fn sample(line: &str) -> (String, Labels, f64) {
    let (series, value) = line.rsplit_once(' ').expect(line);
    let value = value.parse().expect(line);
    let Some((name, labels)) = series.split_once('{') else {
        assert!(is_name(series), "{line}");
        return (series.to_owned(), Vec::new(), value);
    };
    let mut rest = labels.strip_suffix('}').expect(line);
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").expect(line);
        let (label_value, after) = quoted(after).expect(line);
        assert!(is_name(name) && is_name(label), "{line}");
        labels.push((label.to_owned(), label_value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    (name.to_owned(), labels, value)
}

/// Splits at the closing quote. The only escapes are `\\`, `\"` and `\n`.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    loop {
        match characters.next()? {
            (end, '"') => return Some((value, &text[end + 1..])),
            (_, '\\') => match characters.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                _ => return None,
            },
            (_, character) => value.push(character),
        }
    }
}

/// Asserts that each histogram has growing buckets, of which the last one has all values.
fn assert_buckets(name: &str, metric: &Metric) {
    let mut histograms: BTreeMap<Labels, Buckets> = BTreeMap::new();
    for (sample, labels, value) in &metric.samples {
        let (bounds, labels): (Vec<_>, Vec<_>) = labels.iter().cloned().partition(|(label, _)| label == "le");
        let (buckets, totals) = histograms.entry(labels).or_default();
        match &bounds[..] {
            [(_, bound)] => buckets.push((bound.parse().unwrap(), *value)),
            _ => _ = totals.insert(sample.clone(), *value),
        }
    }
    for (labels, (buckets, totals)) in histograms {
        let grows = buckets.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1);
        assert!(grows && totals.contains_key(&format!("{name}_sum")), "{name} {labels:?}: {buckets:?} {totals:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, totals[&format!("{name}_count")])), "{name} {labels:?}");
    }
}

#[test]
fn every_metric_of_the_guide_has_a_help_and_a_type_line_in_the_scrape_of_the_example_server() {
    let server = Server::start(&[]);
    for _ in 0..61 {
        server.fetch("GET", "/watch");
    }
    server.fetch("POST", "/generate?estimate=10");
    let scrape = server.fetch("GET", "/metrics");
    assert_eq!(scrape.fields["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let metrics = parse(&scrape.body);

    let (_, table) = PAGE.split_once("\n## Metrics\n").unwrap();
    let rows: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| tollgate_")).collect();
    assert!(rows.len() > 20, "{rows:?}");
    for row in rows {
        let mut cells = row.split(" | ");
        let name = format!("tollgate_{}", cells.next().unwrap());
        assert_eq!(metrics.get(&name).expect(&name).kind, cells.next().unwrap(), "{name}");
    }
    for (name, metric) in metrics.iter().filter(|(_, metric)| metric.kind == "histogram") {
        assert_buckets(name, metric);
    }
    let durations = &metrics["tollgate_check_duration_seconds"];
    assert!(!durations.samples.is_empty());

    // The lines that the guide shows for these requests.
    let shown: Vec<_> =
        PAGE.lines().filter(|line| line.contains("tollgate_decisions_total") && !line.starts_with('|')).collect();
    assert_eq!(shown.len(), 4, "{shown:?}");
    for line in shown {
        assert!(scrape.body.lines().any(|rendered| rendered == line), "{line}\nis not in\n{}", scrape.body);
    }
}
