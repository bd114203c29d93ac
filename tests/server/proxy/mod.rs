//! Client addresses behind a real nginx, with forged headers.

mod forged;
mod nginx;
