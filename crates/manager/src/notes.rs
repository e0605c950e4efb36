//! Log lines and counts of refused requests, without blocking requests.
//!
//! ```text
//!   auth ──counts, in memory──▶ Notes ──each second, one transaction──▶ refusals, refused, tokens.used_at
//!                                 └──a few lines a second──▶ log
//! ```
//!
//! A flood of unauthenticated requests must neither fill the disk nor slow down the batches of agents. So every
//! refusal is counted, and of each second the first [`ROWS_PER_SECOND`] are stored as rows (the index stores the last
//! [`ROWS_STORED_MAX`]) and the first [`LINES_PER_SECOND`] are logged.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::params;
use sys::clock::realtime_ns;

use crate::data::Data;
use crate::error::{Error, Result};
use crate::refused::Refused;
use crate::tokens::{self, Role, signed};
use tap_protocol::RefusalReason;

/// Receives log lines, from any thread, a few times a second at most.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Collects log lines and counts; clones share it.
#[derive(Clone)]
pub struct Notes(Arc<Shared>);

struct Shared {
    data: Arc<Data>,
    log: Log,
    buffered: Mutex<Buffered>,
    /// Wakes the writing thread to end.
    end_signal: Condvar,
}

#[derive(Default)]
struct Buffered {
    /// Refusals since the last write, by reason: all of them.
    counts: HashMap<RefusalReason, u64>,
    /// The first refusals since the last write.
    rows: Vec<Row>,
    /// Lines logged since the last write, and lines suppressed.
    lines_logged: u32,
    lines_suppressed: u64,
    /// Minute of the last recorded use, by token.
    minutes: HashMap<(String, Role), u64>,
    /// Token uses that are not written yet.
    uses: Vec<(String, Role, u64)>,
    is_ending: bool,
}

struct Row {
    at_ns: u64,
    why: RefusalReason,
    status: u16,
    agent: String,
    address: String,
    path: String,
    message: String,
}

impl Notes {
    /// Starts the thread that writes each second, and ends with [`NotesWriter::stop`].
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(data: Arc<Data>, log: Log) -> Result<(Notes, NotesWriter)> {
        let notes = Notes(Arc::new(Shared { data, log, buffered: Mutex::default(), end_signal: Condvar::new() }));
        let writer_notes = notes.clone();
        let thread = thread::Builder::new().name("notes".into()).spawn(move || writer_notes.write_until_ended());
        let thread = thread.map_err(|_| Error::Thread("notes"))?;
        Ok((notes.clone(), NotesWriter { notes, thread: Some(thread) }))
    }

    /// Records a refused request. `agent` is the name of its token, empty without a valid token; `what` is its method
    /// and path.
    pub(crate) fn refused(&self, refused: &Refused, status: u16, agent: &str, peer: Option<SocketAddr>, what: &str) {
        let address = peer.map(|peer| peer.to_string()).unwrap_or_default();
        let what = clean_text(what, PATH_MAX);
        let mut buffered = self.lock();
        *buffered.counts.entry(refused.why).or_default() += 1;
        if buffered.rows.len() < ROWS_PER_SECOND {
            buffered.rows.push(Row {
                at_ns: realtime_ns(),
                why: refused.why,
                status,
                agent: agent.to_owned(),
                address: address.clone(),
                path: what.clone(),
                message: refused.message.clone(),
            });
        }
        if !buffered.may_log() {
            return;
        }
        drop(buffered);
        let mut line = format!("rejected {status} {}: {what} from {address}", refused.why.as_str());
        if !agent.is_empty() {
            let _ = write!(line, " ({agent})");
        }
        let _ = write!(line, ": {}", refused.message);
        (self.0.log)(&line);
    }

    /// Records the use of a valid token.
    pub(crate) fn token_used(&self, name: &str, role: Role) {
        let now = realtime_ns();
        let minute = now / MINUTE_NS;
        let mut buffered = self.lock();
        let key = (name.to_owned(), role);
        if buffered.minutes.get(&key) != Some(&minute) {
            buffered.minutes.insert(key, minute);
            buffered.uses.push((name.to_owned(), role, now));
        }
    }

    /// Logs a problem of the manager itself, with a limit per second.
    pub fn trouble(&self, line: &str) {
        if self.lock().may_log() {
            (self.0.log)(&clean_text(line, LINE_MAX));
        }
    }

    /// Logs a line without a limit.
    pub(crate) fn log(&self, line: &str) {
        (self.0.log)(&clean_text(line, LINE_MAX));
    }

