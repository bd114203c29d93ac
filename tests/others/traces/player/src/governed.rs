//! tower_governor: a layer around a service that answers everything.

use std::{collections::HashMap, convert::Infallible, time::Duration};
use std::sync::{Arc, Mutex, PoisonError};

use axum::{body::Body, response::Response};
use axum::http::{Request as HttpRequest, StatusCode, header::RETRY_AFTER};
use governor::middleware::NoOpMiddleware;
use tower::{Layer, ServiceExt, service_fn};
use tower_governor::{GovernorError, GovernorLayer, key_extractor::KeyExtractor};
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};

use crate::{Answer, Request, Result};

/// The path of the request is its key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path;

impl KeyExtractor for Path {
    type Key = String;

    fn extract<T>(&self, request: &HttpRequest<T>) -> std::result::Result<String, GovernorError> {
        Ok(request.uri().path().to_owned())
    }
}

type Config = Arc<GovernorConfig<Path, NoOpMiddleware>>;

/// A configuration for each limit and window: it has the counts.
#[derive(Clone, Default)]
pub struct Governed {
    configs: Arc<Mutex<HashMap<(u32, u32), Config>>>,
}

impl Governed {
    fn config(&self, request: &Request) -> Result<Config> {
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = configs.get(&(request.limit, request.window)) {
            return Ok(config.clone());
        }
        let interval = Duration::from_secs(request.window.into()) / request.limit;
        let mut builder = GovernorConfigBuilder::default().key_extractor(Path);
        let config = builder.period(interval).burst_size(request.limit).finish().ok_or("a limit of 0")?;
        let config = Arc::new(config);
        configs.insert((request.limit, request.window), config.clone());
        Ok(config)
    }

    pub async fn ask(&self, request: &Request) -> Result<Answer> {
        if request.weight != 1 {
            return Err("a request of tower_governor costs 1".into());
        }
        let inner = service_fn(async |_: HttpRequest<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let service = GovernorLayer::new(self.config(request)?).layer(inner);
        let call = HttpRequest::get(format!("/{}", request.key)).body(Body::empty())?;
        let response = service.oneshot(call).await?;
        match response.status() {
            StatusCode::OK => Ok(Answer::Allowed),
            StatusCode::TOO_MANY_REQUESTS => {
                let seconds = response.headers().get(RETRY_AFTER).ok_or("a denial without Retry-After")?;
                Ok(Answer::Denied(Duration::from_secs(seconds.to_str()?.parse()?)))
            }
            other => Err(format!("tower_governor answers {other}").into()),
        }
    }
}
