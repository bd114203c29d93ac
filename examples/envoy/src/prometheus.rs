//! The metrics, by HTTP in the format of Prometheus.

use std::error::Error;

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tollgate::observe::Metrics;

/// The recorder of the process.
pub(crate) struct Prometheus(PrometheusHandle);

impl Prometheus {
    pub(crate) fn install() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut builder = PrometheusBuilder::new();
        for (name, buckets) in Metrics::BUCKETS {
            builder = builder.set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)?;
        }
        Ok(Self(builder.install_recorder()?))
    }

    /// Serves `/metrics` and `/healthz`.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let render = move || async move { self.0.render() };
        let app = Router::new().route("/metrics", get(render)).route("/healthz", get(|| async { "ok\n" }));
        if let Err(error) = axum::serve(listener, app).await {
            eprintln!("tollgate-envoy: the metrics are not served: {error}");
        }
    }
}

impl std::fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prometheus")
    }
}
