//! The data of a QUIC connection whose secrets are in the key log: decrypts 1-RTT and 0-RTT packets (RFC 9001, section
//! 5), follows key updates (section 6), and passes frames on.

use schema::Direction;
use wire::quic::{ConnectionId, varint};

use super::initial::{self, Ack, read_ack};
use super::protection::{self, Protection, Unmasked, payload};
use crate::crypto::{Keys, Secret, Suite};
use crate::keylog::Secrets;

/// Keys of both directions.
#[derive(Debug)]
pub(super) struct Session {
    version: u32,
    sides: [Side; 2],
    handshake: [Option<Protection>; 2],
    /// Early data of the client.
    early: Option<Protection>,
}

/// Keys of one direction.
#[derive(Debug)]
struct Side {
    /// With the present keys.
    protection: Protection,
    secret: Secret,
    /// The key phase bit of the present keys.
    phase: bool,
    /// The keys before the last update, for packets that arrive late.
    previous: Option<Keys>,
    /// The keys after the next update, once a packet has needed them.
    next: Option<(Keys, Secret)>,
}

/// What a frame says, as far as it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Stream {
        id: u64,
        offset: u64,
        bytes: &'a [u8],
        ends: bool,
    },
    Crypto {
        offset: u64,
        bytes: &'a [u8],
    },
    /// The sender gives up its part of a stream.
    Reset {
        id: u64,
    },
    /// Another connection ID of the sender.
    NewId(ConnectionId),
    Close {
        error: u64,
    },
    Ack(Ack<'a>),
    MaxData(u64),
    MaxStreamData {
        id: u64,
        bytes: u64,
    },
    DataBlocked(u64),
    StreamDataBlocked {
        id: u64,
        limit: u64,
    },
    Ping,
    /// Any other frame than PADDING.
    Other,
}

impl Frame<'_> {
    /// Whether the receiver acknowledges a packet with it (RFC 9002, section 2).
    pub(super) fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Frame::Ack(_) | Frame::Close { .. })
    }
}

impl Session {
    /// `None` if the secrets do not fit the cipher suite.
    pub(super) fn new(secrets: &Secrets, version: u32, suite: u16) -> Option<Session> {
        let suite = Suite::of_tls13(suite)?;
        Some(Session {
            version,
            sides: [side(secrets, 0, version, suite)?, side(secrets, 1, version, suite)?],
            handshake: [0, 1].map(|own| {
                let secret = Secret::new(suite, &secrets.handshake[own])?;
                Protection::new(version, &secret)
            }),
            early: Secret::new(suite, &secrets.early).and_then(|secret| Protection::new(version, &secret)),
        })
    }

    /// Decrypts a packet with a short header into `scratch`; returns its number and its payload.
    pub(super) fn open_short<'a>(
        &mut self,
        direction: Direction,
        packet: &[u8],
        number_at: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(u64, &'a [u8])> {
        let version = self.version;
        let side = &mut self.sides[direction.index()];
        let header = side.protection.unmask(packet, number_at)?;
        let number = side.open(version, packet, number_at, header, scratch)?;
        side.protection.note(number);
        Some((number, payload(scratch, number_at)))
    }

    /// Decrypts a Handshake packet.
    pub(super) fn open_handshake<'a>(
        &mut self,
        direction: Direction,
        packet: &[u8],
        number_at: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(u64, &'a [u8])> {
        let protection = self.handshake[direction.index()].as_mut()?;
        let header = protection.unmask(packet, number_at)?;
        let number = protection.open(None, packet, number_at, header, scratch)?;
        protection.note(number);
        Some((number, payload(scratch, number_at)))
    }

    /// Decrypts a 0-RTT packet.
    pub(super) fn open_early<'a>(
        &mut self,
        packet: &[u8],
        number_at: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(u64, &'a [u8])> {
        let early = self.early.as_mut()?;
        let header = early.unmask(packet, number_at)?;
        let number = early.open(None, packet, number_at, header, scratch)?;
        early.note(number);
        // 0-RTT and 1-RTT packets share their numbers.
        self.sides[0].protection.note(number);
        Some((number, payload(scratch, number_at)))
    }
}

fn side(secrets: &Secrets, own: usize, version: u32, suite: Suite) -> Option<Side> {
    let secret = Secret::new(suite, &secrets.traffic[own])?;
    let protection = Protection::new(version, &secret)?;
    Some(Side { protection, secret, phase: false, previous: None, next: None })
}

