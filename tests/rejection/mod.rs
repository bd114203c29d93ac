//! Responses to refused requests.

mod credentials;
mod custom;
mod denial;
mod head;
mod setup_faults;
