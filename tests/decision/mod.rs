//! Decisions outside the middleware.

mod json;
