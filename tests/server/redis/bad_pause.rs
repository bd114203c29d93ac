//! A value under the key of a pause that no limiter has written.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use tollgate::{Limiter, Policy, RedisStore, ThrottleLayer, redis};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneSyncService};

use crate::support::redis_server::RedisServer;

const PAUSE: &str = "tollgate:{account}:upstream pause:b3:1s";

type Client = BoxCloneSyncService<Request<()>, Response<()>, tower::BoxError>;

fn policy() -> Policy {
    Policy::per_second("upstream", 80).unwrap()
}

fn process(server: &RedisServer) -> (Limiter, Client) {
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10)).open(&server.url()).unwrap();
    let limiter = Limiter::new(store).without_notices();
    let upstream = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) });
    let layer = ThrottleLayer::new(limiter.clone(), policy(), "account").with_shared_pauses();
    (limiter, BoxCloneSyncService::new(layer.layer(upstream)))
}

async fn call(client: &Client) -> Result<(), String> {
    let result = client.clone().oneshot(Request::new(())).await.map(drop);
    result.map_err(|error| format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default()))
}

fn set(server: &RedisServer, value: &[u8]) {
    let (): () = redis::cmd("SET").arg(PAUSE).arg(value).query(&mut server.connection()).unwrap();
}

/// A bucket that is full again in the year 2255.
fn far_ahead() -> Vec<u8> {
    let limits = [0_u64, 1_000_000].map(|number| number.to_le_bytes()[..6].to_vec()).concat();
    let arrival = 9e15_f64.to_le_bytes();
    [&arrival[..], &limits, &arrival, &0_f64.to_le_bytes(), &0_f64.to_le_bytes()].concat()
}

#[tokio::test]
async fn law_14_a_pause_for_centuries_ends_within_seconds_of_its_removal() {
    let server = RedisServer::start();
    let (limiter, client) = process(&server);
    call(&client).await.unwrap();
    for removes in ["DEL", "FLUSHALL", "reset", "reset elsewhere"] {
        set(&server, &far_ahead());
        let error = call(&client).await.unwrap_err();
        assert!(error.contains("asked not to be called for another 3"), "{removes}: {error}");
        match removes {
            "DEL" => drop(redis::cmd("DEL").arg(PAUSE).exec(&mut server.connection())),
            "FLUSHALL" => drop(server.command("FLUSHALL")),
            "reset" => assert!(limiter.reset("account", &policy()).await.unwrap()),
            _ => assert!(process(&server).0.reset("account", &policy()).await.unwrap()),
        }
        if removes != "reset" {
            tokio::time::sleep(Duration::from_millis(2_500)).await;
        }
        call(&client).await.unwrap_or_else(|error| panic!("{removes}: {error}"));
    }
}

#[tokio::test]
async fn a_reset_removes_a_value_that_is_no_pause() {
    let server = RedisServer::start();
    let (limiter, client) = process(&server);
    set(&server, b"garbage");
    let error = call(&client).await.unwrap_err();
    assert!(error.contains("the limiter gave no verdict"), "{error}");
    assert!(error.contains("under policy \"upstream\", in its count \"upstream pause\""), "{error}");
    assert!(limiter.reset("account", &policy()).await.unwrap());
    call(&client).await.unwrap();
}
