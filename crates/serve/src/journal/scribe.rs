//! Lines as the log thread writes them, one at a time: for the part of a server that is measured alone.

use super::Entry;
use super::line::{Lines, LogFormat};
use super::record::{append, take};

/// Notes and formats, as a worker and the log thread do.
#[derive(Debug)]
pub(crate) struct Scribe {
    lines: Lines,
    record: Vec<u8>,
}

impl Scribe {
    /// Of lines in the combined format.
    pub(crate) fn new() -> Self {
        Scribe { lines: Lines::new(LogFormat::Combined, false, sys::clock::realtime_ns()), record: Vec::new() }
    }

    /// Appends the line of an answer to `out`.
    pub(crate) fn line(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        self.record.clear();
        append(&mut self.record, entry);
        if let Some(record) = take(&mut &self.record[..]) {
            self.lines.append(out, &record);
        }
    }
}
