//! `ThrottleLayer`: outbound calls that wait for their turn and obey their upstream.

mod concurrency;
mod configuration;
mod errors;
mod fleet;
mod garbage;
mod limits;
mod order;
mod pauses;
mod readiness;
mod styles;
mod upstream;
