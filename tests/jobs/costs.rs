//! Costs by route.

use tollgate::{ConfigError, KeyExtractor, RateLimitLayer, Route};

fn with_costs<K: KeyExtractor>(limit: RateLimitLayer<K>) -> Result<RateLimitLayer<K>, ConfigError> {
    limit.route("/search", Route::new().cost(10)).route("/users/{id}", Route::exempt()).validated()
}

#[tokio::test]
async fn a_cost_for_each_route() {
    use crate::support::{app, http::get};

    let app = app::app(with_costs(app::layer(60, tollgate::GlobalKey)).unwrap());
    assert_eq!(get(&app, "/search").await.header("ratelimit").as_deref(), Some(r#""p";r=50;t=60"#));
    assert_eq!(get(&app, "/").await.header("ratelimit").as_deref(), Some(r#""p";r=49;t=60"#));
    assert_eq!(get(&app, "/users/1").await.header("ratelimit"), None);
}
