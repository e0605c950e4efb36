//! The decrypted packets of QUIC connections, for those who ask for them ([`crate::WatchSpec::quic_packets`]).

use schema::{Direction, QuicFrame, QuicPacket, QuicPacketKind};
use units::Timestamp;
use wire::tls::handshake::{self, ClientHello};

use super::session::{Frame, read_frames};

/// Packets that wait to be taken; none and free where they are not asked for.
#[derive(Debug, Default)]
pub(crate) struct PacketLog {
    packets: Option<Vec<QuicPacket>>,
    lost: u64,
}

/// What identifies a packet that is to be logged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged {
    pub(super) connection: u64,
    pub(super) at: u64,
    pub(super) direction: Direction,
    pub(super) kind: QuicPacketKind,
    pub(super) number: u64,
    /// Bytes of the packet.
    pub(super) length: usize,
}

impl PacketLog {
    pub(crate) fn new(is_used: bool) -> PacketLog {
        PacketLog { packets: is_used.then(Vec::new), lost: 0 }
    }

    /// Whether packets are asked for.
    pub(crate) fn is_used(&self) -> bool {
        self.packets.is_some()
    }

    /// Appends the packets since the last call.
    pub(crate) fn take(&mut self, into: &mut Vec<QuicPacket>) {
        if let Some(packets) = &mut self.packets {
            into.append(packets);
        }
    }

    /// Packets that were left out, because too many waited to be taken.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Adds a packet with the frames of `payload`.
    pub(super) fn add(&mut self, packet: Logged, payload: &[u8]) {
        let Some(packets) = &mut self.packets else { return };
        if packets.len() >= WAITING_MAX {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let (mut frames, mut is_ack_eliciting) = (Vec::new(), false);
        read_frames(payload, |frame| {
            is_ack_eliciting |= frame.is_ack_eliciting();
            frames.extend(logged(frame));
        });
        let Logged { connection, at, direction, kind, number, length } = packet;
        packets.push(QuicPacket {
            connection,
            at: Timestamp::from_nanos(at),
            direction,
            kind,
            number,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            is_ack_eliciting,
            frames,
        });
    }

    /// The packet added last completed the client's ClientHello.
    pub(super) fn note_parameters(&mut self, connection: u64, hello: &ClientHello<'_>) {
        let last = self.packets.as_mut().and_then(|packets| packets.last_mut());
        let Some(last) = last.filter(|last| last.connection == connection) else { return };
        let Some(parameters) = hello.transport_parameters else { return };
        let of = |number| handshake::transport_parameter(parameters, number);
        last.frames.push(QuicFrame::ClientParameters {
            connection_window: of(handshake::INITIAL_MAX_DATA).unwrap_or(0),
            stream_window: of(handshake::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL).unwrap_or(0),
            ack_delay_exponent: of(handshake::ACK_DELAY_EXPONENT).unwrap_or(ACK_DELAY_EXPONENT),
        });
    }
}

/// The part of a frame that is of use; `None` of other frames.
fn logged(frame: Frame<'_>) -> Option<QuicFrame> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Some(match frame {
        Frame::Stream { id, offset, bytes, ends } => QuicFrame::Stream { id, offset, length: length(bytes), ends },
        Frame::Crypto { offset, bytes } => QuicFrame::Crypto { offset, length: length(bytes) },
        Frame::Reset { id } => QuicFrame::Reset { id },
        Frame::Close { error } => QuicFrame::Close { error },
        Frame::Ack(ack) => {
            QuicFrame::Ack { ranges: ack.ranges().take(QuicFrame::ACK_RANGES_MAX).collect(), delay: ack.delay }
        }
        Frame::MaxData(bytes) => QuicFrame::MaxData { bytes },
        Frame::MaxStreamData { id, bytes } => QuicFrame::MaxStreamData { id, bytes },
        Frame::DataBlocked(limit) => QuicFrame::DataBlocked { limit },
        Frame::StreamDataBlocked { id, limit } => QuicFrame::StreamDataBlocked { id, limit },
        Frame::Ping => QuicFrame::Ping,
        Frame::NewId(_) | Frame::Other { .. } => return None,
    })
}

/// Packets that wait at most: a caller takes them after each packet or block.
const WAITING_MAX: usize = 1 << 20;
/// RFC 9000, section 18.2.
const ACK_DELAY_EXPONENT: u64 = 3;
