//! The spool: sealed batches on disk, until the manager has them.
//!
//! ```text
//!   keeper ──seal──▶ 00000000000000000007.batch  ..8  ..9 ──oldest──▶ sender ──stored──▶ removed
//!                        │ beyond the bound: cut behind its head, so that a count of its rows is left
//!                        └ refused: a copy into refused/, then the same
//! ```
//!
//! Files are numbered for ever; a stream's batch n is file `after + n`. So a stream can be begun anew ([`Stream`]) without touching
//! a file. Of the newest file its first lines stay when the manager has it: they say which entries of the journal are sealed.
//!
//! **Bounded.** Rows that wait take at most the bound, and batches are at most so many ([`batches_max`]): beyond, what is
//! sealed joins the newest batch, as a count. That is never the one being sent, which is the oldest.

mod file;
mod index;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::disk::{Disk, Lasting, is_full};
use crate::text::hexadecimal;
pub(crate) use file::{Meta, Whole};
use index::{Index, Item};
use tap_protocol::{Batch, Levels, SpoolStand};

/// The spool. Keeper and sender share it.
#[derive(Debug)]
pub(crate) struct Spool {
    disk: Disk,
    refused: Disk,
    bytes_max: u64,
    state: Mutex<State>,
    /// A batch was sealed, or the agent ends.
    news: Condvar,
}

#[derive(Debug)]
struct State {
    index: Index,
    stream: Stream,
    /// The newest file there was when the agent started: an agent before it may have sent it.
    found: u64,
    /// The newest file that this agent has handed out to be sent.
    tried: u64,
    ends: bool,
    /// Rows that were let go, since the start.
    rows_dropped: u64,
}

/// Which stream the batches belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stream {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The agent whose it is.
    pub name: String,
    /// Number of the file before its first.
    pub after: u64,
    /// Draws connections: for as long as the folder lives, so that a new stream does not divide a connection.
    pub seed: u64,
}

/// A batch on its way.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The file's number.
    pub number: u64,
    /// Its number in the stream.
    pub sequence: u64,
    /// JSON in gzip.
    pub body: Vec<u8>,
    /// Rows in the body; 0 also where they were let go.
    pub rows: u64,
    /// The boot that its moments count from.
    pub boot: String,
    /// When it was sealed.
    pub moment: Moment,
    /// Whether it was cut behind its head.
    pub is_cut: bool,
}

/// What the manager's count of a stream means for the spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The oldest batch that waits is next, or none waits.
    GoesOn,
    /// The manager lacks batches that are not here any more: it is another one, or lost them. A new stream was begun.
    Lacks,
    /// The manager has more than was ever sent from here: the folder is an older copy of itself, or there is another copy of it at work. A
    /// new stream was begun, and the rows of the batches that were found at the start, so many, were let go, as they may be stored already.
    IsAhead(u64),
}

impl Stream {
    /// Writes stream and number into a batch whose file has its number.
    fn name(&self, batch: &mut Batch, meta: &mut Meta) {
        batch.stream.clone_from(&self.id);
        batch.sequence = meta.number - self.after;
        (meta.stream, meta.sequence) = (batch.stream.clone(), batch.sequence);
    }
}

