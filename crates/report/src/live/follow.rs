//! A run's folder, read again and again: only what is new of its tables, its standing, and in the end its document.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use schema::document::Validity;
use schema::{
    CapacityDocument, CompareDocument, DiskDocument, DistributionRecord, Document, GatewayDocument, PredictDocument,
    ReproductionDocument, RunPhase, RunProgress, SecondRecord, ServerSecond, WatchSecond,
};
use store::{Result, RunEntry, RunState, Tail};

use super::heat::Spread;
use super::state::State;
use super::{run, suite};
use crate::export::Figures;

/// Reads one run's folder, and that of the run under way where the run is made up of several.
pub struct Follower {
    series: Tail<SecondRecord>,
    watch: Tail<WatchSecond>,
    server: Tail<ServerSecond>,
    distributions: Tail<DistributionRecord>,
    records: Records,
    /// Of the document as it was read: its age and length; `None` too while the run goes on.
    summary: Option<(SystemTime, u64)>,
    under: Option<Box<Follower>>,
}

/// What a folder holds, as far as it was read.
#[derive(Default)]
pub(super) struct Records {
    pub(super) id: String,
    pub(super) dir: PathBuf,
    pub(super) standing: Option<RunProgress>,
    /// Its document; `None` while it goes on, even where a document is there.
    pub(super) ended: Option<Ended>,
    pub(super) series: Vec<SecondRecord>,
    pub(super) watch: Vec<WatchSecond>,
    /// The first second of the wire that was seen, though it may have gone since: the axis is not to wander.
    pub(super) wire_first: Option<u64>,
    pub(super) server: Vec<ServerSecond>,
    pub(super) spread: Spread,
    /// What could not be read, a sentence each.
    pub(super) missing: Vec<String>,
    /// It was killed before runs said how they stand.
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
    /// It is there and this version cannot read it.
    Unreadable(String),
}

impl Follower {
    /// Of the run in `dir`, which may not have begun to write.
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

    /// Reads how it stands and how it ended, and no tables: enough for a line in a list.
    pub(super) fn look_without_tables(&mut self) {
        let ended = summary_stamp(&self.records.dir);
        self.look_at_standing(ended);
    }

    /// Where it is.
    pub(super) fn phase(&self) -> RunPhase {
        self.records.phase()
    }

    /// Reads what is new. What cannot be read is told in the state, and the rest stands.
    pub fn look(&mut self) {
        // The document last: a run that ends between two looks has its whole tables before it has that, and a table that is
        // read before it may be one that still grows.
        let ended = summary_stamp(&self.records.dir);
        self.look_at_tables();
        self.look_at_standing(ended);
        self.look_under();
    }

    fn look_at_tables(&mut self) {
        let records = &mut self.records;
        take(&mut self.series, &mut records.series, &mut records.missing, "series");
        take(&mut self.watch, &mut records.watch, &mut records.missing, "watch_series");
        records.wire_first = records.watch.first().map(|row| row.second).into_iter().chain(records.wire_first).min();
        take(&mut self.server, &mut records.server, &mut records.missing, "server_series");
        match self.distributions.poll() {
            Ok(fresh) => {
                if fresh.anew {
                    records.spread.clear();
                }
                records.spread.add(fresh.rows);
            }
            Err(error) => tell(&mut records.missing, format!("distributions could not be read: {error}")),
        }
    }

    fn look_at_standing(&mut self, ended: Option<(SystemTime, u64)>) {
        match store::read_progress(&self.records.dir) {
            Ok(standing) => self.records.standing = standing,
            Err(error) => {
                tell(&mut self.records.missing, format!("progress.json could not be read: {error}"));
                // What it said before is no longer to be held against a document.
                if ended.is_some() {
                    self.records.standing = None;
                }
            }
        }
        // A search for a capacity writes its document after every trial: it is the end only when the standing says so too.
        let goes_on = self.records.standing.as_ref().is_some_and(|standing| !standing.phase.is_over());
        let ended = ended.filter(|_| !goes_on);
        if ended != self.summary {
            self.records.ended = ended.map(|_| read_ended(&self.records.dir));
            self.summary = ended;
        }
        let records = &mut self.records;
        if records.standing.is_none() && records.ended.is_none() && !records.is_dead {
            let entry = RunEntry::look(&records.dir);
            records.is_dead = entry.is_ok_and(|entry| matches!(entry.state, RunState::Unfinished { .. }));
        }
    }

