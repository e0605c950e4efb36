//! What entries make: the same whenever they are applied. No file but the spool's, no clock.

use std::collections::VecDeque;
use std::io;

use schema::TapExchange;
use tap::standing::{Entry, Standing};

use super::{Record, Ways};
use crate::bounds;
use crate::choose::{Choice, Chooser};
use crate::clock::Moment;
use crate::snapshot::Snapshot;
use crate::spool::{Meta, Spool};
use schema::TapRow;
use tap_protocol::{Batch, Lacks, Levels, PROGRAMS_MAX, Program, Settings};

/// The collector, what is chosen of its rows, and the batch that is open.
#[derive(Debug)]
pub(super) struct Core {
    /// [`Snapshot::through`] is the last entry.
    state: Snapshot,
    chooser: Chooser,
    rows: Vec<TapRow>,
    lacks: Lacks,
    /// Sealed, and not in the spool yet.
    outbox: VecDeque<(Batch, Meta)>,
    /// Entries whose rows the spool has, and how many of the one after them.
    sealed: (u64, u64),
    counts: Counts,
    /// Rows of this entry.
    made: Vec<TapExchange>,
}

/// What became of rows, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Rows that were made.
    pub made: u64,
    /// Left out by the filter.
    pub filtered: u64,
    /// Of connections that were not drawn.
    pub not_drawn: u64,
}

impl Core {
    /// Goes on from a snapshot.
    pub fn new(state: Snapshot, seed: u64, ways: &Ways) -> Core {
        let chooser = Chooser::new(&state.settings, seed, ways.key.as_ref());
        Core {
            state,
            chooser,
            rows: Vec::new(),
            lacks: Lacks::default(),
            outbox: VecDeque::new(),
            sealed: (0, 0),
            counts: Counts::default(),
            made: Vec::new(),
        }
    }

    /// Rows of entries up to this one, and so many of the next, are not made again.
    pub fn sealed_through(&mut self, entry: u64, partial: u64) {
        self.sealed = (entry, partial);
    }

    /// The collector's state cannot be gone on from.
    pub fn forget(&mut self, standing: Standing) {
        self.state.standing = standing;
    }

    /// Does what the entry says.
    pub fn apply(&mut self, number: u64, record: Record) {
        match record {
            Record::Round { moment, entry } => {
                self.state.moment = moment;
                self.collect(number, *entry);
            }
            Record::Seal(moment) => {
                self.state.moment = moment;
                self.seal(number);
            }
            Record::Settings(settings) => {
                self.chooser.go_by(&settings);
                self.state.settings = settings;
            }
            Record::Boot(boot) => {
                // Of the boot before, with its last moment.
                if !self.state.boot.is_empty() {
                    self.collect(number, Entry::end());
                    self.seal(number);
                }
                self.state.boot = boot;
            }
        }
        self.state.through = number;
    }

    /// Hands what was sealed to the spool.
    ///
    /// # Errors
    /// What could not be written waits.
    pub fn flush(&mut self, spool: &Spool) -> io::Result<()> {
        while let Some((batch, meta)) = self.outbox.front_mut() {
            spool.seal(batch, meta)?;
            self.outbox.pop_front();
        }
        Ok(())
    }

    fn collect(&mut self, number: u64, entry: Entry) {
        let mut made = std::mem::take(&mut self.made);
        self.state.standing.consume(entry, &mut made);
        if number > self.sealed.0 {
            self.choose(number, &made);
        }
        made.clear();
        self.made = made;
    }

