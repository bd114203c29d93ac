//! Requests and their responses, within the process and over TCP.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Extensions, HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tower::{Service, ServiceExt};

/// A response with its whole body.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub extensions: Extensions,
    pub body: Bytes,
}

impl Reply {
    async fn read<B>(response: axum::http::Response<B>) -> Self
    where
        B: HttpBody<Data = Bytes, Error: std::fmt::Debug>,
    {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: parts.status, headers: parts.headers, extensions: parts.extensions, body }
    }

    /// The values of a header, joined with commas; `None` if the header is absent.
    pub fn header(&self, name: &str) -> Option<String> {
        let lines: Vec<&str> = self.headers.get_all(name).iter().map(|line| line.to_str().unwrap()).collect();
        (!lines.is_empty()).then(|| lines.join(", "))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type").as_deref(), Some("application/problem+json"));
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A request without a body.
pub fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

/// Sends a request to a clone of the service, as a server does.
pub async fn send<S, B>(service: &S, request: Request<Body>) -> Reply
where
    S: Service<Request<Body>, Response = axum::http::Response<B>, Error = Infallible> + Clone,
    B: HttpBody<Data = Bytes, Error: std::fmt::Debug>,
{
    let Ok(response) = service.clone().oneshot(request).await;
    Reply::read(response).await
}

pub async fn get(router: &Router, path: &str) -> Reply {
    send(router, request(Method::GET, path, &[])).await
}

pub async fn get_with(router: &Router, path: &str, headers: &[(&str, &str)]) -> Reply {
    send(router, request(Method::GET, path, headers)).await
}

/// Serves the router on a free port, with peer addresses, until the runtime of the test ends.
pub async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Connects from the given local address. On Linux, every address of `127.0.0.0/8` is local.
pub async fn connect_from(source: IpAddr, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(source, 0)).unwrap();
    socket.connect(address).await.unwrap()
}

/// One HTTP/1.1 connection.
pub struct Connection(http1::SendRequest<Body>);

impl Connection {
    pub async fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap()).await
    }

    pub async fn open_from(source: IpAddr, address: SocketAddr) -> Self {
        Self::over(connect_from(source, address).await).await
    }

    pub async fn over(stream: TcpStream) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.send(request(Method::GET, path, &[])).await
    }

    pub async fn send(&mut self, mut request: Request<Body>) -> Reply {
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        self.0.ready().await.unwrap();
        let response: axum::http::Response<Incoming> = self.0.send_request(request).await.unwrap();
        Reply::read(response).await
    }
}

/// One HTTP/2 connection, and the URI of its server.
#[derive(Clone)]
pub struct Http2(http2::SendRequest<Body>, String);

impl Http2 {
    /// Connects with prior knowledge.
    pub async fn open(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), &format!("http://{address}")).await
    }

    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, server: &str) -> Self {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender, server.to_owned())
    }

    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let uri = format!("{}{path}", self.1);
        let response: axum::http::Response<Incoming> =
            self.0.send_request(request(Method::GET, &uri, headers)).await.unwrap();
        Reply::read(response).await
    }
}
