//! The manager's folder: its lock, its index, and who reads and writes them.
//!
//! ```text
//!   DATA/lock            held by the manager that runs
//!   DATA/index.sqlite    schema.sql; write-ahead log, synchronous = FULL
//!   DATA/days/2026-11-23/part-000017.parquet
//!   DATA/certificate.pem, key.pem        where no certificate was given
//! ```
//!
//! One connection writes, behind a lock, in transactions that have the index from their first moment (IMMEDIATE). Reading has
//! connections of its own, each call in a transaction, so that what one call reads is of one moment. Readers do not hinder the
//! writer, nor it them. SQLite's write-ahead log needs a local disk: no network file system.
//!
//! The verbs on tokens open the same index beside a manager that runs ([`Data::beside`]); the lock of the folder is the
//! manager's alone ([`Data::open`]).

#[cfg(test)]
mod stops;

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};

#[cfg(test)]
pub(crate) use stops::Stops;

use crate::error::{Error, Result};

/// The folder of a manager, open. Shared by all that work on it.
pub struct Data {
    folder: PathBuf,
    writer: Mutex<Connection>,
    /// Reading connections that nobody uses now.
    idle: Mutex<Vec<Connection>>,
    /// Held as long as this is there; the verbs have none.
    _lock: Option<File>,
    #[cfg(test)]
    pub(crate) stops: Stops,
}

impl Data {
    /// Opens the folder for the one manager that works in it, made where it is not there.
    ///
    /// # Errors
    /// Another manager runs in it, it cannot be made or written, or its index is of another version.
    pub fn open(folder: &Path) -> Result<Arc<Data>> {
        make_folder(folder)?;
        let path = folder.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = lock.map_err(|source| Error::io("open", &path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Taken(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(Error::io("flock", &path, source)),
        }
        Self::with(folder, Some(lock))
    }

    /// Opens the index beside a manager that may run: for verbs that change a row. Made where it is not there and `makes` says so.
    ///
    /// # Errors
    /// Those of [`Data::open`], but that a manager may run; [`Error::NoData`].
    pub fn beside(folder: &Path, makes: bool) -> Result<Arc<Data>> {
        if makes {
            make_folder(folder)?;
        } else if !folder.join(INDEX).exists() {
            return Err(Error::NoData(folder.to_owned()));
        }
        Self::with(folder, None)
    }

    fn with(folder: &Path, lock: Option<File>) -> Result<Arc<Data>> {
        let path = folder.join(INDEX);
        let writer = connect(&path)?;
        furnish(&writer, &path)?;
        Ok(Arc::new(Data {
            folder: folder.to_owned(),
            writer: Mutex::new(writer),
            idle: Mutex::default(),
            _lock: lock,
            #[cfg(test)]
            stops: Stops::default(),
        }))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the days' files.
    pub fn days(&self) -> PathBuf {
        self.folder.join("days")
    }

    /// Reads. All that `ask` reads is of one moment. It may come from any thread; it waits for no writer.
    ///
    /// # Errors
    /// Those of `ask`, and SQLite's.
    pub fn read<T, E: From<rusqlite::Error>>(&self, ask: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => reader(&self.folder.join(INDEX))?,
        };
        let outcome = {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
            ask(&transaction)
            // Nothing was written: that it rolls back means nothing.
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        outcome
    }

    /// Changes the index, wholly or not at all: where `act` fails, nothing was changed. When it returns, the change survives a
    /// power cut. It waits for other changes and for the disk: not for threads that serve connections.
    ///
    /// # Errors
    /// Those of `act`, and SQLite's.
    pub fn change<T, E: From<rusqlite::Error>>(
        &self,
        act: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let outcome = act(&transaction)?;
        transaction.commit()?;
        Ok(outcome)
    }

    /// A fact by its name.
    ///
    /// # Errors
    /// SQLite's.
    pub fn fact(&self, name: &str) -> Result<Option<String>> {
        self.read(|index| {
            let found = index.query_row("SELECT value FROM facts WHERE name = ?1", [name], |row| row.get(0));
            Ok(found.optional()?)
        })
    }

    /// Keeps a fact under its name.
    ///
    /// # Errors
    /// SQLite's.
    pub fn keep_fact(&self, name: &str, value: &str) -> Result<()> {
        self.change(|index| {
            index.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)", params![name, value])?;
            Ok(())
        })
    }

    /// Carries the write-ahead log over into the index, so that nothing but the index is left. For the end; a reader that is
    /// still there makes it wait for the next time.
    pub(crate) fn settle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// A place where a test can end the work, as SIGKILL would.
    #[cfg(test)]
    pub(crate) fn reaches(&self, point: Point) -> Result<()> {
        self.stops.reaches(point)
    }

    /// A place where a test can end the work, as SIGKILL would.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests stop here")]
    pub(crate) fn reaches(&self, _point: Point) -> Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Moments at which a process may be killed with work half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Batches are written in the transaction, which is not committed.
    BatchesWritten,
    /// Committed, and nobody was answered.
    BatchesCommitted,
    /// A day's file is whole under its unfinished name.
    PartWritten,
    /// The files have their names, the index does not know them.
    PartsNamed,
    /// The transaction that takes rows from pending to parts is written and not committed.
    PlacedWritten,
    /// It is committed.
    PlacedCommitted,
    /// A merged file has its name, the index does not know it.
    MergedNamed,
    /// The index knows the merged file, the files it was made of are still there.
    MergedCommitted,
    /// Some of them are gone.
    MergedHalfRemoved,
    /// The index has forgotten a day, its files are still there.
    DayForgotten,
}

fn make_folder(folder: &Path) -> Result<()> {
    // What is in it says who talks to whom, and can open the page.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| Error::io("mkdir", folder, source))?;
    let days = folder.join("days");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&days);
    made.map_err(|source| Error::io("mkdir", &days, source))
}

fn connect(path: &Path) -> Result<Connection> {
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Error::Foreign(path.to_owned()));
    }
    // SQLite would make it as the umask has it, and its log like it: whoever reads it has the secret of the page.
    let made = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    made.map_err(|source| Error::io("open", path, source))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    // Reading a write-ahead log needs its shared memory, so the connection may write, and is told not to.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;")?;
    Ok(connection)
}

