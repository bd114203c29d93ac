//! The metrics, by HTTP in the format of Prometheus.

use std::{error::Error, time::Duration};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::{net::TcpListener, time::sleep};
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

    /// How often the durations of calls are counted, which the recorder keeps one by one until then.
    const UPKEEP: Duration = Duration::from_secs(5);

    /// Serves `/metrics` and `/healthz`, and bounds the memory of metrics that are not fetched. Never returns.
    pub(crate) async fn run(self, listener: TcpListener) {
        let handle = self.0.clone();
        let upkeep = async move {
            loop {
                sleep(Self::UPKEEP).await;
                handle.run_upkeep();
            }
        };
        tokio::join!(self.serve(listener), upkeep);
    }

    async fn serve(self, listener: TcpListener) {
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
