//! Logs on standard error, and metrics at `/metrics`.

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use tollgate::{
    Limiter,
    observe::{Metrics, Tracing},
};

use crate::{Failure, prometheus::Prometheus};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Sets the observers, and returns the route that serves the metrics.
pub(crate) fn observe(limiter: Limiter) -> Result<(Limiter, Router), Failure> {
    // The default level shows warnings and recoveries of the store; denials have level debug.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let prometheus = Prometheus::default();
    metrics::set_global_recorder(prometheus.clone()).map_err(|error| error.to_string())?;
    let scrape = move || async move { ([(CONTENT_TYPE, TEXT_FORMAT)], prometheus.render()) };
    let routes = Router::new().route("/metrics", get(scrape));
    Ok((limiter.with_observer(Tracing::new()).with_observer(Metrics::new()), routes))
}
