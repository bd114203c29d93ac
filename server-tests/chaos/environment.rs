//! A Redis server behind a proxy, with methods that inject faults.

use std::{
    env, fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use tollgate::redis::{self, Client, Connection};

use crate::{
    record::now_us,
    support::{
        proxy::{Fault, Proxy},
        redis_server::RedisServer,
    },
    target::Target,
};

/// The duration of most faults: longer than the timeout of a dial.
pub(crate) const HOLD: Duration = Duration::from_millis(1_000);
/// The login of the workers.
const USER: &str = "limiter";
const PASSWORD: &str = "first";

pub(crate) struct Environment {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    /// The server's data directory.
    directory: PathBuf,
    /// The administrator's connection, opened before the fault. `None` while the server is killed.
    control: Option<Connection>,
    /// Whether the workers connect through the proxy.
    proxied: bool,
    pub(crate) hold: Duration,
}

impl Environment {
    pub(crate) fn start(arguments: &[&str], proxied: bool, hold: Duration) -> Self {
        static ENVIRONMENTS: AtomicU32 = AtomicU32::new(0);
        let number = ENVIRONMENTS.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("tollgate-chaos-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let login = format!(">{PASSWORD}");
        let user = ["--user", USER, "on", &login, "~*", "&*", "+@all"];
        let target = ["--dir", directory.to_str().unwrap()];
        let server = RedisServer::start_with(&[&user, &target[..], arguments].concat());
        let (proxy, control) = (Proxy::to(server.port()), Some(server.connection()));
        Self { server, proxy, directory, control, proxied, hold }
    }

    fn url(&self) -> String {
        let port = if self.proxied { self.proxy.port() } else { self.server.port() };
        format!("redis://{USER}:{PASSWORD}@127.0.0.1:{port}")
    }

    /// Sleeps for the duration of the fault.
    pub(crate) fn hold(&self) {
        thread::sleep(self.hold);
    }

    /// Injects a network fault for the duration of the fault.
    pub(crate) fn inject(&mut self, fault: Fault) {
        self.proxy.set(fault);
        self.hold();
        self.proxy.set(Fault::Pass);
    }

    /// Sends commands that begin a fault, holds, and sends commands that end the fault.
    pub(crate) fn hold_between(&mut self, begin: &[&str], end: &[&str]) {
        for command in begin {
            self.command(command);
        }
        self.hold();
        for command in end {
            self.command(command);
        }
    }

    /// Sends a command as the administrator.
    pub(crate) fn command(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let mut command = redis::cmd(words[0]);
        let () = command.arg(&words[1..]).query(self.control.as_mut().unwrap()).unwrap();
    }

    /// Kills the server (`kill -9`), holds, and starts the server again.
    pub(crate) fn kill_and_restart(&mut self) {
        self.control = None;
        self.server.kill();
        self.hold();
        self.server.restart();
        self.control = Some(self.server.connection());
    }
}

impl Target for Environment {
    fn address(&self) -> String {
        format!("server {}", self.url())
    }

    /// Repeats a write on a new connection, with the workers' login and route, until the write succeeds.
    fn serves_again_us(&self) -> u64 {
        let start = Instant::now();
        loop {
            let client = Client::open(self.url()).unwrap();
            let connection = client.get_connection_with_timeout(Duration::from_millis(200));
            let written: Result<(), _> = connection
                .and_then(|mut connection| redis::cmd("SET").arg(&["chaos:probe", "1"]).query(&mut connection));
            match written {
                Ok(()) => return now_us(),
                Err(error) => assert!(start.elapsed() < Duration::from_secs(10), "the fault does not end: {error}"),
            }
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.server.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
