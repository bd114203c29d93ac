//! The layer and its service.

mod cancellation;
mod clones;
mod configuration;
mod cost;
mod decision;
mod errors;
mod extensions;
mod failure;
mod first_of;
mod holds;
mod mistakes;
mod nesting;
mod one_budget;
mod placement;
mod policies;
mod readiness;
mod refusal;
mod route_comparison;
mod route_patterns;
mod route_spellings;
mod routes;
mod several_keys;
mod shadow;
mod stacked_layers;
mod test_util;
mod types;
