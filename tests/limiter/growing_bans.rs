//! Bans that grow, in memory.

use crate::support::{
    app::limiter_and_clock,
    growing_bans::{bans_grow, both_settings_side_by_side, last_bans_are_forgotten, two_policies_ban_at_once},
};

#[tokio::test]
async fn law_5_each_ban_is_twice_as_long_as_the_last_and_ends_when_it_says() {
    let (limiter, clock) = limiter_and_clock();
    bans_grow(&limiter, &clock).await;
}

#[tokio::test]
async fn the_last_ban_is_forgotten_after_a_quiet_time_and_by_hand() {
    let (limiter, clock) = limiter_and_clock();
    last_bans_are_forgotten(&limiter, &clock).await;
}

#[tokio::test]
async fn policies_with_and_without_growth_keep_to_each_others_bans() {
    let (limiter, clock) = limiter_and_clock();
    both_settings_side_by_side(&limiter, &clock).await;
}

#[tokio::test]
async fn two_policies_of_a_check_ban_each_by_its_own_denials() {
    let (limiter, clock) = limiter_and_clock();
    two_policies_ban_at_once(&limiter, &clock).await;
}
