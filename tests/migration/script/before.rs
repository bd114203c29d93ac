use std::{error::Error, net::SocketAddr, time::Duration};

use axum::{
    Router,
    extract::{ConnectInfo, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::get,
};
use bb8_redis::{RedisConnectionManager, bb8::Pool, redis::Script};

const SCRIPT: &str = "
    local count = redis.call('INCR', KEYS[1])
    if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
    return count <= tonumber(ARGV[1])";

async fn limit(
    State(pool): State<Pool<RedisConnectionManager>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Result<Response, StatusCode> {
    let failed = StatusCode::INTERNAL_SERVER_ERROR;
    let mut connection = pool.get().await.map_err(|_| failed)?;
    let is_allowed: bool = Script::new(SCRIPT)
        .key(format!("limit:{}", peer.ip()))
        .arg(5)
        .arg(60)
        .invoke_async(&mut *connection)
        .await
        .map_err(|_| failed)?;
    if !is_allowed {
        return Err(StatusCode::TOO_MANY_REQUESTS);
    }
    Ok(next.run(request).await)
}

pub async fn app(url: &str) -> Result<Router, Box<dyn Error>> {
    let manager = RedisConnectionManager::new(url)?;
    let pool = Pool::builder().connection_timeout(Duration::from_secs(1));
    let limit = from_fn_with_state(pool.build(manager).await?, limit);
    Ok(Router::new().route("/", get(|| async { "hello" })).layer(limit))
}
