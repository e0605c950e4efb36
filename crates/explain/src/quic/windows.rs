//! Flow control of QUIC as the client states it (RFC 9000, section 4): until when a window did not admit a byte.

use crate::timeline::Label;
use schema::share::{Cause, Confidence, Rule};

/// One window: what the transport parameters admit, and what MAX_DATA or MAX_STREAM_DATA added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Bytes admitted at first; `None`: not known, so that the window is taken as open.
    pub(crate) initial: Option<u64>,
    /// Arrival of each update at the server, in order of time, with the bytes that were admitted then.
    granted: Vec<(u64, u64)>,
}

impl Window {
    pub(super) fn new(initial: Option<u64>) -> Window {
        Window { initial, granted: Vec::new() }
    }

    /// An update arrived at the server. They are added in the order of arrival; a smaller one than before is late.
    pub(super) fn grant(&mut self, at: u64, bytes: u64) {
        let before = self.granted.last().map_or(0, |(_, bytes)| *bytes);
        if bytes > before {
            self.granted.push((at, bytes));
        }
    }

    /// Until when the window did not admit a byte at the server, if it did not at `from`.
    fn block(&self, from: u64, byte: u64) -> Option<u64> {
        let known = self.granted.partition_point(|(at, _)| *at <= from);
        let last = known.checked_sub(1).map_or(0, |last| self.granted[last].1);
        if self.initial?.max(last) > byte {
            return None;
        }
        self.granted[known..].iter().find(|(_, admitted)| *admitted > byte).map(|(at, _)| *at)
    }
}

/// The windows of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) stream: Window,
    pub(crate) connection: Window,
}

impl Windows {
    /// Until when a window held back a byte, if one did at the server at `from`; of two, the one that opened later.
    /// `offset`: the byte's place on its stream; `place`: among the bytes of all streams.
    pub(crate) fn block(&self, from: u64, offset: Option<u64>, place: u64, seen: bool) -> Option<(u64, Label)> {
        let stream = offset.and_then(|offset| self.stream.block(from, offset));
        let connection = self.connection.block(from, place);
        let confidence = if seen { Confidence::Certain } else { Confidence::Likely };
        let label = |cause, rule| Label::new(cause, confidence, rule);
        match (stream, connection) {
            (Some(stream), other) if other.is_none_or(|other| other <= stream) => {
                Some((stream, label(Cause::QuicStreamWindow, Rule::StreamWindow)))
            }
            (_, connection) => Some((connection?, label(Cause::QuicConnectionWindow, Rule::ConnectionWindow))),
        }
    }

    /// The smaller of the windows at the connection's start, bytes.
    pub(crate) fn initial(&self) -> Option<u64> {
        self.stream.initial.into_iter().chain(self.connection.initial).min()
    }
}