    fn choose(&mut self, number: u64, made: &[TapExchange]) {
        let mut counts = Counts { made: made.len() as u64, ..Counts::default() };
        let mut chosen = Vec::with_capacity(made.len());
        for exchange in made {
            match self.chooser.choose(exchange) {
                Choice::Row(mut row) => {
                    bounds::row(&mut row, self.state.moment.at_ns);
                    chosen.push(row);
                }
                Choice::Filtered => counts.filtered += 1,
                Choice::NotDrawn => counts.not_drawn += 1,
            }
        }
        let (through, partial) = self.sealed;
        let done = if number == through + 1 { partial } else { 0 };
        if done > 0 || self.rows.len() + chosen.len() > ROWS_MAX {
            // The collector gives the rows of an entry in any order, and some of them are to be told from the others by their place.
            chosen.sort_by_cached_key(|row| serde_json::to_string(row).unwrap_or_default());
        }
        let mut told = 0;
        for row in chosen {
            told += 1;
            if told <= done {
                continue;
            }
            if self.rows.len() >= ROWS_MAX {
                // With what was counted of the entries before: these are not applied for their rows again.
                let lacks = std::mem::take(&mut self.lacks);
                self.put_in_outbox(number - 1, told - 1, lacks, Vec::new());
            }
            self.rows.push(row);
        }
        // What this entry lacks is counted with the last of its rows.
        self.lacks.rows_filtered += counts.filtered;
        self.lacks.rows_not_drawn += counts.not_drawn;
        self.counts.made += counts.made;
        self.counts.filtered += counts.filtered;
        self.counts.not_drawn += counts.not_drawn;
    }

    fn seal(&mut self, number: u64) {
        // Also of one that is sealed already: these counts are since the last time that somebody asked.
        let lost = self.state.standing.take_lost();
        let programs = self.state.standing.take_programs();
        if number <= self.sealed.0 {
            return;
        }
        let counted = std::mem::take(&mut self.lacks);
        let (records, connections_left_out) =
            (bounds::bounded(lost.records), bounds::bounded(lost.connections_left_out));
        let lacks = Lacks { records, connections_left_out, ..counted };
        let programs = programs.into_iter().take(PROGRAMS_MAX).map(|change| {
            let mut program = Program {
                name: change.name,
                seen: change.seen,
                unseen: change.unseen,
                connections: change.connections,
                unseen_bytes: change.unseen_bytes,
                why: change.why,
            };
            bounds::program(&mut program);
            program
        });
        let programs = programs.collect();
        self.put_in_outbox(number, 0, lacks, programs);
    }

    fn put_in_outbox(&mut self, through: u64, partial: u64, lacks: Lacks, programs: Vec<Program>) {
        let rows = std::mem::take(&mut self.rows);
        let state = &self.state;
        let meta = Meta {
            rows: rows.len() as u64,
            through,
            partial,
            boot: state.boot.clone(),
            moment: state.moment,
            ..Meta::default()
        };
        let batch = Batch {
            // The spool knows these.
            stream: String::new(),
            sequence: 0,
            boot: state.boot.clone(),
            zero_own_unix_ns: state.moment.zero_own_unix_ns,
            sealed_at_ns: state.moment.at_ns,
            settings: state.settings.version,
            share: state.settings.share,
            levels: self.levels(),
            lacks,
            programs,
            rows,
        };
        self.outbox.push_back((batch, meta));
    }

    /// What a snapshot has. Where rows are not in the spool there is none to be had.
    pub fn snapshot(&self, last: u64) -> &Snapshot {
        debug_assert!(self.rows.is_empty() && self.outbox.is_empty() && self.state.through == last);
        &self.state
    }

    /// Whether the open batch has rows, or lacks some.
    pub fn has_news(&self) -> bool {
        !self.rows.is_empty() || self.lacks != Lacks::default()
    }

    /// Whether the open batch has as many rows as one should.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX
    }

    pub fn standing(&self) -> &Standing {
        &self.state.standing
    }

    pub fn boot(&self) -> &str {
        &self.state.boot
    }

    /// Of the last entry.
    pub fn moment(&self) -> Moment {
        self.state.moment
    }

    pub fn settings(&self) -> &Settings {
        &self.state.settings
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn levels(&self) -> Levels {
        let levels = self.state.standing.levels();
        Levels { processes: levels.processes, open: levels.open, in_flight: levels.in_flight }
    }
}

/// Rows of a batch: some 2 MB of JSON, a tenth of it packed; a fourth of what the manager takes. Tests have more batches of fewer.
const ROWS_MAX: usize = if cfg!(test) { 50 } else { 5_000 };
