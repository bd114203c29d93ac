//! The settings that all connections of a store share.

use std::time::Duration;

use redis::Cmd;

use super::silence::Servers;

/// The settings of all connections.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long a command waits for its reply.
    pub(crate) deadline: Duration,
    /// How long checks wait for the first dial of a server.
    pub(crate) first_dial_deadline: Duration,
    /// Creates the command that is sent once to each server, ahead of all others, on its first connection.
    pub(crate) first_command: fn() -> Cmd,
    pub(crate) servers: Servers,
}
