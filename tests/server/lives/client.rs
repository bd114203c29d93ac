//! A client that goes away in some phase of its connection.

use std::task::{Context, Poll};
use std::{convert::Infallible, net::SocketAddr, pin::Pin, time::Duration};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::web_socket::{self, CLOSE, TEXT};
use crate::support::random::Random;

#[derive(Clone, Copy, Debug)]
pub(super) enum Protocol {
    H1,
    H2,
    Sse,
    WebSocket,
    Grpc,
}

pub(super) const PROTOCOLS: [Protocol; 5] =
    [Protocol::H1, Protocol::H2, Protocol::Sse, Protocol::WebSocket, Protocol::Grpc];

impl Protocol {
    /// The key of its requests.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
            Self::Sse => "sse",
            Self::WebSocket => "web-socket",
            Self::Grpc => "grpc",
        }
    }
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Outcome {
    /// The client has gone before its request was sent in full.
    NotSent,
    /// The client has gone without a response.
    Sent,
    /// The client has gone after the head of the response, or after some of its body.
    Begun,
    /// The response has ended.
    Ended,
    Denied,
    /// The server has gone, because its runtime has ended.
    Cut,
}

impl Outcome {
    pub(super) const COUNT: usize = Self::ALL.len();
    pub(super) const ALL: [Self; 6] = [Self::NotSent, Self::Sent, Self::Begun, Self::Ended, Self::Denied, Self::Cut];
}

/// The phase after which a client goes away.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Connected,
    HalfSent,
    Sent,
    Head,
    Event,
    End,
}

const PHASES: [Phase; 6] = [Phase::Connected, Phase::HalfSent, Phase::Sent, Phase::Head, Phase::Event, Phase::End];

pub(super) struct Client {
    address: SocketAddr,
    random: Random,
}

/// The body of a request.
struct Message {
    bytes: Option<&'static [u8]>,
    /// Whether more follows that never comes.
    is_half: bool,
}

impl Body for Message {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(bytes))))),
            None if self.is_half => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && !self.is_half
    }
}

/// The server has closed the connection.
struct Closed;

impl<E: std::error::Error> From<E> for Closed {
    fn from(_: E) -> Self {
        Self
    }
}

impl Client {
    pub(super) fn new(address: SocketAddr, random: Random) -> Self {
        Self { address, random }
    }

    /// A connection from its begin to a reset, which comes in a random phase.
    pub(super) async fn live(&mut self, protocol: Protocol) -> Outcome {
        let phase = self.random.pick(&PHASES);
        let life = match protocol {
            Protocol::H1 | Protocol::Sse | Protocol::WebSocket => self.first_version(protocol, phase).await,
            Protocol::H2 | Protocol::Grpc => self.second_version(protocol, phase).await,
        };
        life.unwrap_or(Outcome::Cut)
    }

    /// A connection that is reset when it is dropped, so that no port waits.
    async fn connect(&self) -> Result<TcpStream, Closed> {
        let socket = TcpSocket::new_v4()?;
        socket.set_zero_linger()?;
        Ok(socket.connect(self.address).await?)
    }

    /// A random pause, so that a reset meets the server in any of its steps.
    async fn pause(&mut self) {
        let us = self.random.below(4) * self.random.below(1_000);
        sleep(Duration::from_micros(us)).await;
    }