    /// What there is to see.
    pub fn state(&self) -> State {
        let under = self.under.as_ref().map(|under| &under.records);
        if suite::is_one(&self.records) { suite::state(&self.records, under) } else { run::state(&self.records) }
    }

    /// What a scrape is told, of what was read at the last look: the run's figures, or those of the run under way where it is
    /// made up of several.
    pub fn figures(&self) -> Figures {
        let records = self.under.as_ref().map_or(&self.records, |under| &under.records);
        let figures = match (records.document(), &records.standing) {
            (Some(document), _) => Figures::of_document(document),
            (None, Some(standing)) => Figures::of_standing(standing),
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

    /// Whether nothing will change any more.
    pub fn is_over(&self) -> bool {
        self.records.is_over()
    }

    /// Follows the run that is under way, which is in the same book.
    fn look_under(&mut self) {
        let named = self.records.standing.as_ref().filter(|_| !self.records.is_over()).and_then(|s| s.under.as_deref());
        let Some(named) = named.filter(|named| is_plain(named)) else {
            self.under = None;
            return;
        };
        if self.under.as_ref().is_none_or(|under| under.records.id != named) {
            let Some(book) = self.records.dir.parent() else { return };
            self.under = Some(Box::new(Follower::new(&book.join(named))));
        }
        if let Some(under) = &mut self.under {
            under.look();
        }
    }
}

impl Records {
    /// Where it is; of a run without a standing, from what its folder shows.
    pub(super) fn phase(&self) -> RunPhase {
        match (&self.ended, &self.standing) {
            // Its document may be of any of its trials; others write theirs at their end alone.
            (Some(Ended::Capacity(_)), Some(standing)) if standing.phase == RunPhase::Killed => RunPhase::Killed,
            (Some(_), _) => RunPhase::Done,
            (None, Some(standing)) => standing.phase,
            (None, None) if self.is_dead => RunPhase::Killed,
            (None, None) => RunPhase::Starting,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.is_some() || self.phase() == RunPhase::Killed
    }

    /// The run's own document.
    pub(super) fn document(&self) -> Option<&Document> {
        match &self.ended {
            Some(Ended::Run(document)) => Some(document),
            _ => None,
        }
    }

    /// Whether to believe it: as it ended, else as it stands.
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
            None => self.standing.as_ref().and_then(|standing| standing.validity.as_ref()),
        }
    }
}

/// Adds the rows that are new; the table as it is in the end takes the place of what was read while it grew.
fn take<R: schema::Record>(tail: &mut Tail<R>, rows: &mut Vec<R>, missing: &mut Vec<String>, name: &str) {
    match tail.poll() {
        Ok(fresh) => {
            if fresh.anew {
                rows.clear();
            }
            rows.extend(fresh.rows);
            if rows.len() > ROWS_MAX {
                rows.drain(..rows.len() - ROWS_MAX);
            }
        }
        Err(error) => tell(missing, format!("{name} could not be read: {error}")),
    }
}

/// Says it once, however often it is come upon.
fn tell(missing: &mut Vec<String>, sentence: String) {
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

/// The name of a folder beside this one, and no way elsewhere.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(part)), None) if part == name)
}

/// Sentences on what could not be read.
const MISSING_MAX: usize = 8;
/// Seconds that are kept of a run that goes on for days: the newest day.
const ROWS_MAX: usize = 86_400;
