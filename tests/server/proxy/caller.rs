//! A client that forges headers.

use axum::http::{Method, StatusCode};

use crate::support::http::{Connection, Http2, Reply, request};

pub(crate) const ALICE: &str = "127.0.0.2";
pub(crate) const BOB: &str = "127.0.0.3";

/// Header lines that a client sends before those of the proxy. `{n}` is a different number in each request.
const FORGED: [&[(&str, &str)]; 9] = [
    &[],
    &[("x-forwarded-for", "198.51.100.{n}")],
    &[("x-forwarded-for", "198.51.100.{n}"), ("x-forwarded-for", "127.0.0.3, 127.0.0.8, 127.0.0.9")],
    &[("x-forwarded-for", "127.0.0.3"), ("x-real-ip", "127.0.0.3"), ("forwarded", "for=127.0.0.3")],
    &[("x-forwarded-for", "<script>, \"203.0.113.{n}, ::{n}, unknown, _x,,"), ("x-real-ip", "198.51.100.{n}")],
    &[("forwarded", "for=198.51.100.{n};by=127.0.0.9, for=\"[2001:db8::{n}]:80\"")],
    &[("forwarded", "for=127.0.0.3;host=\"a,b;c\""), ("x-real-ip", "127.0.0.9")],
    &[("cf-connecting-ip", "127.0.0.3"), ("true-client-ip", "127.0.0.3"), ("fly-client-ip", "127.0.0.3")],
    &[("x-forwarded-for", "127.0.0.9, 127.0.0.9, 127.0.0.9"), ("x-forwarded-for", "127.0.0.8")],
];

/// The units of each client: a request for each forgery.
pub(crate) const BUDGET: usize = FORGED.len();

pub(crate) enum Caller {
    Http1(Connection),
    Http2(Http2),
}

impl Caller {
    pub(crate) async fn get(&mut self, path: &str, lines: &[(&str, &str)]) -> Reply {
        match self {
            Self::Http1(connection) => connection.send(request(Method::GET, path, lines)).await,
            Self::Http2(connection) => connection.get(path, lines).await,
        }
    }

    /// Sends a request that no cache answers.
    pub(crate) async fn post(&mut self, path: &str) -> Reply {
        let Self::Http1(connection) = self else { panic!("a POST goes over HTTP/1.1") };
        connection.send(request(Method::POST, path, &[])).await
    }

    pub(crate) async fn send(&mut self, number: usize, lines: &[(&str, &str)]) -> Reply {
        let lines: Vec<(&str, String)> =
            lines.iter().map(|(name, value)| (*name, value.replace("{n}", &number.to_string()))).collect();
        let lines: Vec<(&str, &str)> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.get("/", &lines).await
    }

    /// Asserts that one request per forgery spends the whole budget, and that further requests are denied.
    pub(crate) async fn assert_charged_for_all(&mut self, of: &str) {
        for (number, lines) in FORGED.iter().enumerate() {
            let reply = self.send(number, lines).await;
            assert_eq!(reply.status, StatusCode::OK, "{of}: {lines:?}: {}", reply.text());
            let left = BUDGET - 1 - number;
            assert!(reply.header("ratelimit").unwrap().contains(&format!(";r={left};")), "{of}: {lines:?}");
        }
        for (number, lines) in FORGED.iter().enumerate() {
            let reply = self.send(number, lines).await;
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{of}: {lines:?}");
        }
    }
}