    async fn first_version(&mut self, protocol: Protocol, phase: Phase) -> Result<Outcome, Closed> {
        let mut stream = self.connect().await?;
        let key = web_socket::key(self.random.next());
        let upgrade = match protocol {
            Protocol::WebSocket => format!(
                "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n"
            ),
            _ => "connection: close\r\n".to_owned(),
        };
        let request = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n{upgrade}\r\n", protocol.name());
        match phase {
            Phase::Connected => return Ok(Outcome::NotSent),
            Phase::HalfSent => {
                stream.write_all(&request.as_bytes()[..20]).await?;
                self.pause().await;
                return Ok(Outcome::NotSent);
            }
            _ => stream.write_all(request.as_bytes()).await?,
        }
        if phase == Phase::Sent {
            self.pause().await;
            return Ok(Outcome::Sent);
        }
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).await? == 0 {
                return Err(Closed);
            }
            head.extend(byte);
        }
        match &head[9..12] {
            b"429" | b"503" => return Ok(Outcome::Denied),
            status => assert!(matches!(status, b"200" | b"101"), "{}", String::from_utf8_lossy(&head)),
        }
        self.pause().await;
        if phase == Phase::Head {
            return Ok(Outcome::Begun);
        }
        if let Protocol::WebSocket = protocol {
            let head = String::from_utf8_lossy(&head);
            assert!(head.contains(&format!("sec-websocket-accept: {}\r\n", web_socket::accept(&key))), "{head}");
            return self.messages(&mut stream, phase).await;
        }
        if phase == Phase::Event {
            stream.read_exact(&mut [0]).await?;
            return Ok(Outcome::Begun);
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await?;
        if rest.ends_with(b"0\r\n\r\n") { Ok(Outcome::Ended) } else { Err(Closed) }
    }

    /// Messages of a WebSocket, and its end: a reset between two messages or within one, or the handshake of a close.
    async fn messages(&mut self, stream: &mut TcpStream, phase: Phase) -> Result<Outcome, Closed> {
        for number in 0..self.random.below(4) {
            let (message, mask) = (format!("message {number}"), self.random.next().to_be_bytes());
            let frame = web_socket::frame(TEXT, message.as_bytes(), mask.first_chunk().copied());
            if phase == Phase::Event && self.random.one_in(4) {
                stream.write_all(&frame[..5]).await?;
                return Ok(Outcome::Begun);
            }
            stream.write_all(&frame).await?;
            assert_eq!(web_socket::read(stream).await?, (TEXT, message.into_bytes()));
        }
        if phase == Phase::Event {
            return Ok(Outcome::Begun);
        }
        stream.write_all(&web_socket::frame(CLOSE, &[], Some([1, 2, 3, 4]))).await?;
        assert_eq!(web_socket::read(stream).await?, (CLOSE, Vec::new()));
        stream.read_to_end(&mut Vec::new()).await?;
        Ok(Outcome::Ended)
    }

    async fn second_version(&mut self, protocol: Protocol, phase: Phase) -> Result<Outcome, Closed> {
        let stream = self.connect().await?;
        if phase == Phase::Connected {
            return Ok(Outcome::NotSent);
        }
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let outcome = self.exchange(&mut sender, protocol, phase).await;
        // The client has reset its stream, or else resets the connection with it.
        if self.random.one_in(2) {
            self.pause().await;
        }
        driver.abort();
        outcome
    }

    async fn exchange(
        &mut self,
        sender: &mut http2::SendRequest<Message>,
        protocol: Protocol,
        phase: Phase,
    ) -> Result<Outcome, Closed> {
        let is_half = phase == Phase::HalfSent;
        let request = match protocol {
            Protocol::Grpc => Request::builder()
                .method(Method::POST)
                .uri("http://localhost/grpc.health.v1.Health/Watch")
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(Message { bytes: Some(if is_half { &[0; 3] } else { &[0; 5] }), is_half }),
            _ => Request::builder().uri("http://localhost/h2").body(Message { bytes: None, is_half }),
        };
        let response = sender.send_request(request?);
        if is_half || phase == Phase::Sent {
            let _ = timeout(Duration::from_micros(self.random.below(3_000)), response).await;
            return Ok(if is_half { Outcome::NotSent } else { Outcome::Sent });
        }
        let mut response = response.await?;
        match response.status().as_u16() {
            429 | 503 => return Ok(Outcome::Denied),
            status => assert_eq!(status, 200),
        }
        self.pause().await;
        if phase == Phase::Head {
            return Ok(Outcome::Begun);
        }
        if phase == Phase::Event {
            response.body_mut().frame().await.ok_or(Closed)??;
            return Ok(Outcome::Begun);
        }
        let body = response.into_body().collect().await?;
        match protocol {
            Protocol::Grpc => assert_eq!(body.trailers().ok_or(Closed)?["grpc-status"], "0"),
            _ => assert_eq!(body.to_bytes(), "data: 3\n\ndata: 2\n\ndata: 1\n\ndata: 0\n\n"),
        }
        Ok(Outcome::Ended)
    }
}
