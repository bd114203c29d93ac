//! The server: gRPC services, metrics, and a stop that leaves nothing behind.

use std::{error::Error, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tollgate::{Limiter, MemoryStore, RedisStore, headers::HeaderWriter, observe::Metrics};
use tonic::transport::server::Server as Grpc;
use tonic_health::{ServingStatus, server::HealthReporter};

use crate::call::{Judge, Replies};
use crate::config::{Config, read};
use crate::grpc::{Calls, Quotas};
use crate::prometheus::{Prometheus, Readiness};
use crate::{
    Options, follow::follow, holds::Holds, meters::Meters, quota::QuotaService, service::Service, warnings::Warnings,
};

/// The most calls of a connection at once, and the longest head of a call: they bound the memory of a connection. Envoy
/// opens another one if it has more calls.
const STREAMS: u32 = 512;
const HEAD: u32 = 64 << 10;
/// How long a message may take to arrive, beside the deadline of the call.
const ARRIVAL: Duration = Duration::from_secs(5);
/// The pause after a connection that could not be accepted.
const ACCEPT: Duration = Duration::from_millis(20);
/// How long calls may take to end after the signal to stop.
const DRAIN: Duration = Duration::from_secs(10);
/// How often holds are looked through for those whose time-to-live has passed.
const EXPIRY: Duration = Duration::from_millis(500);

/// A service that listens, and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    metrics: Option<(TcpListener, Prometheus)>,
    service: Service,
    judge: Arc<Judge>,
    /// Tasks that end with the server.
    tasks: JoinSet<()>,
}

impl Server {
    /// Loads the configuration and binds the addresses.
    ///
    /// # Errors
    ///
    /// All mistakes of the configuration, a wrong URL of Redis, or an address that cannot be bound.
    pub async fn bind(options: &Options) -> Result<Self, Box<dyn Error + Send + Sync>> {
        // Before the configuration, whose rules have counters.
        let metrics = match options.metrics {
            Some(address) => Some((TcpListener::bind(address).await?, Prometheus::install()?)),
            None => None,
        };
        let content = read(&options.config)?;
        let config = Config::parse(&content, options.has_local())?;
        let config = Arc::new(ArcSwap::from_pointee(config));
        let limiter = limiter(options)?;
        let (holds, meters, warnings) = (Holds::default(), Meters::new(), Warnings::default());
        let (deadline, has_fallback) = (options.deadline, options.has_fallback());
        let judge = Arc::new(Judge { limiter, holds, meters, warnings, deadline, has_fallback });
        let fields = HeaderWriter::new(options.headers).with_retry_after_ms(true);
        let service = Service {
            config: Arc::clone(&config),
            judge: Arc::clone(&judge),
            replies: Replies { fields },
            places: Semaphore::new(Service::MOST_CALLS),
        };
        let listener = TcpListener::bind(options.listen).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(follow(options.config.clone(), content, options.has_local(), config));
        tasks.spawn(expire(Arc::clone(&judge)));
        Ok(Self { listener, metrics, service, judge, tasks })
    }

    /// Where the service listens.
    ///
    /// # Errors
    ///
    /// That of the operating system.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, lets the calls in flight end, and gives back what is held.
    ///
    /// # Errors
    ///
    /// What has ended the server before that.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Self { listener, metrics, service, judge, mut tasks } = self;
        let (health, health_service) = tonic_health::server::health_reporter();
        set_status(&health, ServingStatus::Serving).await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let (stopping, mut stopped) = watch::channel(false);
        if let Some((listener, prometheus)) = metrics {
            let readiness = Readiness { limiter: judge.limiter.clone(), stopped: stopping.subscribe() };
            tasks.spawn(prometheus.run(listener, readiness));
        }
        let quotas = QuotaService::new(Arc::clone(&service.config), Arc::clone(&judge), stopping.subscribe());
        let signal = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
        let serving = Grpc::builder()
            .max_concurrent_streams(STREAMS)
            .timeout(judge.deadline + ARRIVAL)
            .http2_max_header_list_size(HEAD)
            .http2_keepalive_interval(Some(Duration::from_secs(30)))
            .add_service(health_service)
            .add_service(reflection)
            .add_service(Calls(Arc::new(service)))
            .add_service(Quotas(Arc::new(quotas)))
            .serve_with_incoming_shutdown(connections(listener), signal);
        tokio::pin!(serving);
        let stop = async {
            stop.await;
            // Load balancers choose another instance.
            set_status(&health, ServingStatus::NotServing).await;
            stopping.send_replace(true);
        };
        let result = tokio::select! {
            result = &mut serving => result,
            () = stop => timeout(DRAIN, &mut serving).await.unwrap_or(Ok(())),
        };
        tasks.shutdown().await;
        judge.holds.clear();
        judge.limiter.close().await;
        Ok(result?)
    }
}

/// The connections of clients.
fn connections(listener: TcpListener) -> impl Stream<Item = io::Result<TcpStream>> {
    TcpListenerStream::new(listener).then(|connection| async move {
        match connection {
            // Otherwise, an answer may wait 40 ms for the acknowledgement of the one before. Envoy waits for 20 ms.
            Ok(stream) => stream.set_nodelay(true).map(|()| stream),
            Err(error) => {
                // Without a free file descriptor, the next one fails at once too.
                sleep(ACCEPT).await;
                Err(error)
            }
        }
    })
}

/// The descriptions of the services, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

/// The names of the services, for health checks: all together, and each.
const SERVICES: [&str; 3] =
    ["", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"];

async fn set_status(health: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}

fn limiter(options: &Options) -> Result<Limiter, Box<dyn Error + Send + Sync>> {
    let limiter = match &options.redis {
        Some(url) => {
            // Leaves time to answer.
            let deadline = options.deadline * 4 / 5;
            let mut store = RedisStore::builder().deadline(deadline).first_dial_deadline(deadline);
            if let Some(secret) = &options.key_secret {
                store = store.key_secret(secret);
            }
            let limiter = Limiter::new(store.open(url)?);
            match options.instances {
                Some(instances) => limiter.with_local_fallback(MemoryStore::new(), instances),
                None => limiter,
            }
        }
        None => Limiter::new(MemoryStore::with_capacity(1_000_000)?),
    };
    let limiter = if options.metrics.is_some() { limiter.with_observer(Metrics::new()) } else { limiter };
    Ok(limiter.validated()?)
}

/// Ends holds whose time-to-live has passed.
async fn expire(judge: Arc<Judge>) {
    loop {
        sleep(EXPIRY).await;
        loop {
            let expired = judge.holds.expire();
            if expired == 0 {
                break;
            }
            judge.meters.holds_expired.increment(expired as u64);
            judge.meters.open_holds.set(judge.holds.len() as f64);
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_do_not_wait_for_acknowledgements() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let accepted = Box::pin(connections(listener)).next().await.unwrap().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
