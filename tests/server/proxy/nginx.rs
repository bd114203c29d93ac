//! A real nginx with one port per proxy chain, started for one test and ended with it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::support::{ports::free_port, redis_server::Directory};

/// Source address of the outer proxy.
pub(crate) const FRONT: &str = "127.0.0.8";
/// Source address of the proxy in front of the application.
pub(crate) const PROXY: &str = "127.0.0.9";

/// How requests reach the application, and how the proxy passes the client's address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProxyChain {
    /// Appends to X-Forwarded-For.
    ForwardedFor,
    /// Appends to X-Forwarded-For, behind another proxy that does the same.
    TwoProxies,
    /// Appends to X-Forwarded-For, and connects to a unix socket.
    UnixSocket,
    /// Appends to Forwarded.
    Forwarded,
    /// Sets X-Real-IP.
    RealIp,
}

/// An nginx process. The process ends when this value is dropped or the test process dies.
#[derive(Debug)]
pub(crate) struct Nginx {
    guard: Child,
    ports: [u16; 5],
    _directory: Directory,
}

/// Shell script that kills nginx when standard input closes, however the test ends. nginx may be outside of the PATH.
const GUARD: &str = r#"PATH="$PATH:/usr/sbin:/usr/local/sbin"
nginx -e stderr -p "$1" -c "$1/nginx.conf" & server=$!; read -r _; kill -9 $server; { wait $server; } 2>/dev/null"#;

impl Nginx {
    /// Starts nginx in front of an application on a port and on a unix socket.
    pub(crate) fn start(application: SocketAddr, socket: &str) -> Self {
        let directory = Directory::new();
        let ports = [(); 5].map(|()| free_port());
        directory.write("nginx.conf", configuration(&directory.path(""), ports, application, socket));
        let guard = Command::new("sh")
            .args(["-c", GUARD, "nginx", &directory.path("")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let nginx = Self { guard, ports, _directory: directory };
        nginx.wait();
        nginx
    }

    /// The address that clients connect to.
    pub(crate) fn address(&self, chain: ProxyChain) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.ports[chain as usize])
    }

    fn wait(&self) {
        let start = Instant::now();
        while !self.ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()) {
            assert!(start.elapsed() < Duration::from_secs(10), "nginx did not start; is it installed?");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn configuration(directory: &str, ports: [u16; 5], application: SocketAddr, socket: &str) -> String {
    let server = |chain: ProxyChain, to: &str, bind: &str, header: &str| {
        let (port, bind) = (ports[chain as usize], if bind.is_empty() { "off" } else { bind });
        format!(
            "server {{ listen 127.0.0.1:{port}; proxy_bind {bind};
               location / {{ proxy_pass {to}; proxy_set_header {header}; }} }}\n"
        )
    };
    let application = format!("http://{application}");
    let socket = format!("http://unix:{socket}:");
    let single = format!("http://127.0.0.1:{}", ports[ProxyChain::ForwardedFor as usize]);
    let append = "X-Forwarded-For $proxy_add_x_forwarded_for";
    let servers = [
        server(ProxyChain::ForwardedFor, &application, PROXY, append),
        server(ProxyChain::TwoProxies, &single, FRONT, append),
        server(ProxyChain::UnixSocket, &socket, "", append),
        server(ProxyChain::Forwarded, &application, PROXY, r#"Forwarded "$http_forwarded, for=$remote_addr""#),
        server(ProxyChain::RealIp, &application, PROXY, "X-Real-IP $remote_addr"),
    ];
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {directory}/{what};\n"))
        .concat();
    format!(
        "daemon off; master_process off; pid {directory}/pid; events {{ worker_connections 64; }}
         http {{ access_log off; {temporary} {} }}",
        servers.concat()
    )
}
