//! The metrics, by HTTP in the format of Prometheus, and probes.

use std::{error::Error, time::Duration};

use axum::{Router, http::StatusCode, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::time::{sleep, timeout};
use tokio::{net::TcpListener, sync::watch};
use tollgate::{Limiter, observe::Metrics};

use crate::lines;

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

    /// Serves `/metrics`, `/healthz` and `/readyz`, and bounds the memory of metrics that are not fetched. Never
    /// returns.
    pub(crate) async fn run(self, listener: TcpListener, readiness: Readiness) {
        let handle = self.0.clone();
        let upkeep = async move {
            loop {
                sleep(Self::UPKEEP).await;
                handle.run_upkeep();
            }
        };
        tokio::join!(self.serve(listener, readiness), upkeep);
    }

    async fn serve(self, listener: TcpListener, readiness: Readiness) {
        let render = move || async move { self.0.render() };
        let ready = move || async move { readiness.answer().await };
        let app = Router::new()
            .route("/metrics", get(render))
            // A restart does not bring Redis back, and failure policies need a service that runs.
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready));
        if let Err(error) = axum::serve(listener, app).await {
            lines::warn(&format!("the metrics are not served: {error}"));
        }
    }
}

impl std::fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prometheus")
    }
}

/// Whether the store gives verdicts.
#[derive(Clone)]
pub(crate) struct Readiness {
    pub(crate) limiter: Limiter,
    pub(crate) stopped: watch::Receiver<bool>,
}

impl Readiness {
    /// How long the store may take: below the second that a probe of Kubernetes waits.
    const PATIENCE: Duration = Duration::from_millis(800);

    async fn answer(&self) -> (StatusCode, &'static str) {
        if *self.stopped.borrow() {
            return (StatusCode::SERVICE_UNAVAILABLE, "the service stops\n");
        }
        match timeout(Self::PATIENCE, self.limiter.ready()).await {
            Ok(Ok(())) => (StatusCode::OK, "ok\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "the store gives no verdict; on_store_failure decides\n"),
        }
    }
}
