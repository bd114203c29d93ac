//! Decisions outside the middleware.

mod forecast;
mod json;
