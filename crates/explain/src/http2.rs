//! HTTP/2 flow control from the client's record: until when a window was used up.

use crate::evidence::{Http2Windows, WindowUpdate};
use crate::timeline::Label;
use crate::view::{View, highest};
use schema::share::{Cause, Confidence, Rule};

/// Windows of a stream and of its connection as their updates arrived at the server.
#[derive(Debug)]
pub(crate) struct Grants {
    stream: Window,
    connection: Window,
    confidence: Confidence,
}

/// One flow-control window.
#[derive(Debug)]
struct Window {
    initial: u64,
    /// Arrival of each update at the server, in order of time, with all that was granted then.
    granted: Vec<(u64, u64)>,
    /// When DATA was read at the client, and all that had been received then.
    received: Vec<(u64, u64)>,
}

/// A server need not send less than this into the rest of a window, bytes.
const LEAST_PIECE: u64 = 256;

impl Grants {
    pub(crate) fn new(windows: &Http2Windows, view: &View) -> Grants {
        let window = |stream: u32, initial: u64| {
            let is_received = |of: u32| stream == CONNECTION || of == stream;
            let updates: Vec<&WindowUpdate> = windows.updates.iter().filter(|update| update.stream == stream).collect();
            let up = view.delay.map_or(0, |delay| delay.up);
            let arrivals = highest(updates.iter().map(|update| view.up.arrival_of(update.at.as_nanos(), up)));
            let totals = sums(updates.iter().map(|update| update.increment), initial);
            let frames: Vec<_> = windows.frames.iter().filter(|frame| is_received(frame.stream)).collect();
            let times = highest(frames.iter().map(|frame| frame.at.as_nanos()));
            let received = sums(frames.iter().map(|frame| frame.bytes), 0);
            let granted = arrivals.into_iter().zip(totals).collect();
            Window { initial, granted, received: times.into_iter().zip(received).collect() }
        };
        let confidence = if view.departures_seen { Confidence::Certain } else { Confidence::Likely };
        Grants {
            stream: window(windows.stream, windows.stream_window),
            connection: window(CONNECTION, windows.connection_window),
            confidence,
        }
    }

    /// Until when a window held back data that arrived at the client at `arrived`, if one did at the server at `from`.
    /// Of two, the one that opened later.
    pub(crate) fn block(&self, from: u64, arrived: u64) -> Option<(u64, Label)> {
        let stream = self.stream.block(from, arrived);
        let connection = self.connection.block(from, arrived);
        let label = |cause, rule| Label::new(cause, self.confidence, rule);
        match (stream, connection) {
            (Some(stream), other) if other.is_none_or(|other| other <= stream) => {
                Some((stream, label(Cause::Http2StreamWindow, Rule::StreamWindow)))
            }
            (_, connection) => Some((connection?, label(Cause::Http2ConnectionWindow, Rule::ConnectionWindow))),
        }
    }
}

/// The stream identifier that means the connection.
const CONNECTION: u32 = 0;

impl Window {
    fn block(&self, from: u64, arrived: u64) -> Option<u64> {
        let read = self.received.partition_point(|(at, _)| *at < arrived);
        let used = read.checked_sub(1).map_or(0, |last| self.received[last].1);
        let needed = used.saturating_add(LEAST_PIECE);
        let known = self.granted.partition_point(|(at, _)| *at <= from);
        let granted = known.checked_sub(1).map_or(self.initial, |last| self.granted[last].1);
        if granted >= needed {
            return None;
        }
        let opened = self.granted[known..].iter().find(|(_, granted)| *granted >= needed);
        opened.map(|(at, _)| *at)
    }
}

/// Running sums from `start`.
fn sums(values: impl Iterator<Item = u64>, start: u64) -> impl Iterator<Item = u64> {
    values.scan(start, |sum, value| {
        *sum = sum.saturating_add(value);
        Some(*sum)
    })
}
