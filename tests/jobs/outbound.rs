//! A client that stays within the quota of an upstream, in a struct.

use std::time::Duration;

use tollgate::{ConfigError, Limiter, Policy, ThrottleLayer, throttle::Throttle};
use tower::Layer;

struct Maps {
    client: Throttle<reqwest::Client>,
}

fn maps(limiter: Limiter) -> Result<Maps, ConfigError> {
    let quota = Policy::per_minute("maps", 600)?;
    let throttle = ThrottleLayer::new(limiter, quota, "account-1").with_max_wait(Duration::from_secs(2)).validated()?;
    Ok(Maps { client: throttle.layer(reqwest::Client::new()) })
}

#[tokio::test]
async fn a_client_stays_within_the_quota_of_its_upstream() {
    use tower::{Service, ServiceExt};

    let limiter = crate::support::app::limiter();
    let spent = limiter.check("account-1", &Policy::per_minute("maps", 600).unwrap(), 600).await.unwrap();
    assert!(spent.is_allowed());
    let mut maps = maps(limiter).unwrap();
    let request = maps.client.get_ref().get("http://127.0.0.1:9/").build().unwrap();
    // The turn of the call is a minute away, so the call is not made.
    let error = maps.client.ready().await.unwrap().call(request).await.unwrap_err();
    assert!(error.is::<tollgate::throttle::Throttled>(), "{error}");
}
