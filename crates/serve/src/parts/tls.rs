//! The TLS components without a network: handshakes and records; only the server's side is counted.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::refused;
use super::rounds::{LocalRound, Meter, Repetitions};
use crate::spec::ServeError;
use crate::tls::{Records, Secure, Tls};

/// TLS 1.3 handshakes between this server and a rustls client; `resumed`: with a session ticket.
pub(super) fn handshakes(tls: &Tls, resumed: bool, repetitions: Repetitions) -> Result<Vec<LocalRound>, ServeError> {
    let config = client();
    let mut meter = Meter::new();
    if resumed {
        // The first handshake is full and brings the tickets.
        Session::open(tls, &config, &mut meter)?;
    }
    let mut made = Vec::new();
    for _ in 0..repetitions.rounds {
        meter.reset();
        let (mut up, mut down) = (0, 0);
        while meter.count == 0 || meter.cpu() < repetitions.each {
            // A client without tickets makes full handshakes.
            let config = if resumed { Arc::clone(&config) } else { client() };
            let session = Session::open(tls, &config, &mut meter)?;
            let expected = if resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
            if session.client.handshake_kind() != Some(expected) {
                return Err(refused(&format!("a handshake was not {expected:?} as expected")));
            }
            meter.count += 1;
            up += session.up_bytes;
            down += session.down_bytes;
        }
        let (up_bytes, down_bytes) = (up / meter.count, down / meter.count);
        made.push(LocalRound { up_bytes, down_bytes, ..meter.round() });
    }
    Ok(made)
}

/// Decrypts a request and encrypts a response of `bytes` bytes, repeatedly in one session.
pub(super) fn records(tls: &Tls, bytes: usize, repetitions: Repetitions) -> Result<Vec<LocalRound>, ServeError> {
    let mut meter = Meter::new();
    let mut session = Session::open(tls, &client(), &mut meter)?;
    let (request, answer) = ([b'r'; REQUEST_BYTES], vec![b'a'; bytes]);
    let (mut plain, mut sealed, mut received) = (Vec::new(), Records::default(), vec![0; 64 << 10]);
    let mut made = Vec::new();
    for round in 0..=repetitions.rounds {
        meter.reset();
        while meter.count == 0 || meter.cpu() < repetitions.each {
            session.client.writer().write_all(&request).map_err(|error| refused(&error.to_string()))?;
            let client_output = session.client_output()?;
            plain.clear();
            sealed.clear();
            meter.begin();
            let opened = session.server.received(&client_output, &mut plain, &mut sealed);
            let answered = session.server.encrypt(&answer, &mut sealed);
            meter.end();
            opened.and(answered).map_err(|failure| refused(&failure.to_string()))?;
            meter.count += 1;
            if plain != request || session.pass_to_client(&sealed, &mut received)? != bytes {
                return Err(refused("a session returned other bytes than were sent"));
            }
        }
        // The first round is a warm-up.
        if round > 0 {
            made.push(meter.round());
        }
    }
    Ok(made)
}

/// Bytes of a decrypted request.
const REQUEST_BYTES: usize = 128;

/// A client, the server's side, and the bytes between them.
struct Session {
    client: ClientConnection,
    server: Secure,
    up_bytes: u64,
    down_bytes: u64,
}

impl Session {
    /// Completes a handshake; the server's work is counted.
    fn open(tls: &Tls, config: &Arc<ClientConfig>, meter: &mut Meter) -> Result<Self, ServeError> {
        let name = ServerName::try_from("server").expect("a name");
        let client = ClientConnection::new(Arc::clone(config), name).map_err(failed)?;
        meter.begin();
        let server = Secure::new(tls);
        meter.end();
        let server = server.map_err(|failure| refused(&failure.to_string()))?;
        let mut session = Session { client, server, up_bytes: 0, down_bytes: 0 };
        let (mut plain, mut out, mut received) = (Vec::new(), Records::default(), [0; 64]);
        loop {
            let bytes = session.client_output()?;
            if bytes.is_empty() {
                break;
            }
            session.up_bytes += bytes.len() as u64;
            meter.begin();
            let outcome = session.server.received(&bytes, &mut plain, &mut out);
            meter.end();
            outcome.map_err(|failure| refused(&failure.to_string()))?;
            session.down_bytes += out.len() as u64;
            session.pass_to_client(&out, &mut received)?;
            out.clear();
        }
        if session.server.established() { Ok(session) } else { Err(refused("a handshake did not complete")) }
    }

    /// The client's pending output.
    fn client_output(&mut self) -> Result<Vec<u8>, ServeError> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).map_err(|error| refused(&error.to_string()))?;
        }
        Ok(bytes)
    }

    /// Passes bytes to the client, which decrypts them into `received`.
    fn pass_to_client(&mut self, mut bytes: &[u8], received: &mut [u8]) -> Result<usize, ServeError> {
        let mut length = 0;
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).map_err(|error| refused(&error.to_string()))?;
            self.client.process_new_packets().map_err(failed)?;
            while let Ok(got @ 1..) = self.client.reader().read(received) {
                length += got;
            }
        }
        Ok(length)
    }
}

fn failed(error: Error) -> ServeError {
    refused(&format!("TLS: {error}"))
}

/// A client that accepts any certificate and stores sessions.
fn client() -> Arc<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has suites of it")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The client's work is not counted, so verification is unnecessary.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
