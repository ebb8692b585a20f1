//! A certificate authority of the test's own, and the server's side of TLS.

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::net::TcpStream;
use std::sync::Arc;

/// A connection under TLS.
pub(super) type Secure = StreamOwned<ServerConnection, TcpStream>;

/// Made for one test: who it signed for, and what a client has to know to believe it.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    /// The authority's own certificate, as `ca` options take it.
    pub(crate) pem: String,
    server: Arc<ServerConfig>,
}

impl Authority {
    /// Signs one server certificate for `names` (host names and addresses).
    pub(crate) fn signing(names: &[&str]) -> Self {
        let own_key = KeyPair::generate().expect("a key");
        let mut own = CertificateParams::new(Vec::new()).expect("no names");
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        own.distinguished_name = DistinguishedName::new();
        own.distinguished_name.push(DnType::CommonName, "hicache test authority");
        let pem = own.self_signed(&own_key).expect("a self-signed certificate").pem();
        let issuer = Issuer::new(own, own_key);

        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate =
            CertificateParams::new(names).expect("names").signed_by(&key, &issuer).expect("signed");
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocol versions of ring")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("a certificate with its key");
        Self { pem, server: Arc::new(server) }
    }

    /// The server's side of a connection; the handshake happens at the first read.
    pub(super) fn accept(&self, socket: TcpStream) -> Secure {
        let session = ServerConnection::new(Arc::clone(&self.server)).expect("a session");
        StreamOwned::new(session, socket)
    }
}
