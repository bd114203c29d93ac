//! A recorder of the `metrics` facade that renders Prometheus' text format, without help texts and buckets.
//!
//! A service uses the crate `metrics-exporter-prometheus`, as [`tollgate::observe::Metrics`] shows. This example
//! has this small recorder instead, because that crate and its dependencies add a fifth to the packages to compile.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// All metrics by name and labels. Clones share the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prometheus(Arc<Mutex<BTreeMap<(String, String), Value>>>);

#[derive(Clone, Debug)]
enum Value {
    /// A counter or a gauge.
    Single(Arc<Sum>),
    Histogram(Arc<Sum>),
}

/// The sum of the recorded values, and how many values were recorded.
#[derive(Debug, Default)]
struct Sum(Mutex<(f64, u64)>);

impl Prometheus {
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        for ((name, labels), value) in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // Writing to a `String` cannot fail.
            let _ = match value {
                Value::Single(sum) => writeln!(text, "{name}{labels} {}", sum.read().0),
                Value::Histogram(sum) => {
                    let (sum, count) = sum.read();
                    writeln!(text, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}")
                }
            };
        }
        text
    }

    /// Returns the value of a metric, and registers the metric on its first use.
    fn register(&self, key: &Key, new: fn(Arc<Sum>) -> Value) -> Arc<Sum> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={:?}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry((key.name().to_owned(), labels)).or_insert_with(|| new(Arc::default()));
        let (Value::Single(sum) | Value::Histogram(sum)) = value;
        Arc::clone(sum)
    }
}

impl Recorder for Prometheus {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key, Value::Single))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key, Value::Single))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(key, Value::Histogram))
    }
}

impl Sum {
    fn read(&self) -> (f64, u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut f64)) {
        let mut sum = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut sum.0);
        sum.1 += 1;
    }
}

impl CounterFn for Sum {
    fn increment(&self, value: u64) {
        self.update(|sum| *sum += value as f64);
    }

    fn absolute(&self, value: u64) {
        self.update(|sum| *sum = sum.max(value as f64));
    }
}

impl GaugeFn for Sum {
    fn increment(&self, value: f64) {
        self.update(|sum| *sum += value);
    }

    fn decrement(&self, value: f64) {
        self.update(|sum| *sum -= value);
    }

    fn set(&self, value: f64) {
        self.update(|sum| *sum = value);
    }
}

impl HistogramFn for Sum {
    fn record(&self, value: f64) {
        self.update(|sum| *sum += value);
    }
}
