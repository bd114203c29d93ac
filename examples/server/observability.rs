//! Logs on standard error, and metrics at `/metrics` in the Prometheus text format.

use std::time::Duration;

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
use tollgate::{
    Limiter,
    observe::{Metrics, Tracing},
};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Adds the observers to `limiter`. Returns the limiter and the route that serves the metrics.
pub(crate) fn observe(limiter: Limiter) -> Result<(Limiter, Router), BuildError> {
    // The default level shows failures and recoveries of the store. Denials are logged at level debug.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // The global recorder, which also receives the metrics of the application itself.
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
