//! A recorder of the `metrics` facade that renders Prometheus' text format.
//!
//! A service uses the crate `metrics-exporter-prometheus`, as [`tollgate::observe::Metrics`] shows. This example
//! has this small recorder instead, because that crate and its dependencies add a fifth to the packages to compile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{collections::BTreeMap, fmt::Write};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tollgate::observe::Metrics;

/// All metrics by name. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prometheus(Arc<Mutex<BTreeMap<String, Metric>>>);

#[derive(Debug)]
struct Metric {
    kind: &'static str,
    help: String,
    /// The values by labels, such as `policy="per-client",outcome="allowed"`.
    values: BTreeMap<String, Value>,
}

#[derive(Clone, Debug)]
enum Value {
    /// A counter or a gauge.
    Single(Arc<Single>),
    Histogram(Arc<Buckets>),
}

#[derive(Debug, Default)]
struct Single(Mutex<f64>);

#[derive(Debug)]
struct Buckets {
    /// The upper bounds of the buckets, without the last one, which has none.
    bounds: &'static [f64],
    counts: Mutex<Counts>,
}

#[derive(Clone, Debug)]
struct Counts {
    /// The number of values in each bucket. The format wants the number of values up to its bound.
    in_buckets: Vec<u64>,
    sum: f64,
}

impl Prometheus {
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for (name, metric) in &*lock(&self.0) {
            // Writing to a `String` cannot fail.
            let _ = metric.render(name, &mut text);
        }
        text
    }

    /// Runs `change` on a metric, which is created if it is new.
    fn with<T>(&self, name: &str, kind: &'static str, change: impl FnOnce(&mut Metric) -> T) -> T {
        let mut metrics = lock(&self.0);
        let new = || Metric { kind, help: String::new(), values: BTreeMap::new() };
        change(metrics.entry(name.to_owned()).or_insert_with(new))
    }

    fn describe(&self, name: &KeyName, kind: &'static str, help: &SharedString) {
        self.with(name.as_str(), kind, |metric| metric.help = help.replace('\\', r"\\").replace('\n', r"\n"));
    }

    /// Returns a counter or a gauge, and registers it on its first use.
    fn single(&self, key: &Key, kind: &'static str) -> Arc<Single> {
        let value = self.value(key, kind, || Value::Single(Arc::default()));
        if let Value::Single(single) = value { single } else { Arc::default() }
    }

    fn value(&self, key: &Key, kind: &'static str, new: impl FnOnce() -> Value) -> Value {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}=\"{}\"", label.key(), escape(label.value()))).collect();
        self.with(key.name(), kind, |metric| metric.values.entry(labels.join(",")).or_insert_with(new).clone())
    }
}

impl Metric {
    fn render(&self, name: &str, text: &mut String) -> std::fmt::Result {
        let Self { kind, help, values } = self;
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
        for (labels, value) in values {
            let in_braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
            match value {
                Value::Single(single) => writeln!(text, "{name}{in_braces} {}", lock(&single.0))?,
                Value::Histogram(buckets) => {
                    let Counts { in_buckets, sum } = lock(&buckets.counts).clone();
                    let comma = if labels.is_empty() { "" } else { "," };
                    let bounds = buckets.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
                    let mut count = 0;
                    for (bound, in_bucket) in bounds.zip(in_buckets) {
                        count += in_bucket;
                        writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}")?;
                    }
                    writeln!(text, "{name}_sum{in_braces} {sum}\n{name}_count{in_braces} {count}")?;
                }
            }
        }
        Ok(())
    }
}

impl Recorder for Prometheus {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, "counter", &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, "gauge", &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, "histogram", &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.single(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.single(key, "gauge"))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let known = Metrics::BUCKETS.iter().find(|(name, _)| *name == key.name());
        let bounds = known.map_or(&[][..], |&(_, bounds)| bounds);
        let counts = Mutex::new(Counts { in_buckets: vec![0; bounds.len() + 1], sum: 0.0 });
        match self.value(key, "histogram", || Value::Histogram(Arc::new(Buckets { bounds, counts }))) {
            Value::Histogram(buckets) => Histogram::from_arc(buckets),
            Value::Single(_) => Histogram::noop(),
        }
    }
}

impl CounterFn for Single {
    fn increment(&self, value: u64) {
        *lock(&self.0) += value as f64;
    }

    fn absolute(&self, value: u64) {
        let mut single = lock(&self.0);
        *single = single.max(value as f64);
    }
}

impl GaugeFn for Single {
    fn increment(&self, value: f64) {
        *lock(&self.0) += value;
    }

    fn decrement(&self, value: f64) {
        *lock(&self.0) -= value;
    }

    fn set(&self, value: f64) {
        *lock(&self.0) = value;
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        let mut counts = lock(&self.counts);
        counts.in_buckets[bucket] += 1;
        counts.sum += value;
    }
}

/// The value of a label, as the format wants it between quotes.
fn escape(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
