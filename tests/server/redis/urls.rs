//! Invalid URLs and their error messages.

use tollgate::{Limiter, RedisStore};

use super::policy;
use crate::support::{connect, redis_server::RedisServer, says};

/// Parts of the passwords in these URLs; an unescaped character may split a password.
const PIECES: [&str; 3] = ["hunter2", "sesame", "swordfish"];

fn mistake(url: &str) -> String {
    let error = RedisStore::open(url).unwrap_err();
    says(&error, "the Redis URL (not shown, it may hold a password) cannot be used: ");
    let shown = format!("{error} {error:?}");
    for piece in PIECES {
        assert!(!shown.contains(piece), "{shown}");
    }
    error.to_string()
}

#[test]
fn each_url_error_says_what_to_write_and_hides_the_password() {
    for (url, remedy) in [
        ("", "write redis:// in front"),
        ("localhost", "write redis:// in front"),
        ("localhost:6379", "write redis:// in front"),
        (":hunter2@localhost:6379", "write redis:// in front"),
        ("/run/redis.sock", "unix://"),
        ("http://localhost:6379", "http:// is not a scheme of Redis; write redis://"),
        ("https://localhost:6379", "http:// is not a scheme of Redis; write redis://"),
        ("hunter2://localhost", "write redis://"),
        ("redis:/localhost", "two slashes"),
        ("redis://", "it has no host"),
        ("redis://:hunter2", "it has no host"),
        ("redis://:hunter2@", "it has no host"),
        ("redis://:hunter2/sesame@host:6379", "write %2F"),
        ("redis://gate:hunter2#sesame@host:6379", "write %23"),
        ("redis://gate:hunter2?sesame@host:6379", "write %3F"),
        ("redis://gate:hunter2@sesame@host:6379", "write %40"),
        ("redis://gate:hunter2@sesame/swordfish@host:6379", "write %2F"),
        ("redis://:hunter2@host:port", "the port is no number from 1 to 65535"),
        ("redis://host:65536", "the port is no number from 1 to 65535"),
        ("redis://host:0", "the port is no number from 1 to 65535"),
        ("redis://::1:6379", "it has no host"),
        ("redis://fe80::1:6379", "redis://[::1]:6379"),
        ("redis://host/hunter2", "the number of a database; write redis://host:port/0"),
        ("redis://host/#hunter2", "write %23"),
        ("redis://host?protocol=hunter2", "write ?protocol=resp2"),
        ("redis://gate:%FF@host", "with %XX"),
        ("redis://0.0.0.0", "wildcard"),
        ("unix://redis.sock", "unix:///run/redis.sock"),
        ("unix:///", "three slashes"),
        ("unix:///run/redis.sock?pass=hunter2#sesame", "write %23"),
        ("unix:///run/redis.sock?database=hunter2", "write unix:///run/redis.sock?db=3"),
        ("rediss://:hunter2@host/#insecure", "`RedisStoreBuilder::root_certificates`"),
    ] {
        let shown = mistake(url);
        assert!(shown.contains(remedy), "{url}: {shown}");
    }
}

#[tokio::test]
async fn escaped_and_plain_parts_of_a_url_are_parsed_correctly() {
    let server = RedisServer::start();
    let password = "a/b#c?d@e%f:g";
    server.command(&format!("ACL SETUSER gate on >{password} ~* +@all"));
    let address = server.url().trim_start_matches("redis://").to_owned();
    for url in [
        format!("redis://gate:a%2Fb%23c%3Fd%40e%25f%3Ag@{address}"),
        // An unescaped colon, and a trailing newline.
        format!("redis://gate:a%2Fb%23c%3Fd%40e%25f:g@{address}\n"),
        format!("valkey://gate:a%2Fb%23c%3Fd%40e%25f%3Ag@{address}/0?protocol=resp2"),
    ] {
        let _ = Limiter::new(connect(&url)).check("k", &policy(), 1).await.unwrap();
    }
}
