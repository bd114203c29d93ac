//! A Prometheus recorder for the `metrics` facade, and assertions on its scrape.

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tollgate::observe::Metrics;

/// A recorder with the crate's buckets, and the handle that renders its scrape.
pub(crate) fn recorder() -> (PrometheusRecorder, PrometheusHandle) {
    let builder = Metrics::BUCKETS.iter().fold(PrometheusBuilder::new(), |builder, (name, buckets)| {
        builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets).unwrap()
    });
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    (recorder, handle)
}

/// Asserts that the scrape contains each of `lines`.
#[track_caller]
pub(crate) fn assert_shows(handle: &PrometheusHandle, lines: &[&str]) {
    let scrape = handle.render();
    for line in lines {
        assert!(scrape.lines().any(|shown| shown == *line), "{line}\nis not in\n{scrape}");
    }
}
