//! The part of a QUIC connection that its secrets make readable: the chosen protocol, connection IDs, the close, and
//! HTTP/3.

use schema::{Direction, QuicPacketKind};
use wire::quic::ConnectionId;
use wire::tls::handshake::{self, kind};

use super::assembly::Assembly;
use super::packets::Logged;
use super::session::{Frame, Session, read_frames};
use crate::http3::Http3;
use crate::keylog::Secrets;
use crate::out::Out;

/// State of a connection that is decrypted.
#[derive(Debug)]
pub(super) struct Secure {
    session: Session,
    /// The server's handshake messages, until the chosen protocol is known.
    hello: Option<(Assembly, Vec<u8>)>,
    http3: Option<Http3>,
    held: usize,
}

/// What the packets of a datagram say about the connection.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) close_error: Option<u64>,
    /// Connection IDs of the sender.
    pub(super) ids: Vec<ConnectionId>,
}

/// A packet with what is needed to decrypt it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) number_at: usize,
    pub(super) kind: PacketKind,
}

/// Packets that the secrets decrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    Handshake,
    Early,
    Data,
}

impl PacketKind {
    fn logged(self) -> QuicPacketKind {
        match self {
            PacketKind::Handshake => QuicPacketKind::Handshake,
            PacketKind::Early => QuicPacketKind::EarlyData,
            PacketKind::Data => QuicPacketKind::Data,
        }
    }
}

impl Secure {
    /// `None` if the secrets do not fit the cipher suite, or there is no memory.
    pub(super) fn new(secrets: &Secrets, version: u32, suite: u16, out: &mut Out<'_>) -> Option<Secure> {
        let session = Session::new(secrets, version, suite)?;
        let hello = Some((Assembly::default(), Vec::new()));
        out.hold(SESSION_COST).then_some(Secure { session, hello, http3: None, held: SESSION_COST })
    }

    /// Number of HTTP/3 requests.
    pub(super) fn requests(&self) -> u32 {
        self.http3.as_ref().map_or(0, Http3::requests)
    }

    /// Whether the chosen protocol is known, so that data can be read.
    pub(super) fn is_ready(&self) -> bool {
        self.hello.is_none()
    }

    /// Decrypts and reads a packet; `None` if it cannot be decrypted.
    pub(super) fn receive(
        &mut self,
        direction: Direction,
        packet: Packet<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) -> Option<News> {
        let Packet { bytes, number_at, kind } = packet;
        let (number, payload) = match kind {
            PacketKind::Handshake => self.session.open_handshake(direction, bytes, number_at, scratch)?,
            PacketKind::Early => self.session.open_early(bytes, number_at, scratch)?,
            PacketKind::Data => self.session.open_short(direction, bytes, number_at, scratch)?,
        };
        let (connection, at, length) = (out.connection, out.at, bytes.len());
        out.quic_packets.add(Logged { connection, at, direction, kind: kind.logged(), number, length }, payload);
        let mut news = News::default();
        let (hello, http3) = (&mut self.hello, &mut self.http3);
        read_frames(payload, |frame| match frame {
            Frame::Stream { id, offset, bytes, ends } => {
                if let Some(http3) = http3 {
                    http3.receive(direction, id, offset, bytes, ends, out);
                }
            }
            Frame::Reset { id } => {
                if let Some(http3) = http3 {
                    http3.reset(direction, id, out);
                }
            }
            Frame::Crypto { offset, bytes } if kind == PacketKind::Handshake && direction == Direction::Down => {
                read_hello(hello, http3, offset, bytes);
            }
            Frame::NewId(id) => news.ids.push(id),
            Frame::Close { error } => news.close_error = Some(error),
            _ => {}
        });
        if kind == PacketKind::Data && direction == Direction::Down {
            // The server has sent its hello, which was not captured: the protocol stays unknown.
            self.hello = None;
        }
        Some(news)
    }

    /// The connection ended: records open requests, releases all memory.
    pub(super) fn finish(&mut self, out: &mut Out<'_>) {
        if let Some(http3) = &mut self.http3 {
            http3.finish(out);
        }
        out.release(std::mem::take(&mut self.held));
    }
}

/// Reads the protocol that the server has chosen, in the first message of its handshake packets.
fn read_hello(hello: &mut Option<(Assembly, Vec<u8>)>, http3: &mut Option<Http3>, offset: u64, bytes: &[u8]) {
    let Some((assembly, message)) = hello else { return };
    if offset <= MESSAGE_MAX as u64
        && let Some(new) = assembly.receive(offset, bytes, MESSAGE_MAX)
    {
        message.extend_from_slice(new);
        while let Some(piece) = assembly.stored() {
            message.extend_from_slice(&piece);
        }
    }
    let Some((kind, length)) = handshake::header(message) else { return };
    let is_long = length > MESSAGE_MAX;
    if let Some(body) = message.get(4..4 + length) {
        if kind == kind::ENCRYPTED_EXTENSIONS && handshake::chosen_protocol(body) == Some(b"h3") {
            *http3 = Some(Http3::new());
        }
        *hello = None;
    } else if is_long {
        *hello = None;
    }
}

/// Memory of keys and of the server's first message.
const SESSION_COST: usize = 16 * 1024;
/// EncryptedExtensions have some hundred bytes.
const MESSAGE_MAX: usize = 4096;
