//! The state that journal entries produce: the same each time they are applied. It uses no clock, and no file except
//! the spool.

use std::collections::VecDeque;
use std::io;

use schema::TapExchange;
use tap::daemon_state::{DaemonState, Entry};

use super::{LocalOptions, Record};
use crate::bounds;
use crate::clock::ClockReading;
use crate::selection::{RowSelector, Selection};
use crate::snapshot::Snapshot;
use crate::spool::{Meta, Spool};
use schema::TapRow;
use tap_protocol::{Batch, Gauges, Losses, PROGRAMS_MAX, Program, Settings};

/// The state of the tap, the selection of rows, and the open batch.
#[derive(Debug)]
pub(super) struct Core {
    /// The state; [`Snapshot::through`] is the last applied entry.
    state: Snapshot,
    selector: RowSelector,
    rows: Vec<TapRow>,
    losses: Losses,
    /// Sealed batches that are not in the spool yet.
    outbox: VecDeque<(Batch, Meta)>,
    /// Rows of a batch.
    rows_max: usize,
    /// Number of entries whose rows are in the spool, and number of such rows of the next entry.
    sealed: (u64, u64),
    counts: Counts,
    /// Rows of the current entry.
    exchanges: Vec<TapExchange>,
}

/// Row counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Recorded rows.
    pub recorded: u64,
    /// Rows excluded by the filter.
    pub filtered: u64,
    /// Rows of connections that were not sampled.
    pub not_drawn: u64,
}

impl Core {
    /// Resumes from a snapshot.
    pub fn new(state: Snapshot, seed: u64, options: &LocalOptions) -> Core {
        let selector = RowSelector::new(&state.settings, seed, options.key.as_ref());
        Core {
            state,
            selector,
            rows: Vec::new(),
            losses: Losses::default(),
            outbox: VecDeque::new(),
            rows_max: options.rows_max,
            sealed: (0, 0),
            counts: Counts::default(),
            exchanges: Vec::new(),
        }
    }

    /// Skips the rows of entries up to this one, and this number of rows of the next.
    pub fn sealed_through(&mut self, entry: u64, partial: u64) {
        self.sealed = (entry, partial);
    }

    /// Replaces the state of the tap, which is unusable.
    pub fn replace_tap_state(&mut self, tap_state: DaemonState) {
        self.state.tap = tap_state;
    }

    /// Applies an entry.
    pub fn apply(&mut self, number: u64, record: Record) {
        match record {
            Record::Round { clock, entry } => {
                self.state.clock = clock;
                self.collect(number, *entry);
            }
            Record::Seal(clock) => {
                self.state.clock = clock;
                self.seal(number);
            }
            Record::Settings(settings) => {
                self.selector.apply_settings(&settings);
                self.state.settings = settings;
            }
            Record::Boot(boot) => {
                // The open connections and rows belong to the previous boot, and get its last time.
                if !self.state.boot.is_empty() {
                    self.collect(number, Entry::end());
                    self.seal(number);
                }
                self.state.boot = boot;
            }
        }
        self.state.through = number;
    }

    /// Writes sealed batches to the spool.
    ///
    /// # Errors
    /// Batches that could not be written wait.
    pub fn flush(&mut self, spool: &Spool) -> io::Result<()> {
        while let Some((batch, meta)) = self.outbox.front_mut() {
            spool.seal(batch, meta)?;
            self.outbox.pop_front();
        }
        Ok(())
    }

    fn collect(&mut self, number: u64, entry: Entry) {
        let mut exchanges = std::mem::take(&mut self.exchanges);
        self.state.tap.apply_owned(entry, &mut exchanges);
        if number > self.sealed.0 {
            self.select(number, &exchanges);
        }
        exchanges.clear();
        self.exchanges = exchanges;
    }

