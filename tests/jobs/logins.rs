//! Logins fail closed, and the rest as the settings of the service say.

use tollgate::{ConfigError, FailurePolicy, GlobalKey, Limiter, Policy, RateLimitLayer, Route};

struct Settings {
    on_store_failure: FailurePolicy,
}

fn limit(limiter: Limiter, settings: &Settings) -> Result<RateLimitLayer<GlobalKey>, ConfigError> {
    let login = Route::new().policies(Policy::per_minute("login", 5)?).fail_closed();
    RateLimitLayer::new(limiter, Policy::per_minute("all", 60)?, GlobalKey)
        .on_store_failure(settings.on_store_failure)
        .route("POST /login", login)
        .validated()
}

#[tokio::test]
async fn logins_fail_closed_and_the_rest_as_the_settings_say() {
    use crate::support::{app, http};

    let settings = Settings { on_store_failure: "open".parse().unwrap() };
    let app = app::app(limit(app::down_limiter(), &settings).unwrap());
    assert_eq!(http::get(&app, "/").await.status, 200);
    let login = http::request(::http::Method::POST, "/login", &[]);
    assert_eq!(http::send(&app, login).await.status, 503);
}
