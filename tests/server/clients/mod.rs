//! Third-party clients obey rejections: they wait for Retry-After, then pass, and send no request in between.
//!
//! The waits are 1 or 2 seconds of real time, because the clients' clocks cannot be mocked. `tests/run` installs
//! missing clients.

mod crowd;
mod curl;
mod program;
mod reqwest;
mod sdks;
mod server;
mod throttle;
mod urllib3;
