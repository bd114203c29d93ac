//! Private servers: on a free port, without persistence, killed when this process ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{self, Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, path::PathBuf, thread};

use crate::{Result, endpoint::Endpoint, link::Link};

#[derive(Debug)]
pub struct Server {
    guard: Child,
    port: u16,
    /// The directory of a cluster node, which writes a file about its cluster.
    directory: Option<PathBuf>,
}

/// Shell script that kills the server when standard input closes, which happens however this process ends.
const GUARD: &str = r#""$@" >/dev/null 2>&1 & server=$!; read -r _; kill -9 $server; wait $server"#;

impl Server {
    /// Starts Redis. Loads the redis-cell module if its path is given.
    pub fn redis(redis_cell: Option<&str>) -> Result<Self> {
        let mut options = vec!["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--loglevel", "warning"];
        options.extend(redis_cell.iter().flat_map(|path| ["--loadmodule", path]));
        Self::start("redis-server", "--port", &options)
            .map_err(|error| format!("{error}: install it on the PATH, or leave out --redis-cell").into())
    }

    /// Starts a node of a Redis Cluster, without slots. Its bus port is the port plus 10 000.
    pub fn node() -> Result<Self> {
        let mut port = free_port()?;
        while port.checked_add(10_000).is_none_or(|bus| TcpListener::bind(("127.0.0.1", bus)).is_err()) {
            port = free_port()?;
        }
        let directory = env::temp_dir().join(format!("tollgate-peers-{}-{port}", process::id()));
        fs::create_dir_all(&directory)?;
        let path = directory.to_string_lossy().into_owned();
        let options = ["--cluster-enabled", "yes", "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"];
        let options = [&options[..], &["--loglevel", "warning", "--dir", &path]].concat();
        Self::start_at(port, Some(directory), "redis-server", "--port", &options)
    }

    /// Starts the throttlecrab-server at `path`, with its default store and only the protocol of Redis.
    pub fn throttlecrab(path: &str) -> Result<Self> {
        Self::start(path, "--redis-port", &["--redis", "--redis-host", "127.0.0.1", "--log-level", "error"])
    }

    /// Starts a program with a free port and waits until it answers.
    fn start(program: &str, port_option: &str, options: &[&str]) -> Result<Self> {
        Self::start_at(free_port()?, None, program, port_option, options)
    }

    fn start_at(
        port: u16,
        directory: Option<PathBuf>,
        program: &str,
        port_option: &str,
        options: &[&str],
    ) -> Result<Self> {
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard", program, port_option, &port.to_string()])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Self { guard, port, directory };
        let start = Instant::now();
        while !server.answers() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(format!("{program} did not answer within 10 s").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::local(self.port)
    }

    /// The server at the far end of a network with this round trip: half of it passes in each direction.
    pub fn behind(&self, round_trip: Duration) -> Endpoint {
        Endpoint::behind(Link::to(self.port, round_trip))
    }

    pub fn version(&self) -> Result<String> {
        Ok(self.info("redis_version:")?.unwrap_or_else(|| "unknown".to_owned()))
    }

    /// Deletes all keys.
    pub fn clear(&self) -> Result<()> {
        redis::cmd("FLUSHALL").exec(&mut self.endpoint().blocking()?)?;
        Ok(())
    }

    /// The server's process, which a signal stops and continues.
    pub fn process(&self) -> Result<Process> {
        let id = self.info("process_id:")?.ok_or("the server does not tell its process")?;
        Ok(Process(id.parse()?))
    }

    fn info(&self, name: &str) -> Result<Option<String>> {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.endpoint().blocking()?)?;
        Ok(info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned))
    }

    fn answers(&self) -> bool {
        let ping = || {
            const PONG: &[u8] = b"+PONG\r\n";
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
            let mut reply = [0; PONG.len()];
            stream.read_exact(&mut reply)?;
            std::io::Result::Ok(reply == PONG)
        };
        ping().unwrap_or(false)
    }
}

/// The process of a server.
pub struct Process(u32);

impl Process {
    /// Sends a signal: `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.0.to_string()]).status()?;
        if status.success() { Ok(()) } else { Err(format!("kill -{signal} {} failed: {status}", self.0).into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
