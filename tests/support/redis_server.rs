//! A real `redis-server`, started for one test and ended with it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A server of its own on a free port. It ends when this is dropped, and also when the test process dies.
#[derive(Debug)]
pub struct RedisServer {
    guard: Child,
    /// The server's own process.
    pid: u32,
    port: u16,
    arguments: Vec<String>,
}

/// Ends the server as soon as standard input is closed, however the test ends.
const GUARD: &str =
    r#"redis-server "$@" >/dev/null 2>&1 & server=$!; echo $server; read -r _; kill -9 $server; wait $server"#;

impl RedisServer {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments: Vec<String> = arguments.iter().map(|argument| argument.to_string()).collect();
        let (guard, pid) = spawn(port, &arguments);
        let mut server = Self { guard, pid, port, arguments };
        server.wait();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server, as `kill -9` would.
    pub fn kill(&mut self) {
        drop(self.guard.stdin.take());
        self.guard.wait().unwrap();
    }

    /// Sends the server's process a signal: `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.pid.to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Starts it again on the same port: empty, unless its arguments make it write things down.
    pub fn restart(&mut self) {
        self.kill();
        (self.guard, self.pid) = spawn(self.port, &self.arguments);
        self.wait();
    }

    /// Sends an inline command and returns the raw reply.
    pub fn command(&self, command: &str) -> String {
        self.try_command(command).unwrap()
    }

    /// Makes the server silent for so long: it takes commands and answers none.
    pub fn pause(&self, pause: Duration) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("CLIENT PAUSE {} ALL\r\n", pause.as_millis()).as_bytes()).unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    }

    /// A blocking connection, for setting up data and looking at it.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    fn try_command(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply.trim_end_matches("+OK\r\n").to_owned())
    }

    /// Waits until the server answers; a process needs some time to start, and no clock moves that.
    fn wait(&mut self) {
        let start = Instant::now();
        while !self.try_command("PING").is_ok_and(|reply| reply.starts_with("+PONG") || reply.starts_with("-NOAUTH")) {
            assert!(start.elapsed() < Duration::from_secs(10), "redis-server did not start; is it installed?");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn spawn(port: u16, arguments: &[String]) -> (Child, u32) {
    let defaults = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--loglevel", "warning"];
    let mut guard = Command::new("sh")
        .args(["-c", GUARD, "redis-server", "--port", &port.to_string()])
        .args(defaults)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut pid = String::new();
    BufReader::new(guard.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    (guard, pid.trim().parse().unwrap())
}
