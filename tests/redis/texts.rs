//! What an error tells operators: the server's own words.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use tollgate::{Error, Limiter, RedisStore};

use crate::{address::LEAST, policy, support::redis_server::RedisServer};

async fn refused(url: &str) -> Error {
    // A loaded machine must not turn into missing answers.
    let store = RedisStore::builder().plain_keys().deadline(Duration::from_secs(10)).connect(url).unwrap();
    Limiter::new(store).check("alice", &policy(), 1).await.unwrap_err()
}

/// The error of a check by a user with this ACL.
async fn refused_under(acl: &str) -> Error {
    let server = RedisServer::start();
    server.command(&format!("ACL SETUSER gate on >hunter2 {acl}"));
    refused(&server.url().replace("//", "//gate:hunter2@")).await
}

#[tokio::test]
async fn an_error_has_the_servers_whole_text() {
    let server = RedisServer::start();
    let closed = RedisServer::start_with(&["--requirepass", "hunter2"]);
    for (error, text) in [
        (refused(&closed.url()).await, "NOAUTH HELLO must be called with the client already authenticated"),
        (
            refused(&closed.url().replace("//", "//:wrong@")).await,
            "WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (refused(&format!("{}/99", server.url())).await, "ERR DB index is out of range"),
        (refused_under("~* -@all").await, "no permissions to run the 'evalsha' command"),
        (refused_under(&LEAST.replace("tollgate", "other")).await, "NOPERM"),
    ] {
        let shown = error.to_string();
        assert!(shown.contains(text), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("alice"), "{shown}");
    }
}

#[tokio::test]
async fn the_error_of_one_check_has_the_servers_whole_text() {
    let server = RedisServer::start();
    server.command("SADD tollgate:{alice}:p:l4:3600000000 x");
    let shown = refused(&server.url()).await.to_string();
    assert!(shown.contains("WRONGTYPE Operation against a key holding the wrong kind of value"), "{shown}");
    assert!(!shown.contains("alice"), "{shown}");
}

/// Servers quote the arguments of a command that they do not know; a proxy may quote a login.
#[tokio::test]
async fn law_10_a_text_that_quotes_arguments_ends_before_them() {
    let server = RedisServer::start_with(&["--rename-command", "EVALSHA", ""]);
    let shown = refused(&server.url()).await.to_string();
    assert!(shown.contains("ERR unknown command 'EVALSHA'"), "{shown}");
    assert!(!shown.contains("alice") && !shown.contains("args"), "{shown}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://gate:hunter2@{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().for_each(quote));
    let shown = refused(&url).await.to_string();
    assert!(shown.contains("ERR invalid argument"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// Answers as a proxy might that does not like a login.
fn quote(mut stream: TcpStream) {
    while let Ok(1..) = stream.read(&mut [0; 4096]) {
        let _ = stream.write_all(&b"-ERR invalid argument 'hunter2' of a call\r\n".repeat(3));
    }
}