impl Side {
    /// Decrypts a packet with the keys of its phase; returns its number.
    fn open(
        &mut self,
        version: u32,
        packet: &[u8],
        number_at: usize,
        header: Unmasked,
        scratch: &mut Vec<u8>,
    ) -> Option<u64> {
        let phase = header.first & KEY_PHASE != 0;
        if phase == self.phase {
            return self.protection.open(None, packet, number_at, header, scratch);
        }
        if let Some(previous) = &self.previous
            && let Some(number) = self.protection.open(Some(previous), packet, number_at, header, scratch)
        {
            return Some(number);
        }
        if self.next.is_none() {
            let secret = self.secret.next(protection::labels(version).update);
            self.next = Some((Protection::updated_keys(version, &secret)?, secret));
        }
        let (keys, _) = self.next.as_ref()?;
        let number = self.protection.open(Some(keys), packet, number_at, header, scratch)?;
        let (keys, secret) = self.next.take()?;
        self.previous = Some(std::mem::replace(&mut self.protection.keys, keys));
        (self.secret, self.phase) = (secret, phase);
        Some(number)
    }
}

/// Calls `each` with the frames of a packet that are used, up to one that is unknown.
pub(super) fn read_frames<'a>(mut frames: &'a [u8], mut each: impl FnMut(Frame<'a>)) {
    while !frames.is_empty() {
        crate::work::spend(1);
        let Some(rest) = read_frame(frames, &mut each) else { return };
        frames = rest;
    }
}

/// Reads the frame at the start of `bytes`; returns what follows, `None` if it is malformed or unknown.
fn read_frame<'a>(mut bytes: &'a [u8], each: &mut impl FnMut(Frame<'a>)) -> Option<&'a [u8]> {
    let kind = varint(&mut bytes)?;
    let numbers = |bytes: &mut &'a [u8], count: usize| (0..count).try_for_each(|_| varint(bytes).map(|_| ()));
    match kind {
        PADDING => return Some(bytes),
        PING => each(Frame::Ping),
        HANDSHAKE_DONE | IMMEDIATE_ACK => each(Frame::Other),
        ACK | ACK_ECN => {
            let (ack, rest) = read_ack(bytes, kind == ACK_ECN)?;
            each(Frame::Ack(ack));
            return Some(rest);
        }
        RESET_STREAM => {
            let id = varint(&mut bytes)?;
            numbers(&mut bytes, 2)?;
            each(Frame::Reset { id });
        }
        CRYPTO => {
            let offset = varint(&mut bytes)?;
            let length = usize::try_from(varint(&mut bytes)?).ok()?;
            let (content, rest) = bytes.split_at_checked(length)?;
            each(Frame::Crypto { offset, bytes: content });
            return Some(rest);
        }
        NEW_TOKEN => {
            skip_counted(&mut bytes)?;
            each(Frame::Other);
        }
        STREAM..=STREAM_LAST => {
            let id = varint(&mut bytes)?;
            let offset = if kind & OFFSET != 0 { varint(&mut bytes)? } else { 0 };
            let length = if kind & LENGTH != 0 { usize::try_from(varint(&mut bytes)?).ok()? } else { bytes.len() };
            let (content, rest) = bytes.split_at_checked(length)?;
            each(Frame::Stream { id, offset, bytes: content, ends: kind & FIN != 0 });
            return Some(rest);
        }
        MAX_DATA => each(Frame::MaxData(varint(&mut bytes)?)),
        DATA_BLOCKED => each(Frame::DataBlocked(varint(&mut bytes)?)),
        MAX_STREAM_DATA => each(Frame::MaxStreamData { id: varint(&mut bytes)?, bytes: varint(&mut bytes)? }),
        STREAM_DATA_BLOCKED => each(Frame::StreamDataBlocked { id: varint(&mut bytes)?, limit: varint(&mut bytes)? }),
        MAX_STREAMS_BIDI | MAX_STREAMS_UNI | STREAMS_BLOCKED_BIDI | STREAMS_BLOCKED_UNI | RETIRE_CONNECTION_ID => {
            numbers(&mut bytes, 1)?;
            each(Frame::Other);
        }
        STOP_SENDING => {
            numbers(&mut bytes, 2)?;
            each(Frame::Other);
        }
        ACK_FREQUENCY | RESET_STREAM_AT => {
            numbers(&mut bytes, 4)?;
            each(Frame::Other);
        }
        NEW_CONNECTION_ID => {
            numbers(&mut bytes, 2)?;
            let (&length, rest) = bytes.split_first()?;
            let (id, rest) = rest.split_at_checked(length.into())?;
            each(Frame::NewId(ConnectionId::new(id)?));
            bytes = rest.get(RESET_TOKEN..)?;
        }
        PATH_CHALLENGE | PATH_RESPONSE => {
            bytes = bytes.get(8..)?;
            each(Frame::Other);
        }
        CONNECTION_CLOSE | APPLICATION_CLOSE => {
            each(Frame::Close { error: varint(&mut bytes)? });
            return None;
        }
        DATAGRAM => {
            each(Frame::Other);
            return Some(&[]);
        }
        DATAGRAM_COUNTED => {
            skip_counted(&mut bytes)?;
            each(Frame::Other);
        }
        _ => {
            // Of an unknown frame only the type can be read: all but ACK, PADDING and CONNECTION_CLOSE elicit an ACK.
            each(Frame::Other);
            return None;
        }
    }
    Some(bytes)
}

/// Skips a length and as many bytes.
fn skip_counted(bytes: &mut &[u8]) -> Option<()> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    *bytes = bytes.get(length..)?;
    Some(())
}

