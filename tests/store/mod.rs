//! The memory store. The suite that every store passes is run in `tests/testing/`.

mod full;
mod memory;
mod redis_urls;
