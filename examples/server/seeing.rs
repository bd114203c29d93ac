//! Logs on standard error, and `/metrics` in Prometheus' text format.

use std::time::Duration;

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use tollgate::{
    Limiter,
    observe::{Metrics, Tracing},
};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Sets the observers, and returns the route that serves the metrics.
pub(crate) fn observe(limiter: Limiter) -> Result<(Limiter, Router), BuildError> {
    // Warnings and recoveries of the store; denials are at debug.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // The recorder that tollgate's metrics, and the application's own, go to.
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), &Metrics::DURATION_BUCKETS)?
        .set_buckets_for_metric(Matcher::Full("tollgate_batch_checks".to_owned()), &Metrics::BATCH_BUCKETS)?
        .install_recorder()?;
    let upkeep = handle.clone();
    tokio::spawn(async move {
        // Sorts samples into their buckets, so that memory does not grow between scrapes.
        let mut ticks = tokio::time::interval(Duration::from_secs(5));
        loop {
            ticks.tick().await;
            upkeep.run_upkeep();
        }
    });
    let scrape = move || async move { ([(CONTENT_TYPE, TEXT_FORMAT)], handle.render()) };
    let routes = Router::new().route("/metrics", get(scrape));
    Ok((limiter.with_observer(Tracing::new()).with_observer(Metrics::new()), routes))
}
