//! Client addresses behind real proxies, with forged headers, shared connections and caches.
//!
//! A test of a proxy that is not installed passes with a note on stderr. `tests/run --others` installs all of them, and
//! sets `TOLLGATE_PROXIES=required`, which makes the test fail.

mod caching;
mod caller;
mod forged;
mod front;
mod http2;
mod nginx;
mod of_the_page;
mod page;
mod program;
mod proxy_protocol;
mod reuse;
mod site;
