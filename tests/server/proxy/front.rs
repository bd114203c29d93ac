//! Real proxies with the configurations of the page.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use tollgate::HeaderStyle;

use super::nginx;
use super::page::{block, replace};
use super::program::{Program, is_installed};
use crate::support::authority::{Authority, Identity};
use crate::support::{ports::free_port, redis_server::Directory};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Proxy {
    Caddy,
    Haproxy,
    Nginx,
    Varnish,
}

/// Which lines of the page the proxy has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lines {
    /// Those that every application needs.
    Plain,
    /// In HAProxy, Forwarded in place of X-Forwarded-For, and also a listener on `[::1]`.
    Forwarded,
    /// The PROXY protocol in front, from [`BALANCER`].
    ProxyProtocol,
    /// In nginx, a cache that keeps everything that it may, with the lines for fields of this style.
    Cache(HeaderStyle),
}

/// The address of a load balancer in front of the proxy.
pub(crate) const BALANCER: &str = "127.0.0.9";
/// What the page has in the place of the application's address and of [`BALANCER`].
const APPLICATION: &str = "10.0.0.2:3000";
const BALANCERS: &str = "10.0.0.0/24";

/// A proxy that listens on a port, and on another one with HTTP/2: over TLS, or in Varnish without.
pub(crate) struct Front {
    port: u16,
    http2_port: u16,
    pub(crate) certificates: Authority,
    _program: Program,
}

impl Proxy {
    pub(crate) fn is_installed(self) -> bool {
        is_installed(match self {
            Self::Caddy => "caddy",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::Varnish => "varnishd",
        })
    }
}

impl Front {
    pub(crate) async fn start(proxy: Proxy, lines: Lines, application: SocketAddr) -> Self {
        let start = move || {
            let setup = Setup { lines, application, ports: [free_port(), free_port()], directory: Directory::new() };
            let certificates = Authority::new();
            let Identity { certificate, key } = certificates.issue("localhost");
            setup.directory.write("certificate", &certificate);
            setup.directory.write("key", &key);
            setup.directory.write("both", certificate + &key);
            let [port, http2_port] = setup.ports;
            let _program = match proxy {
                Proxy::Caddy => setup.caddy(),
                Proxy::Haproxy => setup.haproxy(),
                Proxy::Nginx => setup.nginx(),
                Proxy::Varnish => setup.varnish(),
            };
            Self { port, http2_port, certificates, _program }
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    pub(crate) fn http2_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.http2_port).into()
    }
}

/// Whether this machine has the address `[::1]`.
pub(crate) fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// What the page has for fields of this style: outside of `server`, and in the `location`.
fn nginx_lines(style: HeaderStyle) -> [String; 2] {
    match style {
        HeaderStyle::Draft11 | HeaderStyle::Draft07 => [2, 3].map(|number| block("nginx", number).to_owned()),
        HeaderStyle::Draft06 | HeaderStyle::Draft03 => [
            replace(block("nginx", 4), "_x_ratelimit", "_ratelimit"),
            replace(block("nginx", 5), "X-RateLimit", "RateLimit"),
        ],
        _ => [4, 5].map(|number| block("nginx", number).to_owned()),
    }
}

struct Setup {
    lines: Lines,
    application: SocketAddr,
    ports: [u16; 2],
    directory: Directory,
}

impl Setup {
    fn path(&self, name: &str) -> String {
        self.directory.path(name)
    }

    fn caddy(self) -> Program {
        let [port, http2_port] = self.ports;
        let site = replace(block("caddyfile", 0), APPLICATION, &self.application.to_string());
        let plain = replace(&site, "example.com {", &format!("http://localhost:{port} {{\nbind 127.0.0.1"));
        let [certificate, key] = ["certificate", "key"].map(|name| self.path(name));
        let address = format!("https://localhost:{http2_port} {{\nbind 127.0.0.1\ntls {certificate} {key}");
        let encrypted = replace(&site, "example.com {", &address);
        // Without its interface for administration, and without the listener on port 80 that redirects to HTTPS.
        let file = self.directory.write("Caddyfile", format!("{{\nadmin off\nauto_https off\n}}\n{plain}{encrypted}"));
        let command = ["caddy", "run", "--config", &file, "--adapter", "caddyfile"];
        Program::start(&command, self.directory, &self.ports)
    }

