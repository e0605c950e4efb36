//! TLS sessions in memory, with rustls as the client, and certificate files.

mod files;
mod sessions;

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject as _;

use super::Tls;
use super::records::Records;
use super::secure::{Secure, TlsFailure};

/// A directory with a self-signed `cert.pem` and `key.pem` for the name `server`.
struct Pair {
    directory: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let pair = Pair { directory: tempfile::tempdir().unwrap() };
        pair.renew();
        pair
    }

    /// Writes another certificate with another key into the same files.
    fn renew(&self) {
        let made = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
        std::fs::write(self.file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(self.file("key.pem"), made.signing_key.serialize_pem()).unwrap();
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn load(&self) -> Tls {
        Tls::load(&self.file("cert.pem"), &self.file("key.pem")).unwrap()
    }

    /// The configuration of a client that trusts this certificate.
    fn client(&self, versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(rustls_pki_types::CertificateDer::from_pem_file(self.file("cert.pem")).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|one| one.to_vec()).collect();
        Arc::new(config)
    }
}

/// A client and the server's session, and the plaintext that each received.
struct TlsPair {
    client: ClientConnection,
    server: Secure,
    server_received: Vec<u8>,
    client_received: Vec<u8>,
    /// Bytes for the client that it has not read.
    under_way: Records,
}

impl TlsPair {
    fn new(tls: &Tls, config: Arc<ClientConfig>) -> Self {
        TlsPair {
            client: ClientConnection::new(config, ServerName::try_from("server").unwrap()).unwrap(),
            server: Secure::new(tls).unwrap(),
            server_received: Vec::new(),
            client_received: Vec::new(),
            under_way: Records::default(),
        }
    }

    /// The client's pending output.
    fn client_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// Passes `bytes` to the server.
    fn deliver_to_server(&mut self, bytes: &[u8]) -> Result<(), TlsFailure> {
        self.server.received(bytes, &mut self.server_received, &mut self.under_way)
    }

    /// Passes pending bytes to the client.
    fn deliver_to_client(&mut self) -> Result<(), rustls::Error> {
        let bytes = std::mem::take(&mut self.under_way);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            self.client.process_new_packets()?;
            let mut plain = [0; 4096];
            while let Ok(got @ 1..) = self.client.reader().read(&mut plain) {
                self.client_received.extend_from_slice(&plain[..got]);
            }
        }
        Ok(())
    }

    /// Exchanges data until neither side has output, with at most `step` bytes at a time to the server.
    fn settle(&mut self, step: usize) {
        loop {
            let bytes = self.client_bytes();
            if bytes.is_empty() && self.under_way.is_empty() {
                return;
            }
            for part in bytes.chunks(step) {
                self.deliver_to_server(part).unwrap();
            }
            self.deliver_to_client().unwrap();
        }
    }

    fn client_sends(&mut self, plaintext: &[u8]) {
        self.client.writer().write_all(plaintext).unwrap();
    }

    fn server_sends(&mut self, plaintext: &[u8]) {
        self.server.encrypt(plaintext, &mut self.under_way).unwrap();
    }
}
