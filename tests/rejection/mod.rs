//! Responses to refused requests.

mod custom;
mod denial;
mod head;
mod setup_faults;
