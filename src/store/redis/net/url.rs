//! Parses the URLs of servers and of sentinels, and explains mistakes in them.
//!
//! No message shows a part of a URL: in a mistaken URL any part may belong to the password.

use std::{fmt, time::Duration};

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisError};

use super::endpoint::{Announcer, Endpoint, Security, with_protocol};
use super::{followed::Followed, redact::Passwords};
use crate::error::ConfigError;

/// Parses the URL of a server, checks that this build supports it, and sets up its sockets.
pub(crate) fn read(url: &str, security: &Security) -> Result<Endpoint, ConfigError> {
    let endpoint = read_any(url, security)?;
    security.check(&endpoint)?;
    Ok(endpoint)
}

/// Parses a URL as [`read`] does, but accepts one without TLS although certificates are set: they may belong to another
/// server.
fn read_any(url: &str, security: &Security) -> Result<Endpoint, ConfigError> {
    let url = url.trim();
    if let Some(mistake) = mistake(url) {
        return Err(invalid(mistake));
    }
    let info = url.into_connection_info().map_err(|error| unreadable(&error))?;
    let info = info.set_tcp_settings(tcp_settings());
    // RESP3 reports idle connections that the server closes.
    let info = if url.contains("protocol=") { info } else { with_protocol(info, ProtocolVersion::RESP3) };
    security.endpoint(info)
}

/// The error of a URL that cannot be used. `reason` says what to write instead.
pub(crate) fn invalid(reason: impl fmt::Display) -> ConfigError {
    ConfigError::new(format!("the Redis URL (not shown, it may hold a password) cannot be used: {reason}"))
}

/// The client's error about a URL, without its details, which may be a part of the URL.
pub(crate) fn unreadable(error: &RedisError) -> ConfigError {
    let text = error.to_string();
    let reason = text.split(" - ").next().unwrap_or_default();
    invalid(format!(
        "{reason}; write redis://[user:password@]host[:port][/database], with %XX for special characters in the login \
         (%25 for %)"
    ))
}

/// Explains a frequent mistake. `None` if the URL has none of them.
fn mistake(url: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = url.split_once(':').filter(|(_, rest)| rest.starts_with('/')) else {
        return Some(
            "it has no scheme; write redis:// in front of it, rediss:// for TLS, or unix:// for a socket's path",
        );
    };
    match &*scheme.to_ascii_lowercase() {
        "redis" | "valkey" => server_mistake(rest),
        "rediss" | "valkeys" if cfg!(feature = "tls") => server_mistake(rest),
        "rediss" | "valkeys" => Some("TLS needs tollgate's feature `tls`; switch it on in Cargo.toml"),
        "unix" | "redis+unix" | "valkey+unix" => socket_mistake(rest),
        "http" | "https" => Some("http:// is not a scheme of Redis; write redis://, or rediss:// for TLS"),
        _ => Some("its scheme is not one of Redis'; write redis://, rediss:// for TLS, or unix:// for a socket's path"),
    }
}

fn server_mistake(rest: &str) -> Option<&'static str> {
    let Some(rest) = rest.strip_prefix("//") else { return Some("two slashes follow the scheme; write redis://host") };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    // Neither a database nor a parameter contains an @, so an @ behind the host ends the login.
    if tail.contains('@') {
        return Some(match tail.as_bytes()[0] {
            b'/' => "the login has a / that is not escaped; write %2F for it",
            b'?' => "the login has a ? that is not escaped; write %3F for it",
            _ => "the login has a # that is not escaped; write %23 for it",
        });
    }
    let (login, host) = authority.rsplit_once('@').map_or((None, authority), |(login, host)| (Some(login), host));
    if login.is_some_and(|login| login.contains('@')) {
        return Some("the login has an @ that is not escaped; write %40 for it");
    }
    host_mistake(host).or_else(|| tail_mistake(tail))
}

fn host_mistake(host: &str) -> Option<&'static str> {
    let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Some("it has no host; write redis://host:port, with redis://:password@host:port for a password");
    }
    let port = port?;
    if port.contains(':') {
        return Some("an IPv6 address stands in brackets; write redis://[::1]:6379");
    }
    let is_port = port.is_empty() || port.parse::<u16>().is_ok_and(|port| port > 0);
    (!is_port).then_some("the port is no number from 1 to 65535; write redis://host:6379")
}

/// A mistake behind the host: in the database or in the parameters.
fn tail_mistake(tail: &str) -> Option<&'static str> {
    if let Some((_, fragment)) = tail.split_once('#') {
        return Some(match fragment {
            "insecure" => {
                "#insecure would trust any server that answers; leave it out, and name the authority that the server's \
                 certificate is from with `RedisStoreBuilder::root_certificates`"
            }
            _ => "Redis has no use for a # and what follows; leave them out, or write %23 if they belong to a login",
        });
    }
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let database = path.trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Some("a slash behind the host is followed by the number of a database; write redis://host:port/0");
    }
    query_mistake(query)
}

