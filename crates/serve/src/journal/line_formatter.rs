//! Formats single log lines, for the measurement of the logging component.

use super::Entry;
use super::line::{Lines, LogFormat};
use super::record::{append, take};

/// Records and formats, as a worker and the log thread do.
#[derive(Debug)]
pub(crate) struct LineFormatter {
    lines: Lines,
    record: Vec<u8>,
}

impl LineFormatter {
    /// For the combined format.
    pub(crate) fn new() -> Self {
        LineFormatter { lines: Lines::new(LogFormat::Combined, false, sys::clock::realtime_ns()), record: Vec::new() }
    }

    /// Appends the line of a response to `out`.
    pub(crate) fn line(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        self.record.clear();
        append(&mut self.record, entry);
        if let Some(record) = take(&mut &self.record[..]) {
            self.lines.append(out, &record);
        }
    }
}
