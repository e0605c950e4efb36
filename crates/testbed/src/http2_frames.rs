//! Frames of HTTP/2 that the load read and the window updates that it wrote, kept during a run for `yamabiko explain`.
//!
//! Only DATA, heads and window updates are kept, 56 bytes for the frames of a stream that were read together, in at most
//! 32 MB of memory; later ones are left out. Nothing is written while the load runs.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use schema::{FrameKind, Http2FrameRow};
use store::RunFolder;
use units::Timestamp;

/// Most bytes of memory.
const MEMORY_MAX: usize = 32 << 20;

/// The kept frames of all loops.
#[derive(Debug)]
pub struct FrameLog(Mutex<Kept>);

#[derive(Debug)]
struct Kept {
    rows: Vec<Http2FrameRow>,
    rows_max: usize,
    until: Option<Timestamp>,
}

impl Default for FrameLog {
    fn default() -> Self {
        FrameLog::with_rows(MEMORY_MAX / size_of::<Http2FrameRow>())
    }
}

impl FrameLog {
    fn with_rows(rows_max: usize) -> FrameLog {
        FrameLog(Mutex::new(Kept { rows: Vec::new(), rows_max, until: None }))
    }

    /// Takes the rows; from the first ones on that have no place, none are kept.
    pub(crate) fn add(&self, rows: &mut Vec<Http2FrameRow>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.until.is_none() && kept.rows.len() + rows.len() > kept.rows_max {
            kept.until = rows.first().map(|row| row.at);
        }
        if kept.until.is_none() {
            kept.rows.append(rows);
        }
        rows.clear();
    }

    /// When frames began to be left out; `None`: all were kept.
    pub fn until(&self) -> Option<Timestamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).until
    }

    /// Writes the table into a run's folder.
    ///
    /// # Errors
    /// A full disk or another failure of the file system.
    pub fn write(&self, folder: &RunFolder) -> store::Result<()> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folder.http2_frames().finish_with_rows(&kept.rows).map(drop)
    }
}

/// The frames of one connection since they were last taken.
#[derive(Debug)]
pub(crate) struct ConnectionFrames {
    connection: u64,
    at: Timestamp,
    rows: Vec<Http2FrameRow>,
    /// Rows before the last call of [`Self::begin_read`].
    earlier: usize,
    /// Bytes of frames since then.
    read: u64,
}

impl ConnectionFrames {
    pub(crate) fn new(connection: u64, now: Timestamp) -> ConnectionFrames {
        ConnectionFrames { connection, at: now, rows: Vec::new(), earlier: 0, read: 0 }
    }

    /// Bytes of the socket were read at `now`.
    pub(crate) fn begin_read(&mut self, now: Timestamp) {
        (self.at, self.earlier, self.read) = (now, self.rows.len(), 0);
    }

    /// A piece of `bytes`, of which `window_bytes` count against the windows; `kind`: of which something is kept.
    pub(crate) fn read(&mut self, stream: u32, kind: Option<FrameKind>, bytes: u32, window_bytes: u32) {
        let from = self.read;
        self.read += u64::from(bytes);
        let Some(kind) = kind else { return };
        let earlier = self.earlier;
        if let Some(last) = self.rows[earlier..].last_mut()
            && (last.stream, last.kind, last.to_byte) == (stream, kind, Some(from))
        {
            last.to_byte = Some(self.read);
            last.window_bytes = last.window_bytes.saturating_add(window_bytes);
            return;
        }
        self.rows.push(Http2FrameRow {
            at: self.at,
            connection: self.connection,
            stream,
            kind,
            window_bytes,
            from_byte: Some(from),
            to_byte: Some(self.read),
        });
    }

    /// The frames since [`Self::begin_read`] were `socket_bytes` of the connection's downward stream. Of TLS these are
    /// more than the frames' own bytes; the places are then those in proportion, right to a record's overhead.
    pub(crate) fn end_read(&mut self, socket_bytes: Range<u64>) {
        let (length, read) = (socket_bytes.end.saturating_sub(socket_bytes.start), self.read.max(1));
        let place = |byte: u64| {
            let scaled = u128::from(byte) * u128::from(length) / u128::from(read);
            socket_bytes.start + u64::try_from(scaled).unwrap_or(length)
        };
        for row in &mut self.rows[self.earlier..] {
            (row.from_byte, row.to_byte) = (row.from_byte.map(place), row.to_byte.map(place));
        }
        self.earlier = self.rows.len();
    }

    /// A window update was written.
    pub(crate) fn granted(&mut self, stream: u32, window_bytes: u32) {
        self.rows.push(Http2FrameRow {
            at: self.at,
            connection: self.connection,
            stream,
            kind: FrameKind::WindowUpdate,
            window_bytes,
            from_byte: None,
            to_byte: None,
        });
        self.earlier = self.rows.len();
    }

    /// The rows, which are to be taken.
    pub(crate) fn rows(&mut self) -> &mut Vec<Http2FrameRow> {
        self.earlier = 0;
        &mut self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_their_places_on_the_socket_s_stream() {
        let mut frames = ConnectionFrames::new(7, Timestamp::ZERO);
        frames.granted(0, 1_000);
        frames.begin_read(Timestamp::from_nanos(5));
        frames.read(0, None, 20, 0);
        frames.read(1, Some(FrameKind::Headers), 30, 0);
        frames.read(1, Some(FrameKind::Data), 40, 31);
        frames.read(1, Some(FrameKind::Data), 10, 1);
        frames.read(3, Some(FrameKind::Data), 100, 91);
        // As through TLS: 400 bytes for 200.
        frames.end_read(1_000..1_400);
        let rows: Vec<_> =
            frames.rows().iter().map(|row| (row.stream, row.window_bytes, row.from_byte, row.to_byte)).collect();
        assert_eq!(
            rows,
            [
                (0, 1_000, None, None),
                (1, 0, Some(1_040), Some(1_100)),
                (1, 32, Some(1_100), Some(1_200)),
                (3, 91, Some(1_200), Some(1_400)),
            ]
        );
    }

    #[test]
    fn full_memory_keeps_the_beginning() {
        let log = FrameLog::with_rows(3);
        for at in 0..3 {
            let mut frames = ConnectionFrames::new(1, Timestamp::from_nanos(at));
            frames.granted(0, 1);
            frames.granted(1, 1);
            log.add(frames.rows());
        }
        assert_eq!(log.until(), Some(Timestamp::from_nanos(1)));
        assert_eq!(log.0.lock().unwrap().rows.len(), 2);
    }
}