    fn haproxy(self) -> Program {
        let [port, http2_port] = self.ports;
        let mut lines = replace(block("haproxy", 0), APPLICATION, &self.application.to_string());
        if self.lines == Lines::Forwarded {
            lines = replace(&lines, "    option forwardfor\n", block("haproxy", 1));
        }
        if self.lines == Lines::ProxyProtocol {
            lines = replace(&lines, "    bind :80\n", &replace(block("haproxy", 2), BALANCERS, BALANCER));
        }
        let encrypted = format!("bind 127.0.0.1:{http2_port} ssl crt {} alpn h2,http/1.1", self.path("both"));
        let ipv6 = if self.lines == Lines::Forwarded && has_ipv6() { format!(",[::1]:{port}") } else { String::new() };
        let lines = replace(&lines, "bind :80", &format!("bind 127.0.0.1:{port}{ipv6}\n    {encrypted}"));
        let file = self.directory.write("haproxy.cfg", lines);
        // One thread, because threads share connections to the application only now and then.
        let threads = self.directory.write("threads.cfg", "global\n    nbthread 1\n");
        Program::start(&["haproxy", "-db", "-f", &threads, "-f", &file], self.directory, &self.ports)
    }

    fn nginx(self) -> Program {
        let [port, http2_port] = self.ports;
        let mut lines = replace(block("nginx", 0), APPLICATION, &self.application.to_string());
        if self.lines == Lines::ProxyProtocol {
            let protocol = replace(block("nginx", 1), BALANCERS, BALANCER);
            lines = replace(&lines, "    listen 80;\n", &replace(&protocol, "80 ", &format!("127.0.0.1:{port} ")));
        } else {
            lines = replace(&lines, "listen 80;", &format!("listen 127.0.0.1:{port};"));
        }
        if let Lines::Cache(style) = self.lines {
            let [maps, fields] = nginx_lines(style);
            let directory = self.path("cache");
            let outside = format!("proxy_cache_path {directory} keys_zone=cache:1m;\n{maps}");
            let inside = "proxy_cache cache; proxy_cache_valid any 10m; proxy_cache_lock on;\n";
            lines = outside + &replace(&lines, "        proxy_pass", &format!("{inside}{fields}        proxy_pass"));
        }
        let [certificate, key] = ["certificate", "key"].map(|name| self.path(name));
        let encrypted = format!(
            "server {{\n    listen 127.0.0.1:{http2_port} ssl http2;\n    ssl_certificate {certificate};
                 ssl_certificate_key {key};"
        );
        lines = replace(&lines, "server {\n    listen", &format!("{encrypted}\n    listen"));
        nginx::start(&lines, self.directory, &self.ports)
    }

    fn varnish(self) -> Program {
        let lines = replace(block("vcl", 0), "10.0.0.2", &self.application.ip().to_string());
        let lines = replace(&lines, "3000", &self.application.port().to_string());
        let file = self.directory.write("default.vcl", lines);
        let protocol = if self.lines == Lines::ProxyProtocol { ",PROXY" } else { "" };
        let [port, http2_port] = self.ports.map(|port| format!("127.0.0.1:{port}{protocol}"));
        let home = self.path("varnish");
        // Its log is of a megabyte instead of 80.
        let command = ["varnishd", "-F", "-j", "none", "-n", &home, "-f", &file, "-a", &port, "-a", &http2_port];
        let command = [&command[..], &["-s", "malloc,16m", "-p", "vsl_space=1m", "-p", "feature=+http2"]].concat();
        Program::start(&command, self.directory, &self.ports)
    }
}
