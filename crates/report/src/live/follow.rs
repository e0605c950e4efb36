//! Reads a run's folder repeatedly: new rows of its tables, its progress, at the end its document.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use schema::document::Validity;
use schema::{
    CapacityDocument, CompareDocument, DiskDocument, DistributionRecord, Document, GatewayDocument, PredictDocument,
    ReproductionDocument, RunPhase, RunProgress, SecondRecord, ServerSecond, ShardsProgress, WatchSecond,
};
use store::{Result, RunEntry, RunState, Tail};

use super::heat::Spread;
use super::state::State;
use super::{experiment, run};
use crate::export::Figures;

/// Reads the folder of a run, and of its current run if it is an experiment.
pub struct Follower {
    series: Tail<SecondRecord>,
    watch: Tail<WatchSecond>,
    server: Tail<ServerSecond>,
    distributions: Tail<DistributionRecord>,
    records: Records,
    /// Modification time and length of the document when it was read; `None` during the run.
    summary: Option<(SystemTime, u64)>,
    under: Option<Box<Follower>>,
}

/// The data of a folder, as far as it was read.
#[derive(Default)]
pub(super) struct Records {
    pub(super) id: String,
    pub(super) dir: PathBuf,
    pub(super) progress: Option<RunProgress>,
    /// The document; `None` during the run, even if there is a document.
    pub(super) ended: Option<Ended>,
    pub(super) series: Vec<SecondRecord>,
    pub(super) watch: Vec<WatchSecond>,
    /// The first second of the packet capture, stored so that the axis does not move.
    pub(super) wire_first: Option<u64>,
    pub(super) server: Vec<ServerSecond>,
    pub(super) spread: Spread,
    /// All shards of the load, if several machines make it and this is shard 0's.
    pub(super) shards: Option<ShardsProgress>,
    /// How much older their file is than the run's own progress, in seconds.
    pub(super) shards_age_s: Option<u64>,
    /// Parts that could not be read, a sentence each.
    pub(super) missing: Vec<String>,
    /// The run was killed and has no progress file.
    pub(super) is_dead: bool,
}

/// The document of a run that has ended.
pub(super) enum Ended {
    Run(Box<Document>),
    Capacity(Box<CapacityDocument>),
    Gateway(Box<GatewayDocument>),
    Predict(Box<PredictDocument>),
    Disk(Box<DiskDocument>),
    Reproduction(Box<ReproductionDocument>),
    Compare(Box<CompareDocument>),
    /// This version cannot read the document.
    Unreadable(String),
}

impl Follower {
    /// Follows the run in `dir`, which may not have written anything yet.
    pub fn new(dir: &Path) -> Self {
        let id = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Follower {
            series: Tail::new(dir),
            watch: Tail::new(dir),
            server: Tail::new(dir),
            distributions: Tail::new(dir),
            records: Records { id, dir: dir.to_owned(), ..Records::default() },
            summary: None,
            under: None,
        }
    }

    /// Reads progress and document only, for a line in a list.
    pub(super) fn poll_without_tables(&mut self) {
        let ended = summary_stamp(&self.records.dir);
        self.read_progress_and_document(ended);
    }

    /// The folder.
    pub(super) fn phase(&self) -> RunPhase {
        self.records.phase()
    }

    /// Reads new data. Parts that cannot be read are named in the state.
    pub fn poll(&mut self) {
        // The document is read last: tables are complete before it exists.
        let ended = summary_stamp(&self.records.dir);
        self.read_tables();
        self.read_progress_and_document(ended);
        self.read_shards();
        self.poll_current_run();
    }

    fn read_tables(&mut self) {
        let records = &mut self.records;
        take(&mut self.series, &mut records.series, &mut records.missing, "series");
        take(&mut self.watch, &mut records.watch, &mut records.missing, "watch_series");
        records.wire_first = records.watch.first().map(|row| row.second).into_iter().chain(records.wire_first).min();
        take(&mut self.server, &mut records.server, &mut records.missing, "server_series");
        match self.distributions.poll() {
            Ok(fresh) => {
                if fresh.replaces_earlier {
                    records.spread.clear();
                }
                records.spread.add(fresh.rows);
            }
            Err(error) => add_sentence(&mut records.missing, format!("distributions could not be read: {error}")),
        }
    }

    fn read_progress_and_document(&mut self, ended: Option<(SystemTime, u64)>) {
        match store::read_progress(&self.records.dir) {
            Ok(progress) => self.records.progress = progress,
            Err(error) => {
                add_sentence(&mut self.records.missing, format!("progress.json could not be read: {error}"));
                // Earlier errors do not concern the document.
                if ended.is_some() {
                    self.records.progress = None;
                }
            }
        }
        // A capacity search writes its document after every trial: the run is over only if its progress file reports
        // the end as well.
        let still_running = self.records.progress.as_ref().is_some_and(|progress| !progress.phase.is_over());
        let ended = ended.filter(|_| !still_running);
        if ended != self.summary {
            self.records.ended = ended.map(|_| read_ended(&self.records.dir));
            self.summary = ended;
        }
        let records = &mut self.records;
        if records.progress.is_none() && records.ended.is_none() && !records.is_dead {
            let entry = RunEntry::read(&records.dir);
            records.is_dead = entry.is_ok_and(|entry| matches!(entry.state, RunState::Unfinished { .. }));
        }
    }

    fn read_shards(&mut self) {
        let records = &mut self.records;
        match store::read_shards_progress(&records.dir) {
            Ok(found) => {
                let own = store::progress_written(&records.dir);
                let age = |written: SystemTime| Some(own?.duration_since(written).unwrap_or_default().as_secs());
                records.shards_age_s = found.as_ref().and_then(|(_, written)| age(*written));
                records.shards = found.map(|(shards, _)| shards);
            }
            Err(error) => {
                records.shards = None;
                add_sentence(&mut records.missing, format!("shards.json could not be read: {error}"));
            }
        }
    }

