//! The memory store. The suite that every store passes is run in `tests/testing/`.

mod clear;
mod full;
mod memory;
mod mistakes;
mod redis_cluster;
mod redis_questions;
mod redis_resp3;
mod redis_sentinels;
mod redis_urls;
mod redis_world;
mod wrapper;
