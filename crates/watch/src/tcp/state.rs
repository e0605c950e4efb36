//! Connection states, by Zeek's rules: `base/protocols/conn/main.zeek` for the names,
//! `packet_analysis/protocol/tcp/TCPSessionAdapter.cc` for the effect of a packet on an end (Zeek 8, August 2026).
//!
//! One difference remains: Zeek takes the first sender as the originator and may swap the roles later; here a SYN-ACK
//! comes from the responder from the start.

use schema::{ConnectionState, Direction};
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// State of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// No packet seen.
    #[default]
    Inactive,
    /// Seen, but not from the start.
    Partial,
    SynSent,
    /// The client's end sent a SYN-ACK as its first packet.
    SynAckSent,
    Established,
    /// Sent FIN.
    Closed,
    /// Sent RST.
    Reset,
}

/// Zeek's history of a client that gives up before a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Attempt {
    /// No packet was sent.
    #[default]
    None,
    /// The first packet was the client's SYN; it has sent no ACK, FIN or unusual flags since.
    Calling,
    /// The client then sent RST.
    GivenUp,
    /// Any other history.
    Other,
}

/// Both ends, indexed by [`Direction::index`] of what they send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Endpoints {
    ends: [Endpoint; 2],
    /// The previous state of each.
    before: [Endpoint; 2],
    /// Whether each has sent FIN or RST.
    has_closed: [bool; 2],
    attempt: Attempt,
}

impl Endpoints {
    /// Processes a packet with these control bits sent in `direction`; `has_payload` if it carries data.
    #[inline]
    pub(crate) fn packet(&mut self, direction: Direction, flags: u8, has_payload: bool) {
        if self.attempt != Attempt::Other {
            self.note_attempt(direction, flags, has_payload);
        }
        // The packets between handshake and tear-down, which are most, change nothing.
        let own = direction.index();
        if flags & (SYN | FIN | RST) != 0 || self.ends[own] == Endpoint::Inactive {
            self.change(direction, flags, has_payload);
        }
    }

