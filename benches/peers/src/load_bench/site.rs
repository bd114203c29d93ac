//! The example server as a process, on a core that the generators leave free.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// Where the limits of the server are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Variant {
    NoLayer,
    Memory,
    Redis,
}

/// The limit of each client.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub units: u64,
    pub window: &'static str,
    /// Whether the server has metrics.
    pub counted: bool,
}

impl Limit {
    /// No generator reaches it. The server keeps no metrics, because those of the example cost more than the layer.
    pub const FAR: Self = Self { units: 1_000_000, window: "1s", counted: false };
}

impl Variant {
    /// In the order of the tables.
    pub const ALL: [Self; 3] = [Self::NoLayer, Self::Memory, Self::Redis];

    pub fn name(self) -> &'static str {
        match self {
            Self::NoLayer => "no layer",
            Self::Memory => "memory",
            Self::Redis => "Redis",
        }
    }
}

pub struct Site {
    guard: Child,
    port: u16,
}

/// Shell script that kills the server when standard input closes, however this process ends. The first core is that of
/// the server, because `benches/load` gives the others to the generators.
const GUARD: &str = r#"if command -v taskset >/dev/null; then set -- taskset -c 0 "$@"; fi
"$@" >/dev/null 2>&1 & server=$!; read -r _; kill -9 $server; wait $server"#;

impl Site {
    pub fn start(server: &str, variant: Variant, redis_port: u16, limit: Limit) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut arguments = ["--no-page", "--listen", &format!("127.0.0.1:{port}")].map(str::to_owned).to_vec();
        arguments.extend([
            "--limit".to_owned(),
            limit.units.to_string(),
            "--window".to_owned(),
            limit.window.to_owned(),
        ]);
        if !limit.counted {
            arguments.push("--no-metrics".to_owned());
        }
        match variant {
            Variant::NoLayer => arguments.push("--no-limits".to_owned()),
            Variant::Memory => {}
            // A deadline that a busy machine does not exceed, so that every count is that of Redis.
            Variant::Redis => arguments.extend(
                ["--deadline", "5s", "--redis", &format!("redis://127.0.0.1:{}", redis_port)].map(str::to_owned),
            ),
        }
        let guard = Command::new("sh")
            .args(["-c", GUARD, "guard", server])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let site = Self { guard, port };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(format!("{} did not listen within 10 s", server).into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(site)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/watch", self.port)
    }

    /// The requests that the server has allowed and denied, by its own count.
    pub fn counted(&self) -> Result<(u64, u64)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics)?;
        let of = |outcome: &str| -> u64 {
            let outcome = format!("outcome=\"{outcome}\"");
            let lines = metrics.lines().filter(|line| line.starts_with("tollgate_decisions_total{"));
            let values = lines.filter(|line| line.contains(&outcome)).filter_map(|line| line.rsplit(' ').next());
            values.filter_map(|value| value.parse::<u64>().ok()).sum()
        };
        Ok((of("allowed"), of("denied")))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