fn socket_mistake(rest: &str) -> Option<&'static str> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if !path.starts_with('/') || path.len() < 2 {
        return Some("a socket has an absolute path; write unix:///run/redis.sock, with three slashes");
    }
    if path.contains('#') {
        return Some("a path or a login has a # that is not escaped; write %23 for it");
    }
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let is_known =
        |pair: &str| ["", "db", "user", "pass", "protocol"].contains(&pair.split('=').next().unwrap_or(pair));
    match query.split('&').all(is_known) {
        true => query_mistake(query),
        false => Some("a socket's parameters are db, user, pass and protocol; write unix:///run/redis.sock?db=3"),
    }
}

fn query_mistake(query: &str) -> Option<&'static str> {
    let mut protocols = query.split('&').filter_map(|pair| pair.strip_prefix("protocol="));
    let is_unknown = |protocol: &str| !matches!(protocol, "2" | "3" | "resp2" | "resp3");
    protocols.any(is_unknown).then_some("the protocol is resp2 or resp3; write ?protocol=resp2")
}

/// Time without an acknowledgement after which the kernel gives a peer up. Checks stop waiting much sooner.
#[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
const PEER_TIMEOUT: Duration = Duration::from_secs(3);

/// Socket settings that detect a lost peer in seconds. The kernel's defaults take a quarter of an hour and two hours.
pub(crate) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(5));
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    let keepalive = keepalive.with_interval(Duration::from_secs(1)).with_retries(3);
    // Nagle's algorithm would hold a small request back until the reply to the previous one has come.
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(PEER_TIMEOUT);
    settings
}

/// Sentinels and the name of the master that they monitor.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(super) sentinels: Vec<Endpoint>,
    /// The login, database and TLS settings of the master. Its "host" is the master's name.
    master: Endpoint,
    pub(super) followed: Followed,
}

impl Sentinels {
    /// Parses the URLs of the sentinels, and `master`: a name, or a URL with the name in place of the host.
    pub(crate) fn new(
        sentinels: impl IntoIterator<Item: AsRef<str>>,
        master: &str,
        security: &Security,
    ) -> Result<Self, ConfigError> {
        let sentinel = |url: &str| {
            let logins = security.sentinel_logins.clone();
            read_any(url, security).map(|endpoint| Endpoint { logins, ..endpoint })
        };
        let sentinels: Vec<_> = sentinels.into_iter().map(|url| sentinel(url.as_ref())).collect::<Result<_, _>>()?;
        if sentinels.is_empty() {
            return Err(invalid("there is no sentinel; give the URL of at least one"));
        }
        let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
        let master = match master.contains("://") {
            true => read_any(master, security)?,
            // A login without a scheme would become part of the name, and errors show the name.
            false if !master.chars().all(is_name) => {
                return Err(invalid(
                    "a master's name has letters, digits and the characters .-_; write redis://user:password@mymaster \
                     for a login",
                ));
            }
            false => read_any("redis://unnamed", security)?.on_host(master.to_owned(), 0, None),
        };
        if master.host().is_empty() {
            return Err(invalid("the master has no name; write \"mymaster\" or redis://mymaster"));
        }
        if !master.is_encrypted() && sentinels.iter().any(Endpoint::is_encrypted) {
            let name = master.host();
            return Err(ConfigError::new(format!(
                "the sentinels are reached through TLS, but their master {name:?} is not, so a password would be sent \
                 in plain text; write rediss://{name} for the master"
            )));
        }
        security.check(&master)?;
        if sentinels.iter().any(|sentinel| matches!(sentinel.info.addr(), ConnectionAddr::Unix(_))) {
            return Err(invalid("sentinels are reached by TCP; write redis://host:26379"));
        }
        Ok(Self { sentinels, master, followed: Followed::default() })
    }

    /// The sentinels' name of the master.
    pub(super) fn name(&self) -> &str {
        self.master.host()
    }

    /// The server that a sentinel names as the master.
    pub(super) fn master_at(&self, host: String, port: u16) -> Endpoint {
        self.master.on_host(host, port, Some(Announcer::Sentinel))
    }

    /// Whether this number of sentinels is more than half of all.
    pub(super) fn are_most(&self, number: usize) -> bool {
        number > self.sentinels.len() / 2
    }

    /// The passwords that no error may show.
    pub(crate) fn passwords(&self) -> Passwords<'_> {
        Passwords::of(self.sentinels.iter().chain([&self.master]).flat_map(Endpoint::secrets))
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.master.host())?;
        f.debug_list().entries(self.sentinels.iter().map(|sentinel| sentinel.info.addr().to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_send_small_requests_at_once_and_notice_a_lost_peer_in_seconds() {
        let endpoint = read("redis://host", &Security::default()).unwrap();
        let settings = endpoint.info.tcp_settings();
        assert!(settings.nodelay() && settings.keepalive().is_some());
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        assert_eq!(settings.user_timeout(), Some(PEER_TIMEOUT));
    }

    #[cfg(unix)]
    #[test]
    fn the_path_of_a_socket_has_at_least_one_character_behind_its_slash() {
        let is_read = |url| read(url, &Security::default()).is_ok();
        assert!(is_read("unix:///a") && !is_read("unix:///"));
    }
}
