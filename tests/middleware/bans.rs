//! Bans under a layer.

use crate::support::app::limiter_and_clock;
use crate::support::bans::{
    bans_refuse_requests_that_cost_nothing, five_failed_logins_then_an_hour, many_logins_at_once,
    settlements_that_do_not_fit_are_denials,
};

#[tokio::test]
async fn a_ban_refuses_every_request_of_the_key() {
    let (limiter, clock) = limiter_and_clock();
    bans_refuse_requests_that_cost_nothing(&limiter, &clock).await;
}

#[tokio::test]
async fn five_failed_logins_ban_for_an_hour() {
    let (limiter, clock) = limiter_and_clock();
    five_failed_logins_then_an_hour(&limiter, &clock).await;
    clock.advance(std::time::Duration::from_secs(7_200));
    many_logins_at_once(&limiter, &clock).await;
}

#[tokio::test]
async fn a_settlement_that_does_not_fit_is_a_denial() {
    let (limiter, clock) = limiter_and_clock();
    settlements_that_do_not_fit_are_denials(&limiter, &clock).await;
}