    /// The state of the page.
    pub fn state(&self) -> State {
        let under = self.under.as_ref().map(|under| &under.records);
        if experiment::is_one(&self.records) {
            experiment::state(&self.records, under)
        } else {
            run::state(&self.records)
        }
    }

    /// Figures for a scrape, as of the last reading: those of the run, or of the current run of an experiment.
    pub fn figures(&self) -> Figures {
        let records = self.under.as_ref().map_or(&self.records, |under| &under.records);
        let figures = match (records.document(), &records.progress) {
            (Some(document), _) => Figures::of_document(document),
            (None, Some(progress)) => Figures::of_progress(progress),
            (None, None) => Figures::default(),
        };
        let figures = Figures {
            run: records.id.clone(),
            series: records.series.clone(),
            watch_series: records.watch.clone(),
            server_series: records.server.clone(),
            ..figures
        };
        figures.with_distributions(&records.spread.rows())
    }

    /// Whether the run is over, so that nothing changes any more.
    pub fn is_over(&self) -> bool {
        self.records.is_over()
    }

    /// Follows the current run, which is in the same run store.
    fn poll_current_run(&mut self) {
        let named = self.records.progress.as_ref().filter(|_| !self.records.is_over()).and_then(|s| s.under.as_deref());
        let Some(named) = named.filter(|named| is_plain(named)) else {
            self.under = None;
            return;
        };
        if self.under.as_ref().is_none_or(|under| under.records.id != named) {
            let Some(book) = self.records.dir.parent() else { return };
            self.under = Some(Box::new(Follower::new(&book.join(named))));
        }
        if let Some(under) = &mut self.under {
            under.poll();
        }
    }
}

impl Records {
    /// The phase; without progress, derived from the folder.
    pub(super) fn phase(&self) -> RunPhase {
        match (&self.ended, &self.progress) {
            // The document of a search may be of any trial; other runs write it only at their end.
            (Some(Ended::Capacity(_)), Some(progress)) if progress.phase == RunPhase::Killed => RunPhase::Killed,
            (Some(_), _) => RunPhase::Done,
            (None, Some(progress)) => progress.phase,
            (None, None) if self.is_dead => RunPhase::Killed,
            (None, None) => RunPhase::Starting,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || self.phase() == RunPhase::Killed
    }

    /// The document of the run.
    pub(super) fn document(&self) -> Option<&Document> {
        match &self.ended {
            Some(Ended::Run(document)) => Some(document),
            _ => None,
        }
    }

    /// The validity at the end, or provisional during the run.
    pub(super) fn validity(&self) -> Option<&Validity> {
        match &self.ended {
            Some(Ended::Run(document)) => Some(&document.validity),
            Some(Ended::Capacity(document)) => Some(&document.validity),
            Some(Ended::Gateway(document)) => Some(&document.validity),
            Some(Ended::Predict(document)) => Some(&document.validity),
            Some(Ended::Disk(document)) => Some(&document.validity),
            Some(Ended::Reproduction(document)) => Some(&document.validity),
            Some(Ended::Compare(document)) => Some(&document.validity),
            Some(Ended::Unreadable(_)) => None,
            None => self.progress.as_ref().and_then(|progress| progress.validity.as_ref()),
        }
    }
}

/// Adds new rows; the complete table replaces rows read during the run.
fn take<R: schema::Record>(tail: &mut Tail<R>, rows: &mut Vec<R>, missing: &mut Vec<String>, name: &str) {
    match tail.poll() {
        Ok(fresh) => {
            if fresh.replaces_earlier {
                rows.clear();
            }
            rows.extend(fresh.rows);
            if rows.len() > SECONDS_MAX {
                rows.drain(..rows.len() - SECONDS_MAX);
            }
        }
        Err(error) => add_sentence(missing, format!("{name} could not be read: {error}")),
    }
}

/// Adds a text once.
fn add_sentence(missing: &mut Vec<String>, sentence: String) {
    if missing.len() < MISSING_MAX && !missing.contains(&sentence) {
        missing.push(sentence);
    }
}

fn summary_stamp(dir: &Path) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(dir.join("summary.json")).ok()?;
    Some((found.modified().ok()?, found.len()))
}

fn read_ended(dir: &Path) -> Ended {
    let read = || -> Result<Ended> {
        if let Some(document) = store::read_capacity(dir)? {
            return Ok(Ended::Capacity(Box::new(document)));
        }
        if let Some(document) = store::read_gateway(dir)? {
            return Ok(Ended::Gateway(Box::new(document)));
        }
        if let Some(document) = store::read_predict(dir)? {
            return Ok(Ended::Predict(Box::new(document)));
        }
        if let Some(document) = store::read_disk(dir)? {
            return Ok(Ended::Disk(Box::new(document)));
        }
        if let Some(document) = store::read_reproduction(dir)? {
            return Ok(Ended::Reproduction(Box::new(document)));
        }
        if let Some(document) = store::read_compare(dir)? {
            return Ok(Ended::Compare(Box::new(document)));
        }
        store::read_summary(dir).map(|document| Ended::Run(Box::new(document)))
    };
    read().unwrap_or_else(|error| Ended::Unreadable(error.to_string()))
}

/// The name of a sibling folder; never a path.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(part)), None) if part == name)
}

/// Most sentences about parts that could not be read.
const MISSING_MAX: usize = 8;
/// Seconds in memory of a long run: the newest day.
const SECONDS_MAX: usize = 86_400;
