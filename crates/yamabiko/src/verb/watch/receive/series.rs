//! One sender's series: what came of it, and what is kept.

use std::path::Path;

use anyhow::Result;
use report::figures::plain;
use schema::{RunPhase, RunProgress, WatchDocument};
use store::{RunFolder, RunStore, WatchSeriesWriter};
use sys::clock::{Clock, realtime_ns};
use testbed::snapshot::{self, SnapshotWriter};
use units::Timestamp;

use super::silent;
use crate::args;
use crate::verb::bench::command_line;
use crate::verb::watch::message::{Head, Message};
use crate::verb::watch::view::View;
use crate::verb::watch::{Ending, document};

/// See the module's text.
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
    heard_at_s: f64,
}

impl Series {
    /// Makes its folder in the run store, if it is to be kept. Where that fails the series is only shown.
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
            heard_at_s: 0.0,
        }
    }

    /// Why the series is no longer stored, if it should be.
    pub fn trouble(&self) -> Option<String> {
        let error = self.failure.as_ref()?;
        Some(format!("{}: {error:#}; the series is no longer stored", plain(&self.head.host)))
    }

    /// Where it is kept, if it is.
    pub fn dir(&self) -> Option<&Path> {
        self.folder.as_ref().map(RunFolder::path)
    }

    /// Which watch it is.
    pub fn session(&self) -> &str {
        &self.head.session
    }

    /// Takes in what is new of a message. True if a second was.
    pub fn take(&mut self, message: Message, now_s: f64) -> bool {
        let Message { head, rows } = message;
        self.heard_at_s = now_s;
        let mut is_fresh = false;
        let expected = self.next_index;
        for row in rows.into_iter().skip_while(|row| row.index < expected) {
            self.missing += row.index - self.next_index;
            self.next_index = row.index + 1;
            self.view.second_passed(&row.second);
            is_fresh = true;
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
        is_fresh
    }

    /// Closes the part on disk, and says how the series stands. Gives what has just failed.
    pub fn second_passed(&mut self) -> Option<String> {
        if let Some(opening) = &self.opening {
            let seen = Some(snapshot::watch(&self.view.totals, &self.view.last));
            let now = Timestamp::from_nanos(self.head.elapsed_ns);
            opening.write(&RunProgress { watch: seen, ..opening.at(now, RunPhase::Measured) });
        }
        let outcome = self.writer.as_mut().map_or(Ok(()), WatchSeriesWriter::close_part);
        self.fail(outcome.err()?.into());
        self.trouble()
    }

    /// How it stands.
    pub fn view(&self, now_s: f64) -> View {
        let mut view = self.view.clone();
        let silent_s = (now_s - self.heard_at_s).max(0.0);
        let mut words = Vec::new();
        if silent_s >= SILENT_S {
            words.push(format!("silent for {silent_s:.0} s"));
        }
        if self.missing > 0 {
            words.push(format!("{} s missing", self.missing));
        }
        view.is_doubtful = !words.is_empty();
        view.remark = words.join(", ");
        view
    }

    /// Whether its sender has said that nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.head.end.is_some()
    }

    /// Whether its sender has been silent for longer than it would keep its seconds.
    pub fn is_given_up(&self, now_s: f64) -> bool {
        now_s - self.heard_at_s > GIVEN_UP_S
    }

    /// Completes the entry in the run store; besides the document, what could not be written.
    pub fn finish(mut self) -> (WatchDocument, Option<anyhow::Error>) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.finish()
        {
            self.fail(error.into());
        }
        let end = self.head.end.clone();
        let failure = match &end {
            None => Some(silent()),
            Some(end) => end.failure.clone().map(anyhow::Error::msg),
        };
        let from = Timestamp::from_nanos(self.head.started_at_ns);
        let to = Timestamp::from_nanos(self.head.started_at_ns.saturating_add(self.head.elapsed_ns));
        let interrupted = end.is_some_and(|end| end.interrupted);
        let ending = Ending { from, to, interrupted, failure, reordered: 0 };
        let mut part = self.head.totals;
        part.source = format!("{}: {}", self.head.host, part.source);
        let (folder, machine) = (self.folder.as_ref(), self.head.machine);
        let document = document::of_host(part, &ending, folder, &command_line(), machine, Some(self.missing));
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

/// A silence of so long is shown.
const SILENT_S: f64 = 3.0;
/// A sender keeps ten minutes.
const GIVEN_UP_S: f64 = 660.0;
