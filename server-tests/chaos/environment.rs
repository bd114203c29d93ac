//! A Redis to break, and what breaks it.

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
    scenario::Place,
    support::{
        proxy::{Fault, Proxy},
        redis_server::RedisServer,
    },
};

/// What most faults last: longer than a dial may take.
pub(crate) const HOLD: Duration = Duration::from_millis(1_000);
/// Whom the workers log in as, and with what.
const USER: &str = "limiter";
const PASSWORD: &str = "first";

pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) proxy: Proxy,
    /// Where the server keeps its data.
    directory: PathBuf,
    /// Of the administrator, made before anything breaks. `None` once the server has been killed.
    control: Option<Connection>,
    /// Whether the workers come through the proxy.
    proxied: bool,
    pub(crate) hold: Duration,
}

impl Stage {
    pub(crate) fn set(arguments: &[&str], proxied: bool, hold: Duration) -> Self {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("tollgate-chaos-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let login = format!(">{PASSWORD}");
        let user = ["--user", USER, "on", &login, "~*", "&*", "+@all"];
        let place = ["--dir", directory.to_str().unwrap()];
        let server = RedisServer::start_with(&[&user, &place[..], arguments].concat());
        let (proxy, control) = (Proxy::to(server.port()), Some(server.connection()));
        Self { server, proxy, directory, control, proxied, hold }
    }

    fn url(&self) -> String {
        let port = if self.proxied { self.proxy.port() } else { self.server.port() };
        format!("redis://{USER}:{PASSWORD}@127.0.0.1:{port}")
    }

    pub(crate) fn hold(&self) {
        // A fault takes real time.
        thread::sleep(self.hold);
    }

    /// Has the network do that for a while.
    pub(crate) fn network(&mut self, fault: Fault) {
        self.proxy.set(fault);
        self.hold();
        self.proxy.set(Fault::Pass);
    }

    /// Tells the server so as its administrator, for a while, and then the other thing.
    pub(crate) fn tell(&mut self, commands: &[&str], then: &[&str]) {
        for command in commands {
            self.command(command);
        }
        self.hold();
        for command in then {
            self.command(command);
        }
    }

    pub(crate) fn command(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let mut command = redis::cmd(words[0]);
        let () = command.arg(&words[1..]).query(self.control.as_mut().unwrap()).unwrap();
    }

    /// `kill -9`, and a new process after a while.
    pub(crate) fn kill_and_restart(&mut self) {
        self.control = None;
        self.server.kill();
        self.hold();
        self.server.restart();
        self.control = Some(self.server.connection());
    }
}

impl Place for Stage {
    fn address(&self) -> String {
        format!("server {}", self.url())
    }

    /// A write on a new connection, made the way the workers make theirs.
    fn answers_us(&self) -> u64 {
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

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
