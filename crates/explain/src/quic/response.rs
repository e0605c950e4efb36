//! One response: what its connection did between its request's start and its end.

use super::places::Piece;
use super::recovery::Recovery;
use super::windows::Windows;
use crate::timeline::{Label, Overlay};
use crate::view::{Arrival, OneWay, RequestPacket, Sent, Up};
use schema::share::Cause;

/// The evidence of a response over QUIC.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicResponse {
    pub(crate) down: Vec<Sent>,
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) up: Vec<Up>,
    pub(crate) payload: Vec<RequestPacket>,
    /// The response's bytes on its stream, with their places among those of all streams.
    pub(crate) own: Vec<Piece>,
    /// Place after the request's last byte.
    pub(crate) request_end: Option<u64>,
    pub(super) windows: Windows,
    pub(super) recovery: Recovery,
    /// Packets that ended the stream, by number.
    pub(crate) ends: Vec<End>,
    /// What held up the handshake, at the client.
    pub(crate) detours: Vec<Overlay>,
    pub(crate) delay: Option<OneWay>,
    /// Whether the ends were captured: client, server.
    pub(crate) is_captured: [bool; 2],
    /// Whether the path's links are known, and both ends.
    pub(crate) has_path: bool,
    pub(crate) is_whole: bool,
}

/// A packet with the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) left: u64,
    pub(crate) arrived: Option<u64>,
    pub(crate) is_lost: bool,
    pub(crate) number: u64,
}

impl QuicResponse {
    /// Whether the server's end was captured.
    pub fn is_captured_at_server(&self) -> bool {
        self.is_captured[1]
    }

    /// Whether the byte with this place is of the response.
    pub(super) fn has(&self, place: u64) -> bool {
        self.piece(place).is_some()
    }

    /// Until when a window did not admit the byte with this place, if one did not at the server at `from`.
    pub(crate) fn block(&self, from: u64, place: u64) -> Option<(u64, Label)> {
        let offset = self.piece(place).map(|piece| piece.offset + (place - piece.first));
        self.windows.block(from, offset, place, self.is_captured[1])
    }

    fn piece(&self, place: u64) -> Option<&Piece> {
        let next = self.own.partition_point(|piece| piece.first + piece.length <= place);
        self.own.get(next).filter(|piece| piece.first <= place)
    }

    /// The smaller window at the connection's start, bytes.
    pub(crate) fn initial_window(&self) -> Option<u64> {
        self.windows.initial()
    }

    /// What ended the wait for a lost packet whose bytes left again at `again`.
    pub(crate) fn recovery(&self, lost: &Sent, again: u64, rtt: u64) -> Option<Cause> {
        self.recovery.cause(lost.quic?.number, lost.at, again, rtt)
    }

    /// The same of a lost end of the stream.
    pub(crate) fn recovery_of_end(&self, lost: &End, again: u64, rtt: u64) -> Option<Cause> {
        self.recovery.cause(lost.number, lost.left, again, rtt)
    }
}
