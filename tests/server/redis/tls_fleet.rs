//! All connections of a fleet over TLS are cut at once, and the server computes the handshakes one after the other.

use std::time::{Duration, Instant};
use std::{fs, process::Command, sync::Arc};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;
use tollgate::{Limiter, RedisStore};

use super::policy;
use crate::support::ports::free_port;
use crate::support::redis_server::{Directory, RedisServer};

/// A server with a self-signed RSA certificate, of which rcgen can make none.
struct RsaServer {
    server: RedisServer,
    port: u16,
    certificate: String,
    _directory: Directory,
}

impl RsaServer {
    fn start(bits: u64) -> Self {
        let (directory, port) = (Directory::new(), free_port());
        let key = directory.write("server.key", String::new());
        let certificate = directory.write("server.crt", String::new());
        let openssl = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-newkey", &format!("rsa:{bits}"), "-days", "2", "-subj", "/CN=fleet"])
            .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &key, "-out", &certificate])
            .output()
            .expect("this test needs openssl");
        assert!(openssl.status.success(), "{}", String::from_utf8_lossy(&openssl.stderr));
        let server = RedisServer::start_with(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &certificate,
            "--tls-auth-clients",
            "no",
            "--tls-session-caching",
            "no",
            "--maxclients",
            "20000",
            "--tcp-backlog",
            "4096",
        ]);
        Self { server, port, certificate: fs::read_to_string(certificate).unwrap(), _directory: directory }
    }

    /// A limiter of a process of its own, as far as the server can tell.
    fn limiter(&self) -> Limiter {
        let builder = RedisStore::builder().root_certificates(self.certificate.clone()).pool_size(1);
        Limiter::new(builder.open(&format!("rediss://127.0.0.1:{}", self.port)).unwrap()).without_notices()
    }

    fn cut_all_connections(&self) {
        self.server.command("CLIENT KILL TYPE normal");
    }

    /// The time in which clients that dial once and wait are all answered.
    async fn patient_clients(&self, count: usize) -> Duration {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let (start, port) = (Instant::now(), self.port);
        let mut answered = JoinSet::new();
        for _ in 0..count {
            let connector = connector.clone();
            answered.spawn(async move {
                let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let mut stream = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
                stream.write_all(b"PING\r\n").await.unwrap();
                assert_eq!(stream.read_u8().await.unwrap(), b'+');
                stream
            });
        }
        answered.join_all().await;
        start.elapsed()
    }
}

/// The time until all limiters get verdicts.
async fn all_judged(limiters: &[Limiter]) -> Duration {
    let start = Instant::now();
    let mut judged = JoinSet::new();
    for limiter in limiters {
        let limiter = limiter.clone();
        judged.spawn(async move {
            while limiter.check("k", &policy(), 1).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let all = async { while judged.join_next().await.is_some() {} };
    if timeout(Duration::from_secs(120), all).await.is_err() {
        let errors = judged.len();
        let last = limiters[0].check("k", &policy(), 1).await;
        panic!("{errors} of {} limiters never get a verdict again: {last:?}", limiters.len());
    }
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long, and needs openssl"]
async fn long_a_fleet_whose_tls_connections_were_cut_gets_verdicts_again() {
    for (bits, count) in [(8_192, 20), (8_192, 120), (4_096, 200), (2_048, 2_500)] {
        let server = RsaServer::start(bits);
        let patient = server.patient_clients(count).await;
        let limiters: Vec<_> = (0..count).map(|_| server.limiter()).collect();
        // Whole handshakes. After the cut, sessions are resumed.
        let started = all_judged(&limiters).await;
        server.cut_all_connections();
        let cut = all_judged(&limiters).await;
        println!("RSA {bits}: {count} patient clients {patient:?}, stores that start {started:?}, after a cut {cut:?}");
        // The second is what is promised after each outage.
        let most = 2 * patient + Duration::from_secs(1);
        assert!(started <= most && cut <= most, "RSA {bits}, {count} stores: {started:?}, {cut:?} of {patient:?}");
    }
}
