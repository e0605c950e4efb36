//! Initial packets: protected with keys that anyone can derive, they carry the ClientHello, the ServerHello and
//! acknowledgements.

use schema::Direction;
use wire::quic::{ConnectionId, varint};

use super::assembly::Assembly;
use super::protection::{self, Protection};

/// State until both ends have the keys of their data.
#[derive(Debug)]
pub(super) struct Initial {
    /// The connection ID from which the keys follow.
    pub(super) destination: ConnectionId,
    protections: [Protection; 2],
    streams: [Assembly; 2],
    /// Handshake messages so far; emptied when they were read.
    pub(super) messages: [Vec<u8>; 2],
    /// Packet numbers and times of packets whose acknowledgement gives a round trip.
    sent: [Vec<(u64, u64)>; 2],
}

/// What the frames of an Initial packet say.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Largest acknowledged packet number.
    pub(super) acknowledged: Option<u64>,
    /// Error code of a CONNECTION_CLOSE.
    pub(super) close_error: Option<u64>,
    /// Handshake messages have grown.
    pub(super) has_crypto: bool,
}

impl Initial {
    /// `None` in an unknown version.
    pub(super) fn new(version: u32, destination: ConnectionId) -> Option<Initial> {
        Some(Initial {
            destination,
            protections: protection::initial(version, &destination)?,
            streams: Default::default(),
            messages: Default::default(),
            sent: Default::default(),
        })
    }

    /// Memory beyond the state itself.
    pub(super) fn held(&self) -> usize {
        let stored = |direction: usize| self.streams[direction].held() + self.messages[direction].len();
        INITIAL_COST + stored(0) + stored(1)
    }

    /// Decrypts a packet into `scratch`; returns its number, `None` if it is not protected with these keys.
    pub(super) fn open(
        &mut self,
        direction: Direction,
        packet: &[u8],
        number_at: usize,
        scratch: &mut Vec<u8>,
    ) -> Option<u64> {
        let protection = &mut self.protections[direction.index()];
        let header = protection.unmask(packet, number_at)?;
        let number = protection.open(None, packet, number_at, header, scratch)?;
        protection.note(number);
        Some(number)
    }

    /// Records when a packet was seen.
    pub(super) fn note_sent(&mut self, direction: Direction, number: u64, at: u64) {
        let sent = &mut self.sent[direction.index()];
        if sent.len() < SENT_MAX && sent.iter().all(|&(known, _)| known != number) {
            sent.push((number, at));
        }
    }

    /// The time of a packet of `direction` that was acknowledged.
    pub(super) fn sent_at(&self, direction: Direction, number: u64) -> Option<u64> {
        self.sent[direction.index()].iter().find(|(known, _)| *known == number).map(|(_, at)| *at)
    }

    /// Reads the frames of a packet, up to one that an Initial packet may not have.
    pub(super) fn read(&mut self, direction: Direction, mut frames: &[u8]) -> Content {
        let mut content = Content::default();
        while let Some((&kind, rest)) = frames.split_first() {
            crate::work::spend(1);
            let after = match kind {
                PADDING | PING => Some(rest),
                ACK | ACK_ECN => read_ack(rest, kind == ACK_ECN).map(|(ack, rest)| {
                    content.acknowledged = content.acknowledged.max(Some(ack.largest));
                    rest
                }),
                CRYPTO => self.read_crypto(direction, rest).inspect(|_| content.has_crypto = true),
                CONNECTION_CLOSE => {
                    let mut rest = rest;
                    content.close_error = varint(&mut rest);
                    None
                }
                _ => None,
            };
            let Some(after) = after else { break };
            frames = after;
        }
        content
    }

    fn read_crypto<'a>(&mut self, direction: Direction, mut frame: &'a [u8]) -> Option<&'a [u8]> {
        let offset = varint(&mut frame)?;
        let length = usize::try_from(varint(&mut frame)?).ok()?;
        let (bytes, rest) = frame.split_at_checked(length)?;
        let (stream, message) = (&mut self.streams[direction.index()], &mut self.messages[direction.index()]);
        if offset > HELLO_MAX as u64 || message.len() > HELLO_MAX {
            return Some(rest);
        }
        if let Some(new) = stream.receive(offset, bytes, HELLO_MAX) {
            message.extend_from_slice(new);
            while let Some(piece) = stream.stored() {
                message.extend_from_slice(&piece);
            }
        }
        Some(rest)
    }

    /// The hello of this direction, if it is complete: its type and body.
    pub(super) fn hello(&self, direction: Direction) -> Option<(u8, &[u8])> {
        let message = &self.messages[direction.index()];
        let (kind, length) = wire::tls::handshake::header(message)?;
        Some((kind, message.get(4..4 + length)?))
    }
}

/// An ACK frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack<'a> {
    /// Highest packet number.
    pub(super) largest: u64,
    /// The delay as sent, without the sender's exponent.
    pub(super) delay: u64,
    /// Packets below the highest that its range has.
    first: u64,
    /// Pairs of gap and length.
    others: &'a [u8],
}

impl<'a> Ack<'a> {
    /// First and last number of each range, from the highest range on, up to one that is below 0.
    pub(super) fn ranges(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let mut others = self.others;
        let mut next = self.largest.checked_sub(self.first).map(|first| (first, self.largest));
        std::iter::from_fn(move || {
            let (first, last) = next.take()?;
            next = varint(&mut others).zip(varint(&mut others)).and_then(|(gap, length)| {
                let last = first.checked_sub(gap)?.checked_sub(2)?;
                Some((last.checked_sub(length)?, last))
            });
            Some((first, last))
        })
    }
}

/// Reads the body of an ACK frame; returns it and the rest.
pub(super) fn read_ack(mut frame: &[u8], has_ecn: bool) -> Option<(Ack<'_>, &[u8])> {
    let largest = varint(&mut frame)?;
    let (delay, ranges) = (varint(&mut frame)?, varint(&mut frame)?);
    let first = varint(&mut frame)?;
    let others = frame;
    for _ in 0..ranges {
        crate::work::spend(1);
        varint(&mut frame)?;
        varint(&mut frame)?;
    }
    let others = &others[..others.len() - frame.len()];
    for _ in 0..if has_ecn { 3 } else { 0 } {
        varint(&mut frame)?;
    }
    Some((Ack { largest, delay, first, others }, frame))
}

pub(super) const PADDING: u8 = 0x00;
pub(super) const PING: u8 = 0x01;
pub(super) const ACK: u8 = 0x02;
pub(super) const ACK_ECN: u8 = 0x03;
pub(super) const CRYPTO: u8 = 0x06;
pub(super) const CONNECTION_CLOSE: u8 = 0x1C;
/// A ClientHello has a few kilobytes, even with post-quantum keys.
pub(super) const HELLO_MAX: usize = 16 * 1024;
/// Packets of a direction whose acknowledgements are awaited.
const SENT_MAX: usize = 16;
/// Memory of keys and state.
const INITIAL_COST: usize = 4096;