/// Sees that the index is one of this version, made where it is empty.
fn furnish(connection: &Connection, path: &Path) -> Result<()> {
    // Before anything of it is changed.
    is_empty(connection, path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::Refused(format!(
            "{}: SQLite cannot have a write-ahead log there (a network file system?): give a folder on a local disk by --data",
            path.display()
        )));
    }
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;",
    )?;
    // Two that find it empty at once: the second waits here and finds it furnished.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = furnish_within(connection, path);
    connection.execute_batch(if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    outcome
}

fn furnish_within(connection: &Connection, path: &Path) -> Result<()> {
    if is_empty(connection, path)? {
        connection.execute_batch(SCHEMA)?;
        connection
            .execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"))?;
    }
    Ok(())
}

/// Whether there is nothing in it yet; refused where it is not of this version.
fn is_empty(connection: &Connection, path: &Path) -> Result<bool> {
    let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i64>(0));
    let foreign = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Error::Foreign(path.to_owned()),
        _ => Error::Index(error),
    };
    let tables = number("SELECT count(*) FROM sqlite_schema").map_err(foreign)?;
    match (number("PRAGMA application_id")?, number("PRAGMA user_version")?) {
        (0, 0) if tables == 0 => Ok(true),
        (APPLICATION, VERSION) => Ok(false),
        (APPLICATION, found) => Err(Error::Version { path: path.to_owned(), found, known: VERSION }),
        _ => Err(Error::Foreign(path.to_owned())),
    }
}

const SCHEMA: &str = include_str!("schema.sql");
/// Name of the index in the folder.
const INDEX: &str = "index.sqlite";
const LOCK: &str = "lock";
/// "yamf" in ASCII: whose file it is, as SQLite keeps it in the file's head.
const APPLICATION: i64 = 0x7961_6d66;
/// Raised whenever schema.sql changes what is there already.
const VERSION: i64 = 1;
/// How long another process's change is waited for: verbs take milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Reading connections that are kept. Each has a cache of some 2 MB.
const IDLE_MAX: usize = 8;
const STATEMENTS: usize = 64;

#[cfg(test)]
mod tests;
