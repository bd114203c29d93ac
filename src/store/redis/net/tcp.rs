//! Connects a socket to a server.

use std::io;

use redis::io::tcp::{TcpSettings, socket2::SockRef};
use tokio::{net::TcpStream, task::JoinSet};

use super::host_names;

/// Connects to the address of `host` that accepts first. All are tried at the same time, because one of them may not
/// answer at all.
pub(super) async fn connect(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    for address in host_names::look_up(host, port).await? {
        attempts.spawn(TcpStream::connect(address));
    }
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(stream)) => return configured(stream, settings),
            Ok(Err(error)) => failure = error,
            // The runtime is shutting down.
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Sets the options of a socket, as the redis crate does.
fn configured(stream: TcpStream, settings: &TcpSettings) -> io::Result<TcpStream> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(&stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}
