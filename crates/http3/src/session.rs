//! TLS of a QUIC connection: rustls behind the traits of quinn-proto.
//!
//! quinn-proto has such a session of its own, which keeps to itself what a measurement must tell: the cipher suite,
//! whether a session was resumed, the error itself, the server's transport parameters. This session also reads which
//! streams' bytes are in the packets that it encrypts ([`packet`](crate::packet)).

use std::any::Any;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::BytesMut;
use quinn_proto::crypto::{
    self, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};
use ring::aead;
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, KeyChange, Secrets, Suite, Version};
use rustls::{CipherSuite, HandshakeKind, ProtocolVersion, SupportedCipherSuite};

use crate::packet::{StreamPart, stream_parts};
use crate::varint;

/// TLS settings of the clients' connections to one server name.
pub struct TlsClient {
    config: Arc<rustls::ClientConfig>,
    initial: Suite,
    name: ServerName<'static>,
}

impl TlsClient {
    /// Settings for connections to the server with this name; `None` if `config` has no suite of TLS 1.3 for QUIC.
    pub fn new(config: Arc<rustls::ClientConfig>, name: ServerName<'static>) -> Option<Self> {
        let suites = &config.crypto_provider().cipher_suites;
        let aes = suites.iter().find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256)?;
        let SupportedCipherSuite::Tls13(suite) = aes else { return None };
        let initial = suite.quic_suite()?;
        Some(TlsClient { config, initial, name })
    }
}

impl crypto::ClientConfig for TlsClient {
    fn start_session(
        self: Arc<Self>,
        version: u32,
        _server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn crypto::Session>, ConnectError> {
        if version != QUIC_VERSION {
            return Err(UnsupportedVersion.into());
        }
        let mut encoded = Vec::new();
        params.write(&mut encoded);
        let tls = ClientConnection::new(Arc::clone(&self.config), Version::V1, self.name.clone(), encoded)
            .map_err(|error| ConnectError::InvalidServerName(error.to_string()))?;
        Ok(Box::new(Session {
            tls,
            initial: self.initial,
            next: None,
            has_reported_data: false,
            error: None,
            sent: Arc::default(),
        }))
    }
}

/// What is known of a session.
#[derive(Clone)]
pub(crate) struct SessionState {
    /// The protocol that ALPN chose.
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) version: Option<ProtocolVersion>,
    pub(crate) suite: Option<SupportedCipherSuite>,
    pub(crate) kind: Option<HandshakeKind>,
    /// The error with which the handshake failed here.
    pub(crate) error: Option<rustls::Error>,
    /// The server's initial limit of concurrent requests.
    pub(crate) streams_limit: Option<u64>,
    /// Whether the server forbids that the client moves to another address.
    pub(crate) forbids_migration: bool,
    pub(crate) sent: SentParts,
}

/// Parts of streams in the packets that were encrypted since the last look.
pub(crate) type SentParts = Arc<Mutex<Vec<StreamPart>>>;

struct Session {
    tls: ClientConnection,
    initial: Suite,
    next: Option<Secrets>,
    has_reported_data: bool,
    error: Option<rustls::Error>,
    sent: SentParts,
}

impl Session {
    fn tapped(&self, key: Box<dyn PacketKey>) -> Box<dyn PacketKey> {
        Box::new(TappedKey { key, sent: Arc::clone(&self.sent) })
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, dst_cid: &ConnectionId, side: Side) -> Keys {
        let side = if side == Side::Client { rustls::Side::Client } else { rustls::Side::Server };
        keys(self.initial.keys(dst_cid, side, Version::V1))
    }