    /// Writes everything recorded so far. Tests call it directly.
    pub(crate) fn write(&self) {
        let (counts, rows, uses, lines_suppressed) = {
            let mut buffered = self.lock();
            buffered.lines_logged = 0;
            (
                std::mem::take(&mut buffered.counts),
                std::mem::take(&mut buffered.rows),
                std::mem::take(&mut buffered.uses),
                std::mem::take(&mut buffered.lines_suppressed),
            )
        };
        if lines_suppressed > 0 {
            (self.0.log)(&format!(
                "{lines_suppressed} more lines in this second are not printed; all rejected requests are counted"
            ));
        }
        if counts.is_empty() && uses.is_empty() {
            return;
        }
        let written = self.0.data.change(|index| {
            tokens::note_uses(index, &uses)?;
            for (why, count) in &counts {
                index.prepare_cached(
                    "INSERT INTO refused (why, count) VALUES (?1, ?2) ON CONFLICT (why) DO UPDATE SET count = count + ?2",
                )?.execute(params![why.as_str(), signed(*count)])?;
            }
            for row in &rows {
                index.prepare_cached(
                    "INSERT INTO refusals (at, why, status, agent, address, path, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?.execute(params![
                    signed(row.at_ns), row.why.as_str(), row.status, row.agent, row.address, row.path, row.message
                ])?;
            }
            if !rows.is_empty() {
                let sql = "DELETE FROM refusals WHERE id <= (SELECT max(id) FROM refusals) - ?1";
                index.prepare_cached(sql)?.execute([ROWS_STORED_MAX])?;
            }
            Ok::<_, rusqlite::Error>(())
        });
        if let Err(error) = written {
            // The counts are not lost: they are added to the next second. The rows are.
            (self.0.log)(&format!("rejected requests cannot be written: {error}"));
            let mut buffered = self.lock();
            for (why, count) in counts {
                *buffered.counts.entry(why).or_default() += count;
            }
        }
    }

    fn write_until_ended(&self) {
        let mut buffered = self.lock();
        while !buffered.is_ending {
            let waited = self.0.end_signal.wait_timeout(buffered, WRITE_INTERVAL);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            self.write();
            buffered = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buffered> {
        self.0.buffered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffered {
    fn may_log(&mut self) -> bool {
        let may = self.lines_logged < LINES_PER_SECOND;
        if may {
            self.lines_logged += 1;
        } else {
            self.lines_suppressed += 1;
        }
        may
    }
}

/// The writing thread.
pub struct NotesWriter {
    notes: Notes,
    thread: Option<JoinHandle<()>>,
}

impl NotesWriter {
    /// Whether the thread runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Writes the rest and ends.
    pub fn stop(&mut self) {
        self.notes.lock().is_ending = true;
        self.notes.0.end_signal.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.notes.write();
    }
}

impl Drop for NotesWriter {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

/// Text of a client for a log line: without control characters, and limited in length.
fn clean_text(text: &str, characters_max: usize) -> String {
    let mut line: String =
        text.chars().take(characters_max).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(characters_max).is_some() {
        line.push_str("..");
    }
    line
}

const WRITE_INTERVAL: Duration = Duration::from_secs(1);
const MINUTE_NS: u64 = 60_000_000_000;
/// Refusals of a second stored as rows: some 4 KB.
const ROWS_PER_SECOND: usize = 20;
/// Rows in the index: some 2 MB.
const ROWS_STORED_MAX: i64 = 10_000;
/// Maximum lines logged in a second.
const LINES_PER_SECOND: u32 = 5;
/// Maximum characters of a request's method and path.
const PATH_MAX: usize = 200;
/// Maximum characters of a line.
const LINE_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn count(data: &Data, sql: &str) -> i64 {
        data.read(|index| index.query_row(sql, [], |row| row.get(0))).unwrap()
    }

    #[test]
    fn a_flood_of_refusals_is_counted_completely_and_logged_partly() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let logged_lines = Arc::clone(&lines);
        let log: Log = Arc::new(move |line| logged_lines.lock().unwrap().push(line.to_owned()));
        // The thread does not run: the test determines the seconds.
        let shared = Shared { data: Arc::clone(&data), log, buffered: Mutex::default(), end_signal: Condvar::new() };
        let notes = Notes(Arc::new(shared));
        let refused = Refused::new(RefusalReason::Unauthenticated, "A token is required.");
        for second in 0..3 {
            for _ in 0..1000 {
                notes.refused(&refused, 401, "", Some("192.0.2.1:1000".parse().unwrap()), "GET /\u{1b}[31m");
            }
            notes.write();
            assert_eq!(count(&data, "SELECT count FROM refused WHERE why = 'unauthenticated'"), 1000 * (second + 1));
        }
        assert_eq!(count(&data, "SELECT count(*) FROM refusals"), 3 * ROWS_PER_SECOND as i64);
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 3 * (LINES_PER_SECOND as usize + 1));
        assert!(lines[5].contains("995 more lines"), "{}", lines[5]);
        assert!(lines.iter().all(|line| !line.contains('\u{1b}')));
    }

    #[test]
    fn token_use_is_recorded_once_a_minute_and_refusal_rows_are_limited() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        tokens::add(&data, "a", Role::Agent, 1).unwrap();
        let (notes, mut writer_notes) = Notes::start(Arc::clone(&data), Arc::new(|_| {})).unwrap();
        (0..100).for_each(|_| notes.token_used("a", Role::Agent));
        // A minute may have ended meanwhile.
        assert!(notes.lock().uses.len() <= 2);
        data.change(|index| {
            index.execute(
                "INSERT INTO refusals (id, at, why, status, agent, address, path, message) VALUES (1, 1, '', 1, '', '', '', ''), \
                 (?1, 1, '', 1, '', '', '', '')",
                [ROWS_STORED_MAX],
            )
        })
        .unwrap();
        notes.refused(&Refused::not_found(), 404, "a", None, "GET /x");
        writer_notes.stop();
        assert!(tokens::list(&data).unwrap()[0].used_at_ns.is_some());
        assert_eq!(count(&data, "SELECT count(*) FROM refusals"), 2);
    }
}
