//! Four processes that wait for the same key.
use crate::support::redis_server::RedisServer;

pub(crate) fn main() {
    let _ = RedisServer::start;
}