    /// A [`SessionState`], at any time.
    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(SessionState {
            alpn: self.tls.alpn_protocol().map(<[u8]>::to_vec),
            version: self.tls.protocol_version(),
            suite: self.tls.negotiated_cipher_suite(),
            kind: self.tls.handshake_kind(),
            error: self.error.clone(),
            streams_limit: self.tls.quic_transport_parameters().map(streams_limit),
            forbids_migration: self.tls.quic_transport_parameters().is_some_and(forbids_migration),
            sent: Arc::clone(&self.sent),
        }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.tls.zero_rtt_keys()?;
        Some((Box::new(keys.header), self.tapped(Box::new(keys.packet))))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        Some(self.tls.is_early_data_accepted())
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        if let Err(error) = self.tls.read_hs(buf) {
            let code = self
                .tls
                .alert()
                .map_or(TransportErrorCode::PROTOCOL_VIOLATION, |alert| TransportErrorCode::crypto(alert.into()));
            let reason = error.to_string();
            self.error.get_or_insert(error);
            return Err(TransportError { code, frame: None, reason });
        }
        let is_known = self.tls.alpn_protocol().is_some() || !self.tls.is_handshaking();
        Ok(is_known && !std::mem::replace(&mut self.has_reported_data, true))
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let Some(encoded) = self.tls.quic_transport_parameters() else { return Ok(None) };
        Ok(Some(TransportParameters::read(Side::Client, &mut io::Cursor::new(encoded))?))
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        match self.tls.write_hs(buf)? {
            KeyChange::Handshake { keys: change } => Some(keys(change)),
            KeyChange::OneRtt { keys: change, next } => {
                self.next = Some(next);
                let mut change = keys(change);
                change.packet.local = self.tapped(change.packet.local);
                Some(change)
            }
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.next.as_mut()?.next_packet_keys();
        Some(KeyPair { local: self.tapped(Box::new(keys.local)), remote: Box::new(keys.remote) })
    }

    /// Whether a Retry packet has the tag that only a party that saw the client's packet can have made (RFC 9001,
    /// section 5.8).
    fn is_valid_retry(&self, orig_dst_cid: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(tag_from) = payload.len().checked_sub(aead::AES_128_GCM.tag_len()) else { return false };
        let (token, tag) = payload.split_at(tag_from);
        let authenticated = [&[orig_dst_cid.len() as u8][..], orig_dst_cid, header, token].concat();
        let Ok(key) = aead::UnboundKey::new(&aead::AES_128_GCM, &RETRY_KEY) else { return false };
        let nonce = aead::Nonce::assume_unique_for_key(RETRY_NONCE);
        let key = aead::LessSafeKey::new(key);
        key.open_in_place(nonce, aead::Aad::from(authenticated), &mut tag.to_vec()).is_ok()
    }

    /// Not supported: HTTP/3 needs no keys beyond TLS.
    fn export_keying_material(&self, _: &mut [u8], _: &[u8], _: &[u8]) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

/// The only version: RFC 9000.
pub(crate) const QUIC_VERSION: u32 = 1;

/// RFC 9001, section 5.8.
const RETRY_KEY: [u8; 16] =
    [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e];
const RETRY_NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

fn keys(keys: rustls::quic::Keys) -> Keys {
    Keys {
        header: KeyPair { local: Box::new(keys.local.header), remote: Box::new(keys.remote.header) },
        packet: KeyPair { local: Box::new(keys.local.packet), remote: Box::new(keys.remote.packet) },
    }
}

/// `initial_max_streams_bidi` of transport parameters (RFC 9000, section 18.2), 0 if it is absent.
fn streams_limit(mut parameters: &[u8]) -> u64 {
    while let Some((id, mut value)) = next_parameter(&mut parameters) {
        if id == INITIAL_MAX_STREAMS_BIDI {
            return varint::take(&mut value).unwrap_or(0);
        }
    }
    0
}

/// Whether `disable_active_migration` is among transport parameters (RFC 9000, section 18.2).
fn forbids_migration(mut parameters: &[u8]) -> bool {
    std::iter::from_fn(|| next_parameter(&mut parameters)).any(|(id, _)| id == DISABLE_ACTIVE_MIGRATION)
}

fn next_parameter<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let (id, length) = (varint::take(rest)?, varint::take(rest)?);
    let (value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some((id, value))
}

const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
const DISABLE_ACTIVE_MIGRATION: u64 = 0x0C;

/// A key that notes the parts of streams in the packets that it encrypts.
struct TappedKey {
    key: Box<dyn PacketKey>,
    sent: SentParts,
}

impl PacketKey for TappedKey {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        if let Some(frames) = buf.get(header_len..buf.len().saturating_sub(self.key.tag_len())) {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            stream_parts(frames, |part| {
                if part.stream & STREAM_KIND_MASK == CLIENT_BIDI {
                    sent.push(part);
                }
            });
        }
        self.key.encrypt(packet, buf, header_len);
    }

    fn decrypt(&self, packet: u64, header: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        self.key.decrypt(packet, header, payload)
    }

    fn tag_len(&self) -> usize {
        self.key.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.key.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.key.integrity_limit()
    }
}

/// The bits of a stream's identifier that tell who opened it and in which directions it goes (RFC 9000, section 2.1).
const STREAM_KIND_MASK: u64 = 3;
const CLIENT_BIDI: u64 = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_forbids_migration_is_recognized() {
        assert!(forbids_migration(&[0x01, 2, 0x40, 0x64, 0x0C, 0]));
        assert!(!forbids_migration(&[0x01, 2, 0x0C, 0]));
        assert!(!forbids_migration(&[]));
    }

    #[test]
    fn the_limit_of_streams_is_read_from_the_transport_parameters() {
        assert_eq!(streams_limit(&[0x01, 2, 0x40, 0x64, 0x08, 2, 0x40, 0x80, 0x03, 1, 5]), 128);
        assert_eq!(streams_limit(&[0x08, 1, 7]), 7);
        assert_eq!(streams_limit(&[]), 0);
        assert_eq!(streams_limit(&[0x08, 9, 1]), 0);
        assert_eq!(streams_limit(&[0x08, 0]), 0);
    }
}
