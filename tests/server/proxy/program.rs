//! The process of a proxy.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{net::TcpStream, thread};

use crate::support::redis_server::Directory;

/// A process that ends when this value is dropped or the test process dies.
#[derive(Debug)]
pub(crate) struct Program {
    guard: Child,
    directory: Directory,
}

/// Shell script that runs a program, and kills it when standard input closes, however the test ends. Proxies may be
/// outside of the PATH.
const GUARD: &str = r#"PATH="$PATH:/usr/sbin:/usr/local/sbin"
"$@" & program=$!; read -r _; kill -9 $program; { wait $program; } 2>/dev/null"#;

impl Program {
    /// Starts a program that keeps its files in the directory, and waits until it listens on the ports.
    pub(crate) fn start(command: &[&str], directory: Directory, ports: &[u16]) -> Self {
        let output = File::create(directory.path("output")).unwrap();
        let guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .args(command)
            .env("HOME", directory.path(""))
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let program = Self { guard, directory };
        let start = Instant::now();
        while !ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
            // Varnish compiles its configuration first.
            assert!(start.elapsed() < Duration::from_secs(60), "{} did not start: {}", command[0], program.output());
            thread::sleep(Duration::from_millis(5));
        }
        program
    }

    fn output(&self) -> String {
        fs::read_to_string(self.directory.path("output")).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Whether a program is installed. If it is not, the test is skipped, or fails where proxies are required.
pub(crate) fn is_installed(program: &str) -> bool {
    let script = r#"PATH="$PATH:/usr/sbin:/usr/local/sbin"; command -v "$1""#;
    let found = Command::new("sh").args(["-c", script, "sh", program]).output().unwrap().status.success();
    let is_required = std::env::var_os("TOLLGATE_PROXIES").is_some_and(|proxies| proxies == "required");
    assert!(found || !is_required, "{program} is not installed");
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}
