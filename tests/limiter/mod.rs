//! The limiter: breaker, deadline, local fallback, checks in handlers, checks without a future,
//! policies with shards.

mod acquire;
mod blocked;
mod breaker;
mod breaker_schedules;
mod by_hand;
mod calendar;
mod deadline;
mod first_of;
mod growing_bans;
mod handler_checks;
mod holds;
mod lease;
mod local_fallback;
mod mistakes;
mod outage_events;
mod outages;
mod panics;
mod partial;
mod policy_mistakes;
mod resets;
mod shadow;
mod shards;
mod try_check;
mod two_domain_store;
mod units;