    /// Both sides sent FIN, or one sent RST: the connection is closed.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.ends == [Endpoint::Closed, Endpoint::Closed] || self.ends.contains(&Endpoint::Reset)
    }

    /// Whether each side has sent FIN or RST. Zeek's duration ends with that packet.
    #[inline]
    pub(crate) fn both_have_closed(&self) -> bool {
        self.has_closed == [true, true]
    }

    /// Whether `direction`'s end has sent its SYN and has had no response.
    pub(crate) fn awaits_syn_response(&self, direction: Direction) -> bool {
        self.ends[direction.index()] == Endpoint::SynSent
    }

    /// Zeek's name of the state; `has_payload` if either side sent data.
    pub(crate) fn name(&self, has_payload: bool) -> ConnectionState {
        use Endpoint::{Closed, Established, Inactive, Partial, Reset, SynAckSent, SynSent};
        let silent = |end| matches!(end, Inactive | Partial);
        match self.ends {
            [SynSent | SynAckSent, Reset] => ConnectionState::Rej,
            [Reset, Reset] if !has_payload => ConnectionState::Rej,
            [up, Reset] if silent(up) => ConnectionState::Rstrh,
            [_, Reset] => ConnectionState::Rstr,
            [Reset, down] if silent(down) && self.attempt == Attempt::GivenUp => ConnectionState::Rstos0,
            [Reset, down] if silent(down) => ConnectionState::Oth,
            [Reset, _] => ConnectionState::Rsto,
            [Closed, Closed] => ConnectionState::SF,
            [Closed, down] if silent(down) => ConnectionState::Sh,
            [Closed, _] => ConnectionState::S2,
            [up, Closed] if silent(up) => ConnectionState::Shr,
            [_, Closed] => ConnectionState::S3,
            [SynSent, Inactive] => ConnectionState::S0,
            [Established, Established] => ConnectionState::S1,
            _ => ConnectionState::Oth,
        }
    }

    #[cold]
    fn change(&mut self, direction: Direction, flags: u8, has_payload: bool) {
        let has = |flag: u8| flags & flag != 0;
        let (own, peer) = (direction.index(), 1 - direction.index());
        let is_client = direction == Direction::Up;
        match self.ends[own] {
            Endpoint::Inactive => {
                if has(SYN) && is_client {
                    self.set(own, if has(ACK) { Endpoint::SynAckSent } else { Endpoint::SynSent });
                } else if has(SYN) {
                    if self.ends[peer] == Endpoint::SynSent {
                        self.set(peer, Endpoint::Established);
                    }
                    self.set(own, Endpoint::Established);
                }
                if has(FIN) {
                    self.set(own, Endpoint::Closed);
                }
                if has(RST) {
                    self.set(own, Endpoint::Reset);
                }
                if !has(SYN | FIN | RST) {
                    self.begin_without_syn(direction, flags, has_payload);
                }
            }
            Endpoint::SynSent | Endpoint::SynAckSent => {
                if has(FIN) {
                    self.set(own, Endpoint::Closed);
                }
                if has(RST) {
                    self.set(own, Endpoint::Reset);
                }
            }
            Endpoint::Partial | Endpoint::Established => {
                let is_late_syn = has(SYN) && !has(ACK) && self.ends[own] == Endpoint::Partial;
                if is_late_syn && self.ends[peer] == Endpoint::Inactive {
                    self.set(own, Endpoint::SynSent);
                }
                if has(RST) {
                    self.set(own, Endpoint::Reset);
                } else if has(FIN) {
                    self.set(own, Endpoint::Closed);
                    if self.ends[peer] == Endpoint::Reset && self.before[peer] == Endpoint::Closed {
                        // FIN, then RST: with the other side's FIN it was a normal end after all.
                        self.set(peer, Endpoint::Closed);
                    }
                }
            }
            // Packets after both FINs are part of the tear-down.
            Endpoint::Closed => {
                if has(RST) && self.ends[peer] != Endpoint::Closed {
                    self.set(own, Endpoint::Reset);
                }
            }
            Endpoint::Reset => {}
        }
        self.has_closed[own] |= matches!(self.ends[own], Endpoint::Closed | Endpoint::Reset);
    }

    /// The first packet of an end has no SYN, FIN or RST.
    fn begin_without_syn(&mut self, direction: Direction, flags: u8, has_payload: bool) {
        let (own, peer) = (direction.index(), self.ends[1 - direction.index()]);
        if direction == Direction::Down && !has_payload && peer == Endpoint::SynSent {
            // Some servers acknowledge a SYN before the SYN-ACK.
        } else if flags & ACK != 0 && peer == Endpoint::Established {
            // The other side's SYN-ACK was seen, so this side's SYN was only missed.
            self.set(own, Endpoint::Established);
        } else {
            self.set(own, Endpoint::Partial);
        }
    }

    fn note_attempt(&mut self, direction: Direction, flags: u8, has_payload: bool) {
        let is_client = direction == Direction::Up;
        let control = flags & (SYN | FIN | RST);
        self.attempt = match self.attempt {
            Attempt::None if is_client && control == SYN && flags & ACK == 0 => Attempt::Calling,
            Attempt::None => Attempt::Other,
            Attempt::Calling if is_client => match control {
                RST => Attempt::GivenUp,
                SYN if flags & ACK == 0 => Attempt::Calling,
                0 if has_payload || flags & ACK == 0 => Attempt::Calling,
                _ => Attempt::Other,
            },
            as_before => as_before,
        };
    }

    fn set(&mut self, end: usize, state: Endpoint) {
        if self.ends[end] != state {
            self.before[end] = std::mem::replace(&mut self.ends[end], state);
        }
    }
}

#[cfg(test)]
mod tests;