impl Spool {
    /// Opens the spool of the agent `name` in `disk`'s folder, or begins one, with a bound in bytes. `notes` is told what was mended. A
    /// stream of another name is gone on from with a new one.
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
                let after = index.oldest().map_or(index.last().number, |item| item.number - 1);
                let stream =
                    Stream { id: random_id()?, name: name.to_owned(), after, seed: u64::from_le_bytes(random()?) };
                disk.put(STREAM, &serde_json::to_vec(&stream)?, Lasting::Yes)?;
                stream
            }
        };
        let found = index.last().number;
        let state = State { index, stream, found, tried: 0, ends: false, rows_dropped: 0 };
        let spool = Spool { disk, refused, bytes_max, state: Mutex::new(state), news: Condvar::new() };
        spool.keep_bound(&mut spool.state())?;
        Ok(spool)
    }

    /// Seals a batch, whose stream and number are set here. `meta` says what its file is found by.
    ///
    /// Where the disk is full the oldest batches lose their rows for it.
    ///
    /// # Errors
    /// There is no room even so, or the disk failed: then nothing was sealed.
    pub fn seal(&self, batch: &mut Batch, meta: &mut Meta) -> io::Result<()> {
        let mut state = self.state();
        let last = state.index.last().clone();
        let sealed = if state.index.waiting() >= batches_max(self.bytes_max) {
            // The newest becomes one with this, as counts: nobody was ever sent it, as it is not the oldest.
            let older = self.whole(last.number)?.batch()?;
            let let_go = meta.rows + if state.index.has_rows(last.number) { last.rows } else { 0 };
            let mut joined = file::head_of(batch);
            file::add_counts(&mut joined, &older);
            let rows = meta.rows + last.rows;
            *meta = Meta { number: last.number, rows_before: last.rows_before, rows, ..meta.clone() };
            state.stream.name(&mut joined, meta);
            let sealed = file::Sealed::new(meta, &joined, true);
            let outcome = self.put_or_make_room(&mut state, meta, &sealed.bytes);
            if outcome.is_err() {
                // It will be tried again.
                meta.rows -= last.rows;
            }
            outcome?;
            state.rows_dropped += let_go;
            sealed
        } else {
            (meta.number, meta.rows_before) = (last.number + 1, last.rows_before + last.rows);
            state.stream.name(batch, meta);
            let sealed = file::Sealed::new(meta, batch, false);
            self.put_or_make_room(&mut state, meta, &sealed.bytes)?;
            sealed
        };
        state.index.put(Item::new(meta, &sealed), meta.clone());
        // What is beyond the bound and cannot be let go now is, with the next.
        let _ = self.keep_bound(&mut state);
        self.news.notify_all();
        Ok(())
    }

    /// Lets go of the oldest rows until there is room for the file.
    fn put_or_make_room(&self, state: &mut State, meta: &Meta, bytes: &[u8]) -> io::Result<()> {
        loop {
            match self.disk.put(&file::name(meta.number), bytes, Lasting::Yes) {
                Err(error) if is_full(&error) => {
                    if !self.cut_oldest(state)? {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Lets go of the oldest rows that wait; `false` where there are none.
    ///
    /// # Errors
    /// The disk failed.
    pub fn let_go(&self) -> io::Result<bool> {
        self.cut_oldest(&mut self.state())
    }

    fn keep_bound(&self, state: &mut State) -> io::Result<()> {
        while state.index.bytes() > self.bytes_max && self.cut_oldest(state)? {}
        Ok(())
    }

    fn cut_oldest(&self, state: &mut State) -> io::Result<bool> {
        let Some(number) = state.index.oldest_with_rows() else { return Ok(false) };
        self.cut(state, number)?;
        Ok(true)
    }

    /// Cuts a batch behind its head. This needs no room and is done or not.
    fn cut(&self, state: &mut State, number: u64) -> io::Result<()> {
        let Some(item) = state.index.get(number) else { return Ok(()) };
        self.disk.cut_named(&file::name(number), item.head)?;
        state.rows_dropped += state.index.cut(number);
        Ok(())
    }

    /// The batch that is next to be sent; a `bare` one has its counts and nothing else, for a manager that takes nothing else of it.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn oldest(&self, bare: bool) -> io::Result<Option<Waiting>> {
        let mut state = self.state();
        let Some(item) = state.index.oldest().cloned() else { return Ok(None) };
        state.tried = state.tried.max(item.number);
        let whole = self.whole(item.number)?;
        let sequence = item.number - state.stream.after;
        let is_as_sealed = whole.meta.stream == state.stream.id && whole.meta.sequence == sequence;
        let body = if is_as_sealed && !item.is_cut && !bare {
            whole.body
        } else {
            let mut batch = whole.batch()?;
            batch.stream.clone_from(&state.stream.id);
            batch.sequence = sequence;
            if item.is_cut {
                batch.lacks.rows_dropped += whole.meta.rows;
            }
            if bare {
                batch.programs.clear();
                batch.levels = Levels::default();
            }
            file::packed(&batch)
        };
        Ok(Some(Waiting {
            number: item.number,
            sequence,
            body,
            rows: if item.is_cut { 0 } else { item.rows },
            boot: whole.meta.boot,
            moment: whole.meta.moment,
            is_cut: item.is_cut,
        }))
    }

    fn whole(&self, number: u64) -> io::Result<Whole> {
        let name = file::name(number);
        let bytes = self.disk.get(&name, u64::MAX)?.unwrap_or_default();
        Whole::read(bytes).ok_or_else(|| damaged(&name))
    }

    /// The manager has everything through this file.
    ///
    /// # Errors
    /// A file cannot be removed: it is sent again, and not taken again.
    pub fn stored(&self, through: u64) -> io::Result<()> {
        let mut state = self.state();
        let newest = state.index.last().number;
        // First: what is left may begin late, but has no gap.
        if let Some(kept) = state.index.kept.filter(|kept| *kept < newest) {
            self.disk.remove(&file::name(kept))?;
            state.index.kept = None;
        }
        while let Some(item) = state.index.oldest().cloned().filter(|item| item.number <= through) {
            if item.number == newest {
                self.disk.cut_named(&file::name(newest), item.meta_end)?;
                state.index.kept = Some(newest);
            } else {
                self.disk.remove(&file::name(item.number))?;
            }
            state.index.forget_oldest();
        }
        Ok(())
    }

    /// The manager refuses this batch as it is: it is set aside for who wants to know why, and goes on as a count.
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
            // Without room there is none to look at: its rows are counted all the same.
            match self.refused.put(&name, &bytes, Lasting::No) {
                Err(error) if !is_full(&error) => return Err(error),
                _ => {}
            }
        }
        self.cut(&mut state, number)
    }

    /// The folder of batches that were refused.
    pub fn refused(&self) -> &std::path::Path {
        self.refused.folder()
    }

    /// The manager has the stream through this sequence: what is stored goes, and if the spool cannot go on from there, a new
    /// stream is begun.
    ///
    /// # Errors
    /// The disk failed.
    pub fn go_on_from(&self, stored_through: u64) -> io::Result<Fit> {
        let (after, sent, oldest) = {
            let state = self.state();
            let oldest = state.index.oldest().map_or(state.index.last().number + 1, |item| item.number);
            (state.stream.after, state.found.max(state.tried), oldest)
        };
        let through = after.saturating_add(stored_through);
        if through > sent {
            return self.part_ways().map(Fit::IsAhead);
        }
        if through + 1 < oldest {
            let mut state = self.state();
            self.begin_stream(&mut state)?;
            return Ok(Fit::Lacks);
        }
        self.stored(through)?;
        Ok(Fit::GoesOn)
    }

    /// Somebody else has sent under this stream: another is begun. What was found at the start may be theirs too, so its rows are let go; says
    /// how many.
    ///
    /// # Errors
    /// The disk failed.
    pub fn part_ways(&self) -> io::Result<u64> {
        let mut state = self.state();
        let found = state.found;
        let doubtful: Vec<u64> = state.index.numbers().filter(|number| *number <= found).collect();
        let before = state.rows_dropped;
        for number in doubtful {
            if state.index.has_rows(number) {
                self.cut(&mut state, number)?;
            }
        }
        let rows = state.rows_dropped - before;
        self.begin_stream(&mut state)?;
        Ok(rows)
    }

    fn begin_stream(&self, state: &mut State) -> io::Result<()> {
        let after = state.index.oldest().map_or(state.index.last().number, |item| item.number - 1);
        let stream = Stream { id: random_id()?, after, ..state.stream.clone() };
        self.disk.put(STREAM, &serde_json::to_vec(&stream)?, Lasting::Yes)?;
        state.stream = stream;
        Ok(())
    }

    /// The stream.
    pub fn stream(&self) -> Stream {
        self.state().stream.clone()
    }

    /// What the newest batch says of itself. All zero where none was ever sealed.
    pub fn last(&self) -> Meta {
        self.state().index.last().clone()
    }

    /// How it stands.
    pub fn stand(&self) -> SpoolStand {
        let state = self.state();
        SpoolStand {
            batches: state.index.waiting(),
            rows: state.index.rows(),
            bytes: state.index.bytes(),
            bytes_max: self.bytes_max,
            oldest: state.index.oldest().map_or(0, |item| item.number - state.stream.after),
        }
    }

    /// Rows that were let go, since the start.
    pub fn rows_dropped(&self) -> u64 {
        self.state().rows_dropped
    }

    /// Waits until there is a batch to be sent, or the agent ends; at most `longest`. `false` once it ends.
    pub fn wait_for_batch(&self, longest: Duration) -> bool {
        let there_is_news = |state: &mut State| !state.ends && state.index.oldest().is_none();
        let state = self.state();
        let (state, _) =
            self.news.wait_timeout_while(state, longest, there_is_news).unwrap_or_else(PoisonError::into_inner);
        !state.ends
    }

    /// Waits so long, or until the agent ends: `false` then.
    pub fn pause(&self, longest: Duration) -> bool {
        let state = self.state();
        let outcome = self.news.wait_timeout_while(state, longest, |state| !state.ends);
        !outcome.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    /// The agent ends: whoever waits here waits no more.
    pub fn end(&self) {
        self.state().ends = true;
        self.news.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked had changed the index after the files.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Most batches that wait: a file takes 4 KB of the disk, and all heads together at most a quarter of the bound. Beyond
/// 20,000 a manager that comes back has more round trips than it has news.
fn batches_max(bytes_max: u64) -> u64 {
    (bytes_max / (4 * index::BLOCK)).clamp(16, 20_000)
}

fn damaged(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} in the spool was changed by somebody else"))
}

fn random_id() -> io::Result<String> {
    Ok(hexadecimal(&random::<16>()?))
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut bytes)
        .map_err(|_| io::Error::other("the kernel gave no random bytes"))?;
    Ok(bytes)
}

const STREAM: &str = "stream.json";
/// Batches kept in refused/.
const REFUSED_MAX: usize = 20;
