//! A Redis server behind a proxy, with methods that inject faults.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tollgate::redis::{self, Client, Connection, TlsCertificates};

use crate::support::authority::{Authority, Identity};
use crate::support::proxy::{Fault, Proxy};
use crate::support::{ports::free_port, redis_server::RedisServer};
use crate::{record::now_us, target::Target};

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
    /// The port with TLS and the file of the authority, if the workers use TLS.
    tls: Option<(u16, String)>,
    pub(crate) hold: Duration,
}

/// Whether the workers of all scenarios with one server use TLS.
fn uses_tls() -> bool {
    env::var_os("TOLLGATE_CHAOS_TLS").is_some()
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
        let tls = uses_tls().then(|| (free_port(), certificates(&directory)));
        let with_tls = tls.iter().flat_map(|(port, files)| {
            ["--tls-port", &port.to_string(), "--tls-auth-clients", "no", "--tls-ca-cert-file", &files.authority]
                .into_iter()
                .chain(["--tls-cert-file", &files.certificate, "--tls-key-file", &files.key])
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let with_tls: Vec<String> = with_tls.collect();
        let with_tls: Vec<&str> = with_tls.iter().map(String::as_str).collect();
        let server = RedisServer::start_with(&[&user, &target[..], &with_tls, arguments].concat());
        let proxy = Proxy::to(tls.as_ref().map_or(server.port(), |(port, _)| *port));
        let (control, tls) = (Some(server.connection()), tls.map(|(port, files)| (port, files.authority)));
        Self { server, proxy, directory, control, proxied, tls, hold }
    }

    /// The URL of the workers.
    fn url(&self) -> String {
        let direct = self.tls.as_ref().map_or(self.server.port(), |(port, _)| *port);
        let port = if self.proxied { self.proxy.port() } else { direct };
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{USER}:{PASSWORD}@127.0.0.1:{port}")
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

/// The files of a server's certificate.
struct Files {
    authority: String,
    certificate: String,
    key: String,
}

fn certificates(directory: &Path) -> Files {
    let authority = Authority::new();
    let Identity { certificate, key } = authority.issue("127.0.0.1");
    let write = |name: &str, content: String| {
        fs::write(directory.join(name), content).unwrap();
        directory.join(name).to_str().unwrap().to_owned()
    };
    Files {
        authority: write("ca.crt", authority.pem()),
        certificate: write("server.crt", certificate),
        key: write("server.key", key),
    }
}

impl Target for Environment {
    fn address(&self) -> String {
        match &self.tls {
            Some((_, authority)) => format!("tls {authority} {}", self.url()),
            None => format!("server {}", self.url()),
        }
    }

    /// Repeats a write on a new connection, with the workers' login and route, until the write succeeds.
    fn serves_again_us(&self) -> u64 {
        let start = Instant::now();
        loop {
            let client = match &self.tls {
                Some((_, authority)) => {
                    let root_cert = Some(fs::read(authority).unwrap());
                    let certificates = TlsCertificates { client_tls: None, root_cert };
                    Client::build_with_tls(self.url(), certificates).unwrap()
                }
                None => Client::open(self.url()).unwrap(),
            };
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