const KEY_PHASE: u8 = 0x04;
/// Length of a stateless reset token.
const RESET_TOKEN: usize = 16;

const PADDING: u64 = initial::PADDING as u64;
const PING: u64 = initial::PING as u64;
const ACK: u64 = initial::ACK as u64;
const ACK_ECN: u64 = initial::ACK_ECN as u64;
const RESET_STREAM: u64 = 0x04;
const STOP_SENDING: u64 = 0x05;
const CRYPTO: u64 = initial::CRYPTO as u64;
const NEW_TOKEN: u64 = 0x07;
const STREAM: u64 = 0x08;
const STREAM_LAST: u64 = 0x0F;
const FIN: u64 = 0x01;
const LENGTH: u64 = 0x02;
const OFFSET: u64 = 0x04;
const MAX_DATA: u64 = 0x10;
const MAX_STREAM_DATA: u64 = 0x11;
const MAX_STREAMS_BIDI: u64 = 0x12;
const MAX_STREAMS_UNI: u64 = 0x13;
const DATA_BLOCKED: u64 = 0x14;
const STREAM_DATA_BLOCKED: u64 = 0x15;
const STREAMS_BLOCKED_BIDI: u64 = 0x16;
const STREAMS_BLOCKED_UNI: u64 = 0x17;
const NEW_CONNECTION_ID: u64 = 0x18;
const RETIRE_CONNECTION_ID: u64 = 0x19;
const PATH_CHALLENGE: u64 = 0x1A;
const PATH_RESPONSE: u64 = 0x1B;
const CONNECTION_CLOSE: u64 = initial::CONNECTION_CLOSE as u64;
const APPLICATION_CLOSE: u64 = 0x1D;
const HANDSHAKE_DONE: u64 = 0x1E;
/// Of draft-ietf-quic-ack-frequency: an endpoint that suspects a loss asks for an acknowledgement in the packet with the
/// data. What follows an unknown frame cannot be read.
const IMMEDIATE_ACK: u64 = 0x1F;
const ACK_FREQUENCY: u64 = 0xAF;
/// Of draft-ietf-quic-reliable-stream-reset: what is reliable still arrives.
const RESET_STREAM_AT: u64 = 0x24;
/// RFC 9221.
const DATAGRAM: u64 = 0x30;
const DATAGRAM_COUNTED: u64 = 0x31;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_are_read_behind_all_others() {
        let frames = [
            &[PADDING as u8, PING as u8][..],
            &[2, 9, 0, 1, 0, 0, 1],
            &[5, 0, 1],
            &[0x10, 0x40, 9],
            &[0x18, 1, 0, 4, 1, 2, 3, 4],
            &[7; 16],
            &[0x1A, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1F, 0x40, 0xAF, 0, 1, 2, 3, 0x24, 0, 1, 2, 3],
            &[0x0F, 4, 0x41, 0, 2, b'h', b'i'],
            &[4, 8, 0, 0],
            &[0x08, 0, b'x', b'y'],
        ]
        .concat();
        let mut seen = Vec::new();
        read_frames(&frames, |frame| seen.push(frame));
        let is_followed = |frame: &Frame<'_>| {
            matches!(frame, Frame::NewId(_) | Frame::Stream { .. } | Frame::Reset { .. } | Frame::Close { .. })
        };
        let acked = seen.iter().find_map(|frame| match frame {
            Frame::Ack(ack) => Some((ack.delay, ack.ranges().collect::<Vec<_>>())),
            _ => None,
        });
        assert_eq!(acked, Some((0, vec![(9, 9), (6, 7)])));
        assert_eq!(seen.iter().filter(|frame| **frame == Frame::MaxData(9)).count(), 1);
        assert!(seen.iter().all(|frame| matches!(frame, Frame::Ack(_)) != frame.is_ack_eliciting()));
        seen.retain(is_followed);
        let expected = [
            Frame::NewId(ConnectionId::new(&[1, 2, 3, 4]).unwrap()),
            Frame::Stream { id: 4, offset: 256, bytes: b"hi", ends: true },
            Frame::Reset { id: 8 },
            Frame::Stream { id: 0, offset: 0, bytes: b"xy", ends: false },
        ];
        assert_eq!(seen, expected);
        let mut closed = Vec::new();
        read_frames(&[0x1D, 0x41, 0x0C, 0, 8, 0, 1], |frame| closed.push(frame));
        assert_eq!(closed, [Frame::Close { error: 0x10C }]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read_frames(&bytes, |frame| if let Frame::Stream { bytes: content, .. } = frame {
                assert!(content.len() <= bytes.len());
            });
        }
    }
}
