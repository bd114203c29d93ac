//! A private `redis-server`: on a free port, without persistence, killed when this process ends.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, aio::MultiplexedConnection, io::tcp::TcpSettings};

use crate::Result;

#[derive(Debug)]
pub struct RedisServer {
    guard: Child,
    port: u16,
}

/// Shell script that kills the server when standard input closes, which happens however this process ends.
const GUARD: &str = r#"redis-server "$@" >/dev/null 2>&1 & server=$!; read -r _; kill -9 $server; wait $server"#;

impl RedisServer {
    /// Starts a server. Loads the redis-cell module if its path is given.
    pub fn start(redis_cell: Option<&str>) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let module = redis_cell.map(|path| ["--loadmodule", path]);
        let guard = Command::new("sh")
            .args(["-c", GUARD, "redis-server", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--loglevel", "warning"])
            .args(module.iter().flatten())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { guard, port };
        server.wait()?;
        Ok(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self, database: u8) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }

    /// A client whose connections have TCP_NODELAY, like the connections of tollgate's store.
    pub fn client(&self) -> Result<Client> {
        let info = self.url(0).into_connection_info()?;
        Ok(Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))?)
    }

    pub async fn multiplexed(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(Some(Duration::from_secs(10)))
            .set_pipeline_buffer_size(1024);
        Ok(self.client()?.get_multiplexed_async_connection_with_config(&config).await?)
    }

    pub fn blocking(&self) -> Result<redis::Connection> {
        Ok(self.client()?.get_connection()?)
    }

    pub fn version(&self) -> Result<String> {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.blocking()?)?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").to_owned())
    }

    fn wait(&self) -> Result<()> {
        let start = Instant::now();
        while !self.ping().is_ok_and(|reply| reply.starts_with("+PONG")) {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(
                    "redis-server did not answer within 10 s: install it on the PATH, or leave out --redis-cell".into(),
                );
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn ping(&self) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(b"PING\r\nQUIT\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
