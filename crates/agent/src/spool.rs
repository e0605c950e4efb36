//! The spool: sealed batches on disk, until the manager has them.
//!
//! ```text
//!   recorder ──seal──▶ 00000000000000000007.batch  ..8  ..9 ──oldest──▶ sender ──stored──▶ removed
//!                          │ beyond the limit: truncated after its head, so that only its counts are left
//!                          └ refused: a copy into refused/, then the same
//! ```
//!
//! File numbers are never reused; a stream's batch n is file `after + n`. A new stream ([`Stream`]) therefore changes
//! no file. The first bytes of the newest file stay after the manager stored it: they record which journal entries
//! are sealed.
//!
//! **Bounded.** Waiting rows take at most the limit, and the number of batches is limited ([`batches_max`]). Beyond,
//! new rows join the newest batch as counts. The newest batch is never the one being sent, which is the oldest.

mod file;
mod index;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::ClockReading;
use crate::disk::{Disk, Durability, is_full};
use crate::text::hexadecimal;
pub(crate) use file::{Meta, SpoolFile};
use index::{Index, Item};
use tap_protocol::{Batch, Gauges, SpoolUsage};

/// The spool, shared by recorder and sender.
#[derive(Debug)]
pub(crate) struct Spool {
    disk: Disk,
    refused: Disk,
    bytes_max: u64,
    state: Mutex<State>,
    /// Signals that a batch was sealed, or that the agent ends.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    index: Index,
    stream: Stream,
    /// The newest file at the start of the agent: an earlier agent may have sent it.
    newest_at_start: u64,
    /// The newest file that this agent has started to send.
    newest_tried: u64,
    is_ending: bool,
    /// Rows dropped since the start.
    rows_dropped: u64,
}

/// The stream of the batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// 32 hexadecimal digits.
    pub id: String,
    /// Name of the agent.
    pub name: String,
    /// File number before the first file of the stream.
    pub after: u64,
    /// Rows of all files up to that one.
    pub rows_before: u64,
    /// Seed for sampling connections. It stays with the folder, so that a new stream does not split a connection.
    pub seed: u64,
}

/// A batch to be sent.
#[derive(Clone, Debug)]
pub(crate) struct PendingBatch {
    /// The file's number.
    pub number: u64,
    /// The stream.
    pub stream: String,
    /// Number in the stream.
    pub sequence: u64,
    /// Rows that were sealed in the stream's batches before this one, and with it; dropped ones too.
    pub sealed_rows: (u64, u64),
    /// JSON in gzip.
    pub body: Vec<u8>,
    /// Rows in the body; 0 if they were dropped.
    pub rows: u64,
    /// Boot whose zero the times count from.
    pub boot: String,
    /// When it was sealed.
    pub clock: ClockReading,
    /// Whether the file was truncated after its head.
    pub is_truncated: bool,
}

/// Relation of the spool to the manager's position in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFit {
    /// The oldest waiting batch is next, or none waits.
    Continues,
    /// The manager lacks batches that are no longer in the spool: it is another manager, or has lost data. A new stream
    /// was started.
    ManagerBehind,
    /// The manager has more than this folder has ever sent: the folder is an older copy, or a copy is in use. A new
    /// stream was started, and this number of rows of the batches found at the start was dropped, since they may
    /// already be stored.
    ManagerAhead(u64),
}

impl Stream {
    /// Sets stream and number of a batch whose file has its number.
    fn assign_number(&self, batch: &mut Batch, meta: &mut Meta) {
        batch.stream.clone_from(&self.id);
        batch.sequence = meta.number - self.after;
        (meta.stream, meta.sequence) = (batch.stream.clone(), batch.sequence);
    }
}

