//! Frames of HTTP/2 that the load kept: whose bytes are whose, and when each window was used up.

use std::collections::HashMap;

use schema::{FrameKind, Http2FrameRow, RequestRecord};

use crate::evidence::{DataFrame, Http2Windows, Span, WindowUpdate};

/// Window with which a connection begins, whatever its settings (RFC 9113, section 6.9.2), bytes.
const CONNECTION_WINDOW: u64 = (1 << 16) - 1;
/// The stream that means the connection.
const CONNECTION: u32 = 0;

/// Frames of the connections of a run.
#[derive(Clone, Debug, Default)]
pub struct Frames(HashMap<u64, ConnectionFrames>);

/// Frames of one connection, from its beginning and in order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionFrames {
    rows: Vec<Http2FrameRow>,
    /// Before each row: bytes that the connection's window still had.
    left: Vec<u64>,
}

impl Frames {
    /// Adds a row. The rows of a connection are added in order of time, from its beginning.
    pub fn add(&mut self, row: Http2FrameRow) {
        self.0.entry(row.connection).or_default().add(row);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn of(&self, connection: u64) -> Option<&ConnectionFrames> {
        self.0.get(&connection)
    }
}

impl ConnectionFrames {
    fn add(&mut self, row: Http2FrameRow) {
        let left = self.left_at(self.rows.len());
        self.left.push(left);
        self.rows.push(row);
    }

    /// Bytes that the connection's window had before the row of this number, or after all.
    fn left_at(&self, number: usize) -> u64 {
        if let Some(left) = self.left.get(number) {
            return *left;
        }
        let Some((row, left)) = self.rows.last().zip(self.left.last()) else { return CONNECTION_WINDOW };
        let bytes = u64::from(row.window_bytes);
        match row.kind {
            FrameKind::Data => left.saturating_sub(bytes),
            FrameKind::WindowUpdate if row.stream == CONNECTION => left.saturating_add(bytes),
            FrameKind::WindowUpdate | FrameKind::Headers => *left,
        }
    }

    /// The rows between a request's start and its end, and the number of the first.
    fn during(&self, request: &RequestRecord) -> (usize, &[Http2FrameRow]) {
        let from = request.started_at.unwrap_or(request.scheduled_at);
        let first = self.rows.partition_point(|row| row.at < from);
        let count = self.rows[first..].partition_point(|row| row.at <= request.done_at);
        (first, &self.rows[first..first + count])
    }

    /// Places of the response on the connection's downward stream, whose first byte has the number `first`. `None` if
    /// no frame of the response was kept.
    pub(super) fn spans(&self, request: &RequestRecord, first: u32) -> Option<Vec<Span>> {
        let stream = request.stream?;
        let mut spans = Vec::<Span>::new();
        let mut end = None;
        let (_, rows) = self.during(request);
        for row in rows.iter().filter(|row| row.stream == stream) {
            let (Some(from), Some(to)) = (row.from_byte, row.to_byte) else { continue };
            let length = u32::try_from(to.saturating_sub(from)).ok()?;
            match spans.last_mut() {
                Some(last) if end == Some(from) => last.length = last.length.checked_add(length)?,
                // Sequence numbers begin anew after 2^32 bytes.
                _ => spans.push(Span { first: first.wrapping_add(from as u32), length }),
            }
            end = Some(to);
        }
        (!spans.is_empty()).then_some(spans)
    }

    /// The windows of the response. `stream` and `connection`: their sizes.
    pub(super) fn windows(&self, request: &RequestRecord, [stream, connection]: [u64; 2]) -> Http2Windows {
        let (first, rows) = self.during(request);
        let mut windows = Http2Windows {
            stream: request.stream.unwrap_or(1),
            stream_window: stream,
            connection_window: self.left_at(first),
            connection_size: Some(connection),
            ..Http2Windows::default()
        };
        for row in rows {
            let (at, bytes) = (row.at, u64::from(row.window_bytes));
            match row.kind {
                FrameKind::Data => windows.frames.push(DataFrame { at, stream: row.stream, bytes }),
                FrameKind::WindowUpdate => {
                    windows.updates.push(WindowUpdate { at, stream: row.stream, increment: bytes });
                }
                FrameKind::Headers => {}
            }
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use units::Timestamp;

    use super::*;

    fn row(at: u64, stream: u32, kind: FrameKind, window_bytes: u32, place: Option<(u64, u64)>) -> Http2FrameRow {
        Http2FrameRow {
            at: Timestamp::from_nanos(at),
            connection: 1,
            stream,
            kind,
            window_bytes,
            from_byte: place.map(|(from, _)| from),
            to_byte: place.map(|(_, to)| to),
        }
    }

    fn frames() -> ConnectionFrames {
        let rows = [
            row(0, 0, FrameKind::WindowUpdate, 34_465, None),
            row(10, 1, FrameKind::Headers, 0, Some((50, 80))),
            row(10, 1, FrameKind::Data, 1_000, Some((80, 1_089))),
            row(20, 3, FrameKind::Headers, 0, Some((1_089, 1_120))),
            row(20, 1, FrameKind::Data, 500, Some((1_120, 1_629))),
            row(21, 3, FrameKind::Data, 600, Some((1_629, 2_238))),
            row(22, 0, FrameKind::WindowUpdate, 2_000, None),
            row(22, 3, FrameKind::WindowUpdate, 600, None),
            row(40, 3, FrameKind::Data, 100, Some((2_238, 2_347))),
        ];
        let mut frames = Frames::default();
        rows.into_iter().for_each(|row| frames.add(row));
        frames.of(1).unwrap().clone()
    }

    fn request(stream: u32, started_at: u64, done_at: u64) -> RequestRecord {
        RequestRecord {
            stream: Some(stream),
            started_at: Some(Timestamp::from_nanos(started_at)),
            done_at: Timestamp::from_nanos(done_at),
            ..RequestRecord::BLANK
        }
    }

    #[test]
    fn a_response_has_the_places_of_its_own_frames() {
        let spans_of = |stream, first| {
            let spans = frames().spans(&request(stream, 0, 50), first)?;
            Some(spans.iter().map(|span| (span.first, span.length)).collect::<Vec<_>>())
        };
        assert_eq!(spans_of(1, 1_000), Some(vec![(1_050, 1_039), (2_120, 509)]));
        // Sequence numbers wrap.
        assert_eq!(spans_of(3, u32::MAX), Some(vec![(1_088, 31), (1_628, 718)]));
        assert_eq!(spans_of(5, 0), None);
    }

    #[test]
    fn the_connection_s_window_is_what_earlier_responses_left_of_it() {
        let windows = frames().windows(&request(3, 15, 30), [5_000, 100_000]);
        assert_eq!((windows.stream_window, windows.connection_window), (5_000, 100_000 - 1_000));
        assert_eq!(
            windows.frames.iter().map(|frame| (frame.stream, frame.bytes)).collect::<Vec<_>>(),
            [(1, 500), (3, 600)]
        );
        assert_eq!(
            windows.updates.iter().map(|update| (update.stream, update.increment)).collect::<Vec<_>>(),
            [(0, 2_000), (3, 600)]
        );
    }
}
