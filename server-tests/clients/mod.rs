//! What clients in the field make of our refusals: they wait as told, then pass, and ask no oftener.
//!
//! The waits are real, 1 or 2 seconds, because the clients are: their clocks cannot be moved. `tests/run` installs the
//! clients where they are missing.

mod curl;
mod program;
mod reqwest;
mod server;
mod urllib3;