    fn select(&mut self, number: u64, exchanges: &[TapExchange]) {
        let mut counts = Counts { recorded: exchanges.len() as u64, ..Counts::default() };
        let mut selected = Vec::with_capacity(exchanges.len());
        for exchange in exchanges {
            match self.selector.select(exchange) {
                Selection::Row(mut row) => {
                    bounds::row(&mut row, self.state.clock.at_ns);
                    selected.push(row);
                }
                Selection::Filtered => counts.filtered += 1,
                Selection::NotSampled => counts.not_drawn += 1,
            }
        }
        let (through, partial) = self.sealed;
        let already_sealed = if number == through + 1 { partial } else { 0 };
        if already_sealed > 0 || self.rows.len() + selected.len() > self.rows_max {
            // The order of an entry's rows is not defined, so they are sorted: the position tells which are already
            // sealed.
            selected.sort_by_cached_key(|row| serde_json::to_string(row).unwrap_or_default());
        }
        let mut position = 0;
        for row in selected {
            position += 1;
            if position <= already_sealed {
                continue;
            }
            if self.rows.len() >= self.rows_max {
                // The batch has the losses of the earlier entries, which are not applied again for their rows.
                let losses = std::mem::take(&mut self.losses);
                self.put_in_outbox(number - 1, position - 1, losses, Vec::new());
            }
            self.rows.push(row);
        }
        // Losses of this entry are counted with the last of its rows.
        self.losses.rows_filtered += counts.filtered;
        self.losses.rows_not_drawn += counts.not_drawn;
        self.counts.recorded += counts.recorded;
        self.counts.filtered += counts.filtered;
        self.counts.not_drawn += counts.not_drawn;
    }

    fn seal(&mut self, number: u64) {
        // The calls are made even if the entry is already sealed: the counts are since the last call.
        let lost = self.state.tap.take_lost();
        let programs = self.state.tap.take_programs();
        if number <= self.sealed.0 {
            return;
        }
        let counted = std::mem::take(&mut self.losses);
        let (records, connections_left_out) =
            (bounds::clamped(lost.records), bounds::clamped(lost.connections_left_out));
        let losses = Losses { records, connections_left_out, ..counted };
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
        self.put_in_outbox(number, 0, losses, programs);
    }

    fn put_in_outbox(&mut self, through: u64, partial: u64, losses: Losses, programs: Vec<Program>) {
        let rows = std::mem::take(&mut self.rows);
        let state = &self.state;
        let meta = Meta {
            rows: rows.len() as u64,
            through,
            partial,
            boot: state.boot.clone(),
            clock: state.clock,
            ..Meta::default()
        };
        let batch = Batch {
            // The spool sets these.
            stream: String::new(),
            sequence: 0,
            boot: state.boot.clone(),
            zero_own_unix_ns: state.clock.zero_own_unix_ns,
            sealed_at_ns: state.clock.at_ns,
            settings: state.settings.version,
            share: state.settings.share,
            gauges: self.gauges(),
            losses,
            programs,
            rows,
        };
        self.outbox.push_back((batch, meta));
    }

    /// The contents of a snapshot. Must not be called while rows wait outside the spool.
    pub fn snapshot(&self, last: u64) -> &Snapshot {
        debug_assert!(self.rows.is_empty() && self.outbox.is_empty() && self.state.through == last);
        &self.state
    }

    /// Whether the open batch has rows or losses.
    pub fn has_rows_or_losses(&self) -> bool {
        !self.rows.is_empty() || self.losses != Losses::default()
    }

    /// Whether the open batch has the target number of rows.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= self.rows_max
    }

    pub fn tap_state(&self) -> &DaemonState {
        &self.state.tap
    }

    pub fn boot(&self) -> &str {
        &self.state.boot
    }

    /// Clock reading of the last entry.
    pub fn clock(&self) -> ClockReading {
        self.state.clock
    }

    pub fn settings(&self) -> &Settings {
        &self.state.settings
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn gauges(&self) -> Gauges {
        let gauges = self.state.tap.gauges();
        Gauges { processes: gauges.processes, open: gauges.open, in_flight: gauges.in_flight }
    }
}
