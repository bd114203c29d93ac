//! The limiter: breaker, deadline, local fallback, checks in handlers.

mod breaker;
mod breaker_schedules;
mod deadline;
mod handler_checks;
mod local_fallback;
mod outage_events;
mod panics;
mod two_domain_store;
