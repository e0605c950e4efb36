//! TLS of the server: the certificate shared by all connections, and the session of one connection, without I/O.
//!
//! ```text
//!   socket ──ciphertext──▶ Secure::received ──plaintext──▶ Connection
//!   socket ◀──ciphertext── Secure::encrypt  ◀──plaintext── Connection      (plus handshake records and alerts)
//! ```
//!
//! rustls works in memory here (its unbuffered connection, with ring): an engine passes what it read and sends the
//! output. TLS 1.3 and 1.2, `h2` or `http/1.1` by ALPN (a client without a common protocol gets an alert),
//! one certificate for every server name, resumption by stateless tickets whose keys stay in memory and change every
//! six hours, no early data over TCP (it could be replayed), no renegotiation (rustls has none), no client certificates.
//!
//! [`Tls`] is a handle: [`Tls::reload`] reads the files again, and later connections get the new certificate. Read
//! `tls/secure.rs` for one connection.

mod files;
mod records;
mod secure;
mod session_store;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::ServerName;
use webpki::EndEntityCert;

pub use self::files::TlsError;
pub(crate) use self::records::Records;
pub(crate) use self::secure::Secure;
use self::session_store::SessionStore;

/// A certificate, its key, and the configuration shared by all its connections. Clones are handles of the same object.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    certificate: PathBuf,
    key: PathBuf,
    config: Arc<ServerConfig>,
    /// The same, with HTTP/2 before HTTP/1.1.
    with_http2: Arc<ServerConfig>,
    /// The same for QUIC, with HTTP/3 alone.
    quic: Arc<ServerConfig>,
    served: Arc<CurrentCertificate>,
}

/// The current certificate; read once per handshake.
#[derive(Debug)]
struct CurrentCertificate(RwLock<Arc<CertifiedKey>>);

impl Tls {
    /// Reads a certificate (PEM: the server's own first, then its chain) and its private key (PEM: PKCS#8, SEC1 or RSA,
    /// unencrypted). Both may be in one file.
    ///
    /// # Errors
    /// A file is unreadable or invalid, or the two do not match. An expired certificate is not an error: see
    /// [`Tls::doubt`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let served = Arc::new(CurrentCertificate(RwLock::new(files::read(certificate, key, &provider)?)));
        let tickets = ring::Ticketer::new().map_err(|error| TlsError::Random { why: error.to_string() })?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("ring has suites of both versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&served) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut quic = config.clone();
        quic.alpn_protocols = vec![b"h3".to_vec()];
        // Early data: QUIC has no other size (RFC 9001, section 4.6.1). Sessions are stored and valid once, since early
        // data could be replayed at will with stateless tickets (RFC 8446, section 8.1).
        quic.max_early_data_size = u32::MAX;
        quic.session_storage = Arc::new(SessionStore::new(SESSIONS_MAX));
        config.ticketer = tickets;
        // A session store would need a lock and memory that clients can fill; tickets need neither.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let mut with_http2 = config.clone();
        with_http2.alpn_protocols.insert(0, b"h2".to_vec());
        let shared = Shared {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            config: Arc::new(config),
            with_http2: Arc::new(with_http2),
            quic: Arc::new(quic),
            served,
        };
        Ok(Tls(Arc::new(shared)))
    }

    /// Reads the files again, for connections accepted afterwards; old sessions can still be resumed.
    ///
    /// # Errors
    /// Those of [`Tls::load`]; the old certificate then stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let provider = self.0.config.crypto_provider();
        let fresh = files::read(&self.0.certificate, &self.0.key, provider)?;
        *self.0.served.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// The configuration for another TLS server of this program: HTTP/1.1 only. It follows [`Tls::reload`].
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config)
    }

    /// The configuration of HTTP/3.
    pub(crate) fn quic_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.quic)
    }

    /// Whether the certificate is valid for a host, without its port.
    pub(crate) fn is_for(&self, host: &[u8]) -> bool {
        let served = self.0.served.now();
        let host = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
        let name = std::str::from_utf8(host).ok().and_then(|host| ServerName::try_from(host).ok());
        let certificate = served.cert.first().and_then(|first| EndEntityCert::try_from(first).ok());
        match (name, certificate) {
            (Some(name), Some(certificate)) => certificate.verify_is_valid_for_subject_name(&name).is_ok(),
            _ => false,
        }
    }

    /// Why clients may refuse the certificate at `now_s`, in seconds since 1970: expired, or not valid yet. Trust and
    /// names are not checked.
    pub fn doubt(&self, now_s: u64) -> Option<String> {
        let served = self.0.served.now();
        files::doubt(served.cert.first()?, now_s).map(|why| format!("{}: {why}", self.0.certificate.display()))
    }
}

/// Sessions of HTTP/3 that can be resumed: the newest ones, each once, some kilobytes each at most.
const SESSIONS_MAX: usize = 4096;

impl CurrentCertificate {
    fn now(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("certificate", &self.0.certificate).field("key", &self.0.key).finish()
    }
}

/// Handles of the same object are equal.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

#[cfg(test)]
mod tests;
