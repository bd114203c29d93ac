//! Logs, metrics at `/metrics` in the Prometheus text format, and the clients that are refused most at `/refused`.

use std::{io, sync::Arc};

use axum::{Router, http::header::CONTENT_TYPE, routing::get};
use tollgate::Limiter;
use tollgate::observe::{Metrics, MostRefused, Tracing};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::{Layer, fmt::layer, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{Failure, options::Options, prometheus::Prometheus};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Adds the observers to `limiter`. Returns the limiter and the routes for operators. A real service serves these
/// routes on an address that its clients cannot reach.
pub(crate) fn observe(limiter: Limiter, options: &Options) -> Result<(Limiter, Router), Failure> {
    if options.log {
        // Denials are logged at level debug.
        let events = Targets::new().with_target("tollgate", LevelFilter::DEBUG);
        let log = layer().with_ansi(false).with_writer(io::stdout).with_filter(events);
        tracing_subscriber::registry().with(log).init();
    } else {
        // The default level shows failures and recoveries of the store.
        tracing_subscriber::fmt().with_writer(io::stderr).init();
    }
    let limiter = limiter.with_observer(Tracing::new());
    if !options.metrics {
        return Ok((limiter, Router::new()));
    }
    // The global recorder also receives the metrics of the application itself.
    let prometheus = Prometheus::default();
    metrics::set_global_recorder(prometheus.clone()).map_err(|error| error.to_string())?;
    let scrape = move || async move { ([(CONTENT_TYPE, TEXT_FORMAT)], prometheus.render()) };
    let most_refused = Arc::new(MostRefused::new());
    let limiter = limiter.with_observer(Metrics::new()).with_observer(Arc::clone(&most_refused));
    let refused = move || async move { most_refused.top(20).iter().map(|key| format!("{key}\n")).collect::<String>() };
    Ok((limiter, Router::new().route("/metrics", get(scrape)).route("/refused", get(refused))))
}
