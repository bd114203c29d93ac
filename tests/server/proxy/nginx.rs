//! A real nginx with one port per proxy chain, started for one test and ended with it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::program::Program;
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

/// An nginx process.
#[derive(Debug)]
pub(crate) struct Nginx {
    ports: [u16; 5],
    _program: Program,
}

impl Nginx {
    /// Starts nginx in front of an application on a port and on a unix socket.
    pub(crate) fn start(application: SocketAddr, socket: &str) -> Self {
        let ports = [(); 5].map(|()| free_port());
        let _program = start(&servers(ports, application, socket), Directory::new(), &ports);
        Self { ports, _program }
    }

    /// The address that clients connect to.
    pub(crate) fn address(&self, chain: ProxyChain) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.ports[chain as usize])
    }
}

/// Starts nginx with these lines in its block `http`.
pub(crate) fn start(lines: &str, directory: Directory, ports: &[u16]) -> Program {
    let home = directory.path("");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {home}/{what};\n"))
        .concat();
    let settings = format!("daemon off; master_process off; pid {home}/pid; events {{ worker_connections 64; }}");
    let file = directory.write("nginx.conf", format!("{settings}\nhttp {{ access_log off;\n{temporary}{lines} }}"));
    Program::start(&["nginx", "-e", "stderr", "-p", &home, "-c", &file], directory, ports)
}

fn servers(ports: [u16; 5], application: SocketAddr, socket: &str) -> String {
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
    [
        server(ProxyChain::ForwardedFor, &application, PROXY, append),
        server(ProxyChain::TwoProxies, &single, FRONT, append),
        server(ProxyChain::UnixSocket, &socket, "", append),
        server(ProxyChain::Forwarded, &application, PROXY, r#"Forwarded "$http_forwarded, for=$remote_addr""#),
        server(ProxyChain::RealIp, &application, PROXY, "X-Real-IP $remote_addr"),
    ]
    .concat()
}
