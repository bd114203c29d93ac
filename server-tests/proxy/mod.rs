//! Clients behind a real nginx, and the headers that they forge.

mod forged;
mod nginx;
