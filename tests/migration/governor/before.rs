use axum::{Router, routing::get};
use tower_governor::{GovernorLayer, governor::GovernorConfigBuilder};

pub fn app() -> Result<Router, &'static str> {
    let config = GovernorConfigBuilder::default()
        .per_second(20)
        .burst_size(5)
        .use_headers()
        .finish()
        .ok_or("a period or a burst of 0")?;
    let limit = GovernorLayer::new(config);
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}
