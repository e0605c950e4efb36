//! The series of one sender: its figures and its stored run.

use std::path::Path;

use anyhow::Result;
use report::figures::plain;
use schema::{RunPhase, RunProgress, WatchDocument};
use store::{RunFolder, RunStore, WatchSeriesWriter};
use sys::clock::{Clock, realtime_ns};
use testbed::snapshot::{self, SnapshotWriter};
use units::Timestamp;

use super::sender_disappeared;
use crate::args;
use crate::verb::bench::command_line;
use crate::verb::watch::message::{Head, Message};
use crate::verb::watch::view::View;
use crate::verb::watch::{CaptureEnd, document};

/// A series being received. See the module documentation.
pub struct Series {
    head: Head,
    view: View,
    folder: Option<RunFolder>,
    opening: Option<SnapshotWriter>,
    writer: Option<WatchSeriesWriter>,
    /// Why the series is no longer stored.
    failure: Option<anyhow::Error>,
    next_index: u64,
    missing: u64,
    /// When the last message arrived, in seconds of the receiver's clock.
    last_message_s: f64,
}

impl Series {
    /// Creates the series' folder in the run store, unless `--no-save` is given. If that fails, the series is only
    /// shown.
    pub fn begin(head: &Head, arguments: &args::Watch) -> Series {
        let (folder, failure) = match folder(head, arguments) {
            Ok(folder) => (folder, None),
            Err(error) => (None, Some(error)),
        };
        Series {
            head: head.clone(),
            view: View { host: Some(head.host.clone()), ..View::default() },
            writer: folder.as_ref().map(RunFolder::watch_series),
            opening: folder.as_ref().map(|folder| SnapshotWriter::begin(folder, "watch", &command_line(), 0)),
            folder,
            failure,
            next_index: 0,
            missing: 0,
            last_message_s: 0.0,
        }
    }

    /// Why the series is no longer stored, if storing failed.
    pub fn storage_failure(&self) -> Option<String> {
        let error = self.failure.as_ref()?;
        Some(format!("{}: {error:#}; the series is no longer stored", plain(&self.head.host)))
    }

    /// The series' folder in the run store, if it has one.
    pub fn dir(&self) -> Option<&Path> {
        self.folder.as_ref().map(RunFolder::path)
    }

    /// The session that identifies the series.
    pub fn session(&self) -> &str {
        &self.head.session
    }

    /// Adds a message to the series. Seconds received before are skipped. True if the message has a new second.
    pub fn handle_message(&mut self, message: Message, now_s: f64) -> bool {
        let Message { head, rows } = message;
        self.last_message_s = now_s;
        let mut has_new_seconds = false;
        let expected = self.next_index;
        for row in rows.into_iter().skip_while(|row| row.index < expected) {
            self.missing += row.index - self.next_index;
            self.next_index = row.index + 1;
            self.view.second_passed(&row.second);
            has_new_seconds = true;
            if let Some(writer) = &mut self.writer
                && let Err(error) = writer.push(&[row.second])
            {
                self.fail(error.into());
            }
        }
        self.view.elapsed_s = head.elapsed_ns as f64 / 1e9;
        self.view.totals = head.totals.clone();
        self.view.rtt = head.rtt.clone();
        self.head = head;
        has_new_seconds
    }

    /// Closes the table's part on disk and writes a progress snapshot. Returns a failure once, when it happens.
    pub fn second_passed(&mut self) -> Option<String> {
        if let Some(opening) = &self.opening {
            let seen = Some(snapshot::watch(&self.view.totals, &self.view.last));
            let now = Timestamp::from_nanos(self.head.elapsed_ns);
            opening.write(&RunProgress { watch: seen, ..opening.at(now, RunPhase::Measured) });
        }
        let outcome = self.writer.as_mut().map_or(Ok(()), WatchSeriesWriter::close_part);
        self.fail(outcome.err()?.into());
        self.storage_failure()
    }

    /// The current figures, with a remark on silence and missing seconds.
    pub fn view(&self, now_s: f64) -> View {
        let mut view = self.view.clone();
        let silent_s = (now_s - self.last_message_s).max(0.0);
        let mut remarks = Vec::new();
        if silent_s >= SILENCE_SHOWN_S {
            remarks.push(format!("silent for {silent_s:.0} s"));
        }
        if self.missing > 0 {
            remarks.push(format!("{} s missing", self.missing));
        }
        view.has_problem = !remarks.is_empty();
        view.remark = remarks.join(", ");
        view
    }

    /// Whether the sender has ended the series.
    pub fn has_ended(&self) -> bool {
        self.head.end.is_some()
    }

    /// Whether the sender has been silent for longer than it queues seconds.
    pub fn is_abandoned(&self, now_s: f64) -> bool {
        now_s - self.last_message_s > ABANDONED_AFTER_S
    }

    /// Completes the stored run. Returns the document, and the first failure to store.
    pub fn finish(mut self) -> (WatchDocument, Option<anyhow::Error>) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.finish()
        {
            self.fail(error.into());
        }
        let end = self.head.end.clone();
        let failure = match &end {
            None => Some(sender_disappeared()),
            Some(end) => end.failure.clone().map(anyhow::Error::msg),
        };
        let from = Timestamp::from_nanos(self.head.started_at_ns);
        let to = Timestamp::from_nanos(self.head.started_at_ns.saturating_add(self.head.elapsed_ns));
        let interrupted = end.is_some_and(|end| end.interrupted);
        let capture_end = CaptureEnd { from, to, interrupted, failure, reordered: 0 };
        let mut part = self.head.totals;
        part.source = format!("{}: {}", self.head.host, part.source);
        let (folder, machine) = (self.folder.as_ref(), self.head.machine);
        let document = document::of_host(part, &capture_end, folder, &command_line(), machine, Some(self.missing));
        let written = folder.map_or(Ok(()), |folder| folder.write_summary(&document));
        if let Some(opening) = &self.opening {
            opening.watch_done(Timestamp::from_nanos(self.head.elapsed_ns), &document);
        }
        (document, self.failure.or(written.err().map(anyhow::Error::from)))
    }

    fn fail(&mut self, error: anyhow::Error) {
        self.writer = None;
        self.failure.get_or_insert(error);
    }
}

fn folder(head: &Head, arguments: &args::Watch) -> Result<Option<RunFolder>> {
    if arguments.no_save {
        return Ok(None);
    }
    let name = format!("{}-{}", arguments.name, head.host);
    Ok(Some(RunStore::open()?.create(&name, Clock::start().started(), realtime_ns())?))
}

/// A silence of this length is shown.
const SILENCE_SHOWN_S: f64 = 3.0;
/// A series without messages for this long is ended: a minute more than a sender queues.
const ABANDONED_AFTER_S: f64 = 660.0;
