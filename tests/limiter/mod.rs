//! The limiter without HTTP: breaker, deadline, local fallback, checks by hand.

mod breaker;
mod breaker_schedules;
mod by_hand;
mod deadline;
mod debts;
mod local_fallback;
mod outage_events;
mod panics;