impl Spool {
    /// Opens the spool of the agent `name` in `disk`'s folder, or creates one, with a limit in bytes. `notes`
    /// receives reports of repairs. A stream of another name is replaced by a new one.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn open(disk: &Disk, name: &str, bytes_max: u64, notes: &mut dyn FnMut(String)) -> io::Result<Spool> {
        let disk = disk.below("spool")?;
        let refused = disk.below("refused")?;
        let index = Index::read(&disk, notes)?;
        let stream = disk.get(STREAM, 4096)?.and_then(|bytes| serde_json::from_slice::<Stream>(&bytes).ok());
        let stream = match stream.filter(|stream| stream.after <= index.last().number && stream.name == name) {
            Some(stream) => stream,
            None => {
                let (after, rows_before) = beginning(&disk, &index)?;
                let seed = u64::from_le_bytes(random()?);
                let stream = Stream { id: random_id()?, name: name.to_owned(), after, rows_before, seed };
                disk.put(STREAM, &serde_json::to_vec(&stream)?, Durability::Yes)?;
                stream
            }
        };
        let newest_at_start = index.last().number;
        let state = State { index, stream, newest_at_start, newest_tried: 0, is_ending: false, rows_dropped: 0 };
        let spool = Spool { disk, refused, bytes_max, state: Mutex::new(state), changed: Condvar::new() };
        spool.enforce_limit(&mut spool.state())?;
        Ok(spool)
    }

    /// Seals a batch and sets its stream and number. `meta` has the index data of its file.
    ///
    /// On a full disk the oldest batches lose their rows.
    ///
    /// # Errors
    /// No space even without the oldest rows, or the disk failed: the batch was not sealed.
    pub fn seal(&self, batch: &mut Batch, meta: &mut Meta) -> io::Result<()> {
        let mut state = self.state();
        let last = state.index.last().clone();
        let sealed = if state.index.waiting() >= batches_max(self.bytes_max) {
            // The newest batch takes these counts. It was never sent, since it is not the oldest.
            let older = self.read_file(last.number)?.batch()?;
            let drop_oldest_rows = meta.rows + if state.index.has_rows(last.number) { last.rows } else { 0 };
            let mut joined = file::without_rows(batch);
            file::add_counts(&mut joined, &older);
            let rows = meta.rows + last.rows;
            *meta = Meta { number: last.number, rows_before: last.rows_before, rows, ..meta.clone() };
            state.stream.assign_number(&mut joined, meta);
            let sealed = file::Sealed::new(meta, &joined, true);
            let outcome = self.write_or_drop_rows(&mut state, meta, &sealed.bytes);
            if outcome.is_err() {
                // The call is retried later.
                meta.rows -= last.rows;
            }
            outcome?;
            state.rows_dropped += drop_oldest_rows;
            sealed
        } else {
            (meta.number, meta.rows_before) = (last.number + 1, last.rows_before + last.rows);
            state.stream.assign_number(batch, meta);
            let sealed = file::Sealed::new(meta, batch, false);
            self.write_or_drop_rows(&mut state, meta, &sealed.bytes)?;
            sealed
        };
        state.index.put(Item::new(meta, &sealed), meta.clone());
        // Rows beyond the limit that cannot be dropped now are dropped with the next batch.
        let _ = self.enforce_limit(&mut state);
        self.changed.notify_all();
        Ok(())
    }

    /// Drops the oldest rows until the file fits.
    fn write_or_drop_rows(&self, state: &mut State, meta: &Meta, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.disk.put(&file::name(meta.number), bytes, Durability::Yes) {
                Err(error) if is_full(&error) => {
                    if !self.drop_rows_of_oldest(state)? {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Drops the oldest waiting rows; `false` if there are none.
    ///
    /// # Errors
    /// The disk failed.
    pub fn drop_oldest_rows(&self) -> io::Result<bool> {
        self.drop_rows_of_oldest(&mut self.state())
    }

    fn enforce_limit(&self, state: &mut State) -> io::Result<()> {
        while state.index.bytes() > self.bytes_max && self.drop_rows_of_oldest(state)? {}
        Ok(())
    }

    fn drop_rows_of_oldest(&self, state: &mut State) -> io::Result<bool> {
        let Some(number) = state.index.oldest_with_rows() else { return Ok(false) };
        self.truncate(state, number)?;
        Ok(true)
    }

    /// Truncates a batch after its head. This needs no disk space and is atomic.
    fn truncate(&self, state: &mut State, number: u64) -> io::Result<()> {
        let Some(item) = state.index.get(number) else { return Ok(()) };
        self.disk.truncate_file(&file::name(number), item.head)?;
        state.rows_dropped += state.index.truncate(number);
        Ok(())
    }

    /// The next batch to send. With `counts_only` it has only its counts, for a manager that rejects the rest.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn oldest(&self, counts_only: bool) -> io::Result<Option<PendingBatch>> {
        let mut state = self.state();
        let Some(item) = state.index.oldest().cloned() else { return Ok(None) };
        state.newest_tried = state.newest_tried.max(item.number);
        let spool_file = self.read_file(item.number)?;
        let sequence = item.number - state.stream.after;
        let is_unchanged = spool_file.meta.stream == state.stream.id && spool_file.meta.sequence == sequence;
        let body = if is_unchanged && !item.is_truncated && !counts_only {
            spool_file.body
        } else {
            let mut batch = spool_file.batch()?;
            batch.stream.clone_from(&state.stream.id);
            batch.sequence = sequence;
            if item.is_truncated {
                batch.losses.rows_dropped += spool_file.meta.rows;
            }
            if counts_only {
                batch.programs.clear();
                batch.gauges = Gauges::default();
            }
            file::compressed(&batch)
        };
        let rows_before = spool_file.meta.rows_before.saturating_sub(state.stream.rows_before);
        Ok(Some(PendingBatch {
            number: item.number,
            stream: state.stream.id.clone(),
            sequence,
            sealed_rows: (rows_before, rows_before + spool_file.meta.rows),
            body,
            rows: if item.is_truncated { 0 } else { item.rows },
            boot: spool_file.meta.boot,
            clock: spool_file.meta.clock,
            is_truncated: item.is_truncated,
        }))
    }

    fn read_file(&self, number: u64) -> io::Result<SpoolFile> {
        read_file(&self.disk, number)
    }

    /// The manager has all batches through this file.
    ///
    /// # Errors
    /// A file cannot be removed: it is sent again, and the manager rejects the duplicate.
    pub fn stored(&self, through: u64) -> io::Result<()> {
        let mut state = self.state();
        let newest = state.index.last().number;
        // Written first: the remaining files may start late but have no gap.
        if let Some(confirmed) = state.index.confirmed_newest.filter(|confirmed| *confirmed < newest) {
            self.disk.remove(&file::name(confirmed))?;
            state.index.confirmed_newest = None;
        }
        while let Some(item) = state.index.oldest().cloned().filter(|item| item.number <= through) {
            if item.number == newest {
                self.disk.truncate_file(&file::name(newest), item.meta_end)?;
                state.index.confirmed_newest = Some(newest);
            } else {
                self.disk.remove(&file::name(item.number))?;
            }
            state.index.remove_oldest();
        }
        Ok(())
    }

    /// The manager rejects this batch: the file is moved aside for inspection, and its counts stay.
    ///
    /// # Errors
    /// The disk failed.
    pub fn set_aside(&self, number: u64) -> io::Result<()> {
        let mut state = self.state();
        let name = file::name(number);
        if let Some(bytes) = self.disk.get(&name, u64::MAX)? {
            let old = self.refused.names("", file::SUFFIX)?;
            for old in old.iter().take((old.len() + 1).saturating_sub(REFUSED_MAX)) {
                self.refused.remove(old)?;
            }
            // Without space the copy is omitted: the rows are counted in any case.
            match self.refused.put(&name, &bytes, Durability::No) {
                Err(error) if !is_full(&error) => return Err(error),
                _ => {}
            }
        }
        self.truncate(&mut state, number)
    }

    /// The folder of rejected batches.
    pub fn refused(&self) -> &std::path::Path {
        self.refused.folder()
    }

    /// The manager has the stream through this number: removes stored batches, and starts a new stream if the spool
    /// cannot continue from there.
    ///
    /// # Errors
    /// The disk failed.
    pub fn resume_after(&self, stored_through: u64) -> io::Result<StreamFit> {
        let (after, sent, oldest) = {
            let state = self.state();
            let oldest = state.index.oldest().map_or(state.index.last().number + 1, |item| item.number);
            (state.stream.after, state.newest_at_start.max(state.newest_tried), oldest)
        };
        let through = after.saturating_add(stored_through);
        if through > sent {
            return self.start_separate_stream().map(StreamFit::ManagerAhead);
        }
        if through + 1 < oldest {
            let mut state = self.state();
            self.begin_stream(&mut state)?;
            return Ok(StreamFit::ManagerBehind);
        }
        self.stored(through)?;
        Ok(StreamFit::Continues)
    }

    /// A log has the stream at least through this number: removes these batches. What the log has discarded is gone for
    /// its readers too, and the numbers show it to them, so that the stream continues.
    ///
    /// # Errors
    /// The disk failed.
    pub fn resume_in_log(&self, stored_through: u64) -> io::Result<StreamFit> {
        let (after, sent) = {
            let state = self.state();
            (state.stream.after, state.newest_at_start.max(state.newest_tried))
        };
        let through = after.saturating_add(stored_through);
        if through > sent {
            return self.start_separate_stream().map(StreamFit::ManagerAhead);
        }
        self.stored(through)?;
        Ok(StreamFit::Continues)
    }

    /// Another agent has sent under this stream: starts a new one. Batches found at the start may belong to the other
    /// agent, so their rows are dropped; returns their number.
    ///
    /// # Errors
    /// The disk failed.
    pub fn start_separate_stream(&self) -> io::Result<u64> {
        let mut state = self.state();
        let newest_at_start = state.newest_at_start;
        let doubtful: Vec<u64> = state.index.numbers().filter(|number| *number <= newest_at_start).collect();
        let before = state.rows_dropped;
        for number in doubtful {
            if state.index.has_rows(number) {
                self.truncate(&mut state, number)?;
            }
        }
        let rows = state.rows_dropped - before;
        self.begin_stream(&mut state)?;
        Ok(rows)
    }

    fn begin_stream(&self, state: &mut State) -> io::Result<()> {
        let (after, rows_before) = beginning(&self.disk, &state.index)?;
        let stream = Stream { id: random_id()?, after, rows_before, ..state.stream.clone() };
        self.disk.put(STREAM, &serde_json::to_vec(&stream)?, Durability::Yes)?;
        state.stream = stream;
        Ok(())
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.state().stream.clone()
    }

    /// Index data of the newest batch. All zero if there was none.
    pub fn last(&self) -> Meta {
        self.state().index.last().clone()
    }

    /// Usage of the spool.
    pub fn usage(&self) -> SpoolUsage {
        let state = self.state();
        SpoolUsage {
            batches: state.index.waiting(),
            rows: state.index.rows(),
            bytes: state.index.bytes(),
            bytes_max: self.bytes_max,
            oldest: state.index.oldest().map_or(0, |item| item.number - state.stream.after),
        }
    }

    /// Rows dropped since the start.
    pub fn rows_dropped(&self) -> u64 {
        self.state().rows_dropped
    }

    /// Waits until there is a batch to send, or the agent ends; at most `timeout`. `false` if the agent ends.
    pub fn wait_for_batch(&self, timeout: Duration) -> bool {
        let must_wait = |state: &mut State| !state.is_ending && state.index.oldest().is_none();
        let state = self.state();
        let (state, _) =
            self.changed.wait_timeout_while(state, timeout, must_wait).unwrap_or_else(PoisonError::into_inner);
        !state.is_ending
    }

    /// Waits for this time, or until the agent ends: then `false`.
    pub fn pause(&self, timeout: Duration) -> bool {
        let state = self.state();
        let outcome = self.changed.wait_timeout_while(state, timeout, |state| !state.is_ending);
        !outcome.unwrap_or_else(PoisonError::into_inner).0.is_ending
    }

    /// Ends the agent: all waiting threads continue.
    pub fn end(&self) {
        self.state().is_ending = true;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // After a panic the index is still consistent: it is changed after the files.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of waiting batches: a file takes 4 KB of the disk, and all heads together at most a quarter of the
/// limit. Beyond 20,000 batches, round trips would dominate the recovery.
fn batches_max(bytes_max: u64) -> u64 {
    (bytes_max / (4 * index::BLOCK)).clamp(16, 20_000)
}

/// Where a new stream begins: the file before its first one, and the rows of all files up to that.
fn beginning(disk: &Disk, index: &Index) -> io::Result<(u64, u64)> {
    match index.oldest() {
        Some(item) => Ok((item.number - 1, read_file(disk, item.number)?.meta.rows_before)),
        None => Ok((index.last().number, index.last().rows_before + index.last().rows)),
    }
}

fn read_file(disk: &Disk, number: u64) -> io::Result<SpoolFile> {
    let name = file::name(number);
    let bytes = disk.get(&name, u64::MAX)?.unwrap_or_default();
    SpoolFile::read(bytes).ok_or_else(|| damaged(&name))
}

fn damaged(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} in the spool was changed by another program"))
}

fn random_id() -> io::Result<String> {
    Ok(hexadecimal(&random::<16>()?))
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bytes)
        .map_err(|_| io::Error::other("the kernel returned no random bytes"))?;
    Ok(bytes)
}

const STREAM: &str = "stream.json";
/// Maximum number of batches in refused/.
const REFUSED_MAX: usize = 20;
