//! Logs on standard error, and metrics at `/metrics` in the Prometheus text format.

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use tollgate::{
    Limiter,
    observe::{Metrics, Tracing},
};

use crate::{Failure, prometheus::Prometheus};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Adds the observers to `limiter`. Returns the limiter and the route that serves the metrics.
pub(crate) fn observe(limiter: Limiter) -> Result<(Limiter, Router), Failure> {
    // The default level shows failures and recoveries of the store. Denials are logged at level debug.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    // The global recorder also receives the metrics of the application itself.
    let prometheus = Prometheus::default();
    metrics::set_global_recorder(prometheus.clone()).map_err(|error| error.to_string())?;
    let scrape = move || async move { ([(CONTENT_TYPE, TEXT_FORMAT)], prometheus.render()) };
    let routes = Router::new().route("/metrics", get(scrape));
    Ok((limiter.with_observer(Tracing::new()).with_observer(Metrics::new()), routes))
}
