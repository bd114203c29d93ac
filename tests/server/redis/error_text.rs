//! Error texts contain the text of the server, without keys and passwords.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tollgate::{Error, Limiter, RedisStore};

use super::{address::MINIMAL_ACL, fake_server, policy};
use crate::support::redis_server::RedisServer;

async fn error_of_check(url: &str) -> Error {
    // A long deadline, so that a loaded machine causes no timeouts.
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10)).open(url).unwrap();
    Limiter::new(store).check("alice", &policy(), 1).await.unwrap_err()
}

/// The error of a check by a user with this ACL.
async fn error_under_acl(acl: &str) -> Error {
    let server = RedisServer::start();
    server.command(&format!("ACL SETUSER gate on >hunter2 {acl}"));
    error_of_check(&server.url().replace("//", "//gate:hunter2@")).await
}

#[tokio::test]
async fn an_error_contains_the_full_text_of_the_server() {
    let server = RedisServer::start();
    let closed = RedisServer::start_with(&["--requirepass", "hunter2"]);
    for (error, text) in [
        (
            error_of_check(&closed.url()).await,
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ),
        (
            error_of_check(&closed.url().replace("//", "//:wrong@")).await,
            "WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (error_of_check(&format!("{}/99", server.url())).await, "ERR DB index is out of range"),
        (error_under_acl("~* -@all").await, "no permissions to run the 'evalsha' command"),
        (error_under_acl(&MINIMAL_ACL.replace("tollgate", "other")).await, "NOPERM"),
    ] {
        let shown = error.to_string();
        assert!(shown.contains(text), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("alice"), "{shown}");
    }
}

#[tokio::test]
async fn the_error_of_a_single_check_contains_the_full_text_of_the_server() {
    let server = RedisServer::start();
    server.command("SADD tollgate:{alice}:p:l5:1h x");
    let shown = error_of_check(&server.url()).await.to_string();
    assert!(shown.contains("WRONGTYPE Operation against a key holding the wrong kind of value"), "{shown}");
    assert!(!shown.contains("alice"), "{shown}");
}

/// Servers quote the arguments of an unknown command; a proxy may quote a login.
#[tokio::test]
async fn law_10_an_error_text_is_cut_before_quoted_arguments() {
    let server = RedisServer::start_with(&["--rename-command", "EVALSHA", ""]);
    let shown = error_of_check(&server.url()).await.to_string();
    assert!(shown.contains("ERR unknown command 'EVALSHA'"), "{shown}");
    assert!(!shown.contains("alice") && !shown.contains("args"), "{shown}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://gate:hunter2@{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(quote));
    let shown = error_of_check(&url).await.to_string();
    assert!(shown.contains("ERR invalid argument"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// Replies with an error that quotes a login, as a proxy might.
fn quote(mut stream: TcpStream) {
    while let Ok(1..) = stream.read(&mut [0; 4096]) {
        let _ = stream.write_all(&b"-ERR invalid argument 'hunter2' of a call\r\n".repeat(3));
    }
}

const PASSWORD: &str = "hunter2-s3cret";

/// A reply of the script in which a check has failed with this text.
fn script_error(text: &str) -> Vec<u8> {
    // The time, a number that stands for a failure, and the length of the text.
    let numbers = [1e15, -1.0, text.len() as f64].map(f64::to_le_bytes).concat();
    let packed = [&numbers, text.as_bytes()].concat();
    [format!("${}\r\n", packed.len()).as_bytes(), &packed, b"\r\n"].concat()
}

#[tokio::test]
async fn law_10_no_error_shows_the_password_whatever_a_server_says() {
    let lines = [
        ("WRONGPASS user gate password hunter2-s3cret is wrong", "WRONGPASS user gate password *** is wrong"),
        ("hunter2-s3cret is wrong", "*** is wrong"),
        ("ERR unknown command 'hunter2-s3cret'", "ERR unknown command"),
        ("ERR user_script:3: bad 'hunter2-s3cret' x", "ERR user_script:3: bad"),
    ];
    for (line, shown) in lines {
        for refused in ["HELLO", "EVALSHA", "CLUSTER", "SENTINEL", "check"] {
            let port = fake_server::start(move |command| {
                let reply = match command {
                    _ if command == refused => format!("-{line}\r\n").into_bytes(),
                    "EVALSHA" if refused == "check" => script_error(line),
                    "HELLO" => b"%1\r\n+proto\r\n:3\r\n".to_vec(),
                    _ => b"+OK\r\n".to_vec(),
                };
                (Duration::ZERO, reply)
            });
            let url = format!("redis://gate:{PASSWORD}@127.0.0.1:{port}");
            let builder = RedisStore::builder().deadline(Duration::from_secs(10));
            let store = match refused {
                "CLUSTER" => builder.open_cluster([&url]),
                "SENTINEL" => builder.open_sentinel([&url], "mymaster"),
                _ => builder.open(&url),
            };
            let limiter = Limiter::new(store.unwrap());
            let text = |error: Error| format!("{error} {error:?}");
            let first = text(limiter.check("k", &policy(), 1).await.unwrap_err());
            let second = text(limiter.ready().await.unwrap_err());
            assert!(!first.contains("hunter2") && !second.contains("hunter2"), "{refused}: {first}, {second}");
            // The client summarises the errors of sentinels.
            assert!(refused == "SENTINEL" || first.contains(shown), "{refused}: {first}");
        }
    }
}
