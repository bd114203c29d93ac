//! A real `redis-server`, started for one test and ended with it.
//!
//! `TOLLGATE_REDIS_SERVER` sets the path of another server: another version of Redis, or Valkey.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};
use std::{net::TcpStream, path::PathBuf, thread};

use super::ports::{free_node_port, free_port};

/// A server process on a free port. The process ends when this value is dropped or the test process dies.
#[derive(Debug)]
pub struct RedisServer {
    guard: Child,
    /// Process id of the server, which is a child of the guard.
    pid: u32,
    port: u16,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    _directory: Option<Directory>,
}

/// Shell script that kills the server when standard input closes, which happens however the test ends.
const GUARD: &str = r#""$0" "$@" >/dev/null 2>&1 & server=$!; echo $server; read -r _; kill -9 $server; wait $server"#;

impl RedisServer {
    /// Starts a server without persistence.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with further arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_at(free_port(), arguments, &[])
    }

    /// Starts a server with these variables in its environment.
    pub fn start_in(environment: &[(&str, &str)]) -> Self {
        Self::start_at(free_port(), &[], environment)
    }

    /// Starts a cluster node. Its bus port is the port plus 10 000, which Redis 6.2 cannot change.
    pub fn start_node(arguments: &[&str]) -> Self {
        Self::start_at(free_node_port(), &[&["--cluster-enabled", "yes"], arguments].concat(), &[])
    }

    fn start_at(port: u16, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        // Each server has its own directory: a replica writes its master's data set to disk, and another server in
        // that directory would load it.
        let directory = Directory::new();
        let mut arguments: Vec<String> = arguments.iter().map(|argument| argument.to_string()).collect();
        arguments.extend(["--dir".to_owned(), directory.path("")]);
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let (guard, pid) = spawn(port, &arguments, &environment);
        let mut server = Self { guard, pid, port, arguments, environment, _directory: Some(directory) };
        server.wait();
        server
    }

    /// Starts a sentinel with this configuration file. The sentinel rewrites the file.
    pub fn start_sentinel(configuration: &str, port: u16) -> Self {
        let port_text = port.to_string();
        let arguments: Vec<_> =
            [configuration, "--port", &port_text, "--bind", "127.0.0.1", "--sentinel"].map(str::to_owned).to_vec();
        let (guard, pid) = spawn_plain(&arguments, &[]);
        let mut server = Self { guard, pid, port, arguments, environment: Vec::new(), _directory: None };
        server.wait();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server, as `kill -9` would, but not in the middle of a write.
    ///
    /// That would leave half of a transaction in the append-only file. A server then starts without it, but writes
    /// behind it, and runs it after the next restart (valkey-io/valkey#4342).
    pub fn kill(&mut self) {
        let _ = Command::new("kill").args(["-STOP", &self.pid.to_string()]).stderr(Stdio::null()).status();
        while self.is_running() {
            thread::sleep(Duration::from_millis(1));
        }
        drop(self.guard.stdin.take());
        self.guard.wait().unwrap();
    }

    /// Whether the server's process exists and is neither stopped nor a zombie.
    fn is_running(&self) -> bool {
        let state = Command::new("ps").args(["-o", "state=", "-p", &self.pid.to_string()]).output().unwrap().stdout;
        state.first().is_some_and(|state| !matches!(state, b'T' | b't' | b'Z' | b'X'))
    }

    /// Sends the server's process a signal: `STOP`, `CONT`.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([&format!("-{signal}"), &self.pid.to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Kills the server and starts it on the same port: empty, unless its arguments enable persistence.
    pub fn restart(&mut self) {
        self.kill();
        (self.guard, self.pid) = spawn(self.port, &self.arguments, &self.environment);
        self.wait();
    }

    /// Sends an inline command and returns the raw reply.
    pub fn command(&self, command: &str) -> String {
        self.try_command(command).unwrap()
    }

    /// Arguments of a master that starts to replicate as soon as the replica has the data set. A diskless sync would
    /// wait five seconds for more replicas, and up to a second for the replica's acknowledgement.
    pub const IMMEDIATE_REPLICATION: [&str; 2] = ["--repl-diskless-sync", "no"];

    /// Whether exactly this many replicas are in sync. Requires [`Self::IMMEDIATE_REPLICATION`].
    pub fn has_replicas_in_sync(&self, replicas: usize) -> bool {
        self.command("INFO replication").matches("state=online").count() == replicas
    }

    /// Pauses all clients for this time: the server accepts commands and sends no replies.
    pub fn pause(&self, pause: Duration) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("CLIENT PAUSE {} ALL\r\n", pause.as_millis()).as_bytes()).unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    }

    /// The number of connections accepted so far, including the connection of this query.
    pub fn accepted_connections(&self) -> u32 {
        let info = self.command("INFO stats");
        let accepted = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        accepted.trim().parse().unwrap()
    }

    /// Opens a blocking connection, to prepare and to inspect data.
    pub fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Like [`command`](Self::command), but returns an error when the server is unreachable.
    pub fn try_command(&self, command: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut reply = String::new();
        if self.arguments.iter().any(|argument| argument == "--sentinel") {
            // Sentinels reject QUIT.
            stream.write_all(format!("{command}\r\n").as_bytes())?;
            stream.shutdown(std::net::Shutdown::Write)?;
            stream.read_to_string(&mut reply)?;
            return Ok(reply);
        }
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes())?;
        stream.read_to_string(&mut reply)?;
        Ok(reply.trim_end_matches("+OK\r\n").to_owned())
    }

    /// Waits until the server answers PING.
    fn wait(&mut self) {
        let start = Instant::now();
        loop {
            let reply = self.try_command("PING");
            if reply.as_ref().is_ok_and(|reply| reply.starts_with("+PONG") || reply.starts_with("-NOAUTH")) {
                return;
            }
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "redis-server does not answer; is it installed? {reply:?}"
            );
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

fn spawn(port: u16, arguments: &[String], environment: &[(String, String)]) -> (Child, u32) {
    let defaults = ["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--loglevel", "warning"];
    let port = ["--port".to_owned(), port.to_string()];
    let defaults = defaults.map(str::to_owned);
    spawn_plain(&[&port, &defaults[..], arguments].concat(), environment)
}

fn spawn_plain(arguments: &[String], environment: &[(String, String)]) -> (Child, u32) {
    let server = std::env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    // For the server alone, not for the shell of the guard.
    let variables = environment.iter().map(|(name, value)| format!("{name}={value}"));
    let mut guard = Command::new("sh")
        .args(["-c", GUARD])
        .arg("env")
        .args(variables)
        .arg(server)
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

/// The number of calls of a command in `INFO commandstats`; the INFO of this query is not included.
pub fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.command("INFO commandstats");
    let prefix = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static DIRECTORIES: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), DIRECTORIES.fetch_add(1, Ordering::Relaxed));
        // An ended process with the same id may have left a directory.
        let now = UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let path = std::env::temp_dir().join(format!("tollgate-{process}-{number}-{now}"));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
