//! Bans under a layer.

use crate::support::{app::limiter_and_clock, bans::bans_refuse_requests_that_cost_nothing};

#[tokio::test]
async fn a_ban_refuses_every_request_of_the_key() {
    let (limiter, clock) = limiter_and_clock();
    bans_refuse_requests_that_cost_nothing(&limiter, &clock).await;
}
