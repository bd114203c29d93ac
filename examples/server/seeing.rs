//! Logs on standard error and `/metrics` in Prometheus' text format, as far as the build has the features.

use axum::Router;
use tollgate::Limiter;

use crate::Failure;

/// Sets the observers, and returns what serves their figures.
pub(crate) fn observe(limiter: Limiter) -> Result<(Limiter, Router), Failure> {
    #[cfg(feature = "tracing")]
    let limiter = {
        // Warnings and recoveries of the store; denials are at debug.
        tracing_subscriber::fmt().with_writer(std::io::stderr).init();
        limiter.with_observer(tollgate::observe::Tracing::new())
    };
    #[cfg(feature = "metrics")]
    return Ok(metrics::observe(limiter)?);
    #[cfg(not(feature = "metrics"))]
    Ok((limiter, Router::new()))
}

#[cfg(feature = "metrics")]
mod metrics {
    use std::time::Duration;

    use axum::{Router, http::header::CONTENT_TYPE, routing::get};
    use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder};
    use tollgate::{Limiter, observe::Metrics};

    const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

    pub(super) fn observe(limiter: Limiter) -> Result<(Limiter, Router), BuildError> {
        // The recorder that tollgate's metrics, and the application's own, go to.
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), &Metrics::DURATION_BUCKETS)?
            .set_buckets_for_metric(Matcher::Full("tollgate_batch_checks".to_owned()), &Metrics::BATCH_BUCKETS)?
            .install_recorder()?;
        let upkeep = handle.clone();
        tokio::spawn(async move {
            // Samples are sorted into their buckets here, so that memory does not grow while nobody scrapes.
            let mut ticks = tokio::time::interval(Duration::from_secs(5));
            loop {
                ticks.tick().await;
                upkeep.run_upkeep();
            }
        });
        let scrape = move || async move { ([(CONTENT_TYPE, TEXT_FORMAT)], handle.render()) };
        let routes = Router::new().route("/metrics", get(scrape));
        Ok((limiter.with_observer(Metrics::new()), routes))
    }
}
