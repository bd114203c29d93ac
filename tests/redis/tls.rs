//! `rediss://`: a server with certificates of its own.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use tollgate::{ConfigError, ErrorKind, Limiter, RedisStore, RedisStoreBuilder};

use crate::{
    policy,
    support::redis_server::{Directory, RedisServer, free_port},
};

struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
struct Identity {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn issue(&self, name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }
}

/// A server that speaks TLS on a port of its own.
struct Encrypted {
    authority: Authority,
    port: u16,
    _server: RedisServer,
    _directory: Directory,
}

impl Encrypted {
    fn start(clients_need_certificates: &str) -> Self {
        let (authority, directory, port) = (Authority::new(), Directory::new(), free_port());
        let identity = authority.issue("127.0.0.1");
        let server = RedisServer::start_with(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &directory.write("server.crt", identity.certificate),
            "--tls-key-file",
            &directory.write("server.key", identity.key),
            "--tls-ca-cert-file",
            &directory.write("ca.crt", authority.pem()),
            "--tls-auth-clients",
            clients_need_certificates,
        ]);
        Self { authority, port, _server: server, _directory: directory }
    }

    fn connect(&self, builder: RedisStoreBuilder) -> Limiter {
        // A handshake in a debug build on a busy machine may take longer than a check should.
        let builder = builder.deadline(std::time::Duration::from_secs(2));
        Limiter::new(builder.connect(&format!("rediss://127.0.0.1:{}", self.port)).unwrap())
    }
}

#[tokio::test]
async fn a_server_whose_certificate_is_trusted_is_spoken_to_through_tls() {
    let server = Encrypted::start("no");
    let limiter = server.connect(RedisStore::builder().root_certificates(server.authority.pem()));
    assert_eq!(limiter.check("k", &policy(), 1).await.unwrap().available(), Some(99_999));
}

#[tokio::test]
async fn a_server_whose_certificate_is_not_trusted_is_a_misconfiguration() {
    let server = Encrypted::start("no");
    for builder in [RedisStore::builder(), RedisStore::builder().root_certificates(Authority::new().pem())] {
        let error = server.connect(builder).check("k", &policy(), 1).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_charged()), (ErrorKind::Misconfigured, false), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_gets_it() {
    let server = Encrypted::start("yes");
    let Identity { certificate, key } = server.authority.issue("gate");
    let builder = RedisStore::builder().root_certificates(server.authority.pem());
    let limiter = server.connect(builder.clone().client_certificate(certificate, key));
    assert!(limiter.check("k", &policy(), 1).await.is_ok());
    let error = server.connect(builder).check("k", &policy(), 1).await.unwrap_err();
    assert!(!error.may_have_charged(), "{error}");
}

#[test]
fn a_certificate_that_cannot_be_read_is_a_configuration_error() {
    let connect = |builder: RedisStoreBuilder| builder.connect("rediss://127.0.0.1:1").unwrap_err();
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for builder in [
        RedisStore::builder().root_certificates(nonsense),
        RedisStore::builder().client_certificate("no certificate", "no key"),
    ] {
        assert!(matches!(connect(builder), ConfigError::InvalidRedisUrl { .. }));
    }
}
