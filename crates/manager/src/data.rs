//! The manager's folder: its lock, its index, and access to them.
//!
//! ```text
//!   DATA/lock            locked by the running manager
//!   DATA/index.sqlite    schema.sql; write-ahead log, synchronous = FULL
//!   DATA/days/2026-11-23/part-000017.parquet
//!   DATA/certificate.pem, key.pem        where no certificate was given
//! ```
//!
//! One connection writes, behind a lock, in transactions that lock the index from their start (IMMEDIATE). Readers
//! have their own connections, and each call runs in a transaction, so that it reads a consistent state. Readers do
//! not block the writer, nor the writer them. SQLite's write-ahead log needs a local disk: no network file system.
//!
//! The token commands open the same index while a manager runs ([`Data::open_shared`]); the lock of the folder belongs
//! to the manager ([`Data::open`]).

#[cfg(test)]
mod crash_points;

use std::fs::{DirBuilder, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior, params};
use sys::file_lock::FileLock;

#[cfg(test)]
pub(crate) use crash_points::CrashPoints;

use crate::error::{Error, Result};

/// An open manager folder, shared by all threads.
pub struct Data {
    folder: PathBuf,
    writer: Mutex<Connection>,
    /// Idle reading connections.
    idle: Mutex<Vec<Connection>>,
    /// The folder lock; commands have none.
    _lock: Option<FileLock>,
    #[cfg(test)]
    pub(crate) crash_points: CrashPoints,
}

impl Data {
    /// Opens the folder for the manager; creates it if needed.
    ///
    /// # Errors
    /// Another manager uses the folder, the folder cannot be created or written, or its index is of another version.
    pub fn open(folder: &Path) -> Result<Arc<Data>> {
        make_folder(folder)?;
        let path = folder.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let lock = lock.map_err(|source| Error::io("open", &path, source))?;
        let lock = FileLock::exclusive(lock).map_err(|(_, error)| match error {
            TryLockError::WouldBlock => Error::InUse(folder.to_owned()),
            TryLockError::Error(source) => Error::io("flock", &path, source),
        })?;
        Self::with(folder, Some(lock))
    }

    /// Opens the index while a manager may run, for commands that change a row. Creates it if needed and `creates`
    /// is set.
    ///
    /// # Errors
    /// The errors of [`Data::open`], except for a running manager; [`Error::NoData`].
    pub fn open_shared(folder: &Path, creates: bool) -> Result<Arc<Data>> {
        if creates {
            make_folder(folder)?;
        } else if !folder.join(INDEX).exists() {
            return Err(Error::NoData(folder.to_owned()));
        }
        Self::with(folder, None)
    }

    fn with(folder: &Path, lock: Option<FileLock>) -> Result<Arc<Data>> {
        let path = folder.join(INDEX);
        let writer = connect(&path)?;
        prepare_index(&writer, &path)?;
        Ok(Arc::new(Data {
            folder: folder.to_owned(),
            writer: Mutex::new(writer),
            idle: Mutex::default(),
            _lock: lock,
            #[cfg(test)]
            crash_points: CrashPoints::default(),
        }))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the day files.
    pub fn days(&self) -> PathBuf {
        self.folder.join("days")
    }

    /// Reads in a transaction, so that `query` sees a consistent state. Callable from any thread; it waits for no
    /// writer.
    ///
    /// # Errors
    /// The errors of `query`, and SQLite's.
    pub fn read<T, E: From<rusqlite::Error>>(&self, query: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, E> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => reader(&self.folder.join(INDEX))?,
        };
        let outcome = {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
            query(&transaction)
            // Nothing was written, so a rollback changes nothing.
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        outcome
    }

    /// Changes the index atomically: if `act` fails, nothing is changed. When it returns, the change survives a power
    /// failure. It waits for other changes and for the disk: do not call it on threads that serve connections.
    ///
    /// # Errors
    /// The errors of `act`, and SQLite's.
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

    /// Stores a fact under its name.
    ///
    /// # Errors
    /// SQLite's.
    pub fn set_fact(&self, name: &str, value: &str) -> Result<()> {
        self.change(|index| {
            index.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)", params![name, value])?;
            Ok(())
        })
    }

    /// Moves the write-ahead log into the index, so that only the index is left at the end. A reader still open
    /// postpones it.
    pub(crate) fn checkpoint(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// A point at which a test can end the work, as SIGKILL would.
    #[cfg(test)]
    pub(crate) fn crash_at(&self, point: CrashPoint) -> Result<()> {
        self.crash_points.crash_at(point)
    }

    /// A point at which a test can end the work, as SIGKILL would.
    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests stop here")]
    pub(crate) fn crash_at(&self, _point: CrashPoint) -> Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Points at which a process may be killed with work half done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// Batches are written in the transaction, which is not committed.
    BatchesWritten,
    /// Committed, and no response was sent.
    BatchesCommitted,
    /// A day file is complete under its unfinished name.
    PartWritten,
    /// The files have their final names, the index does not list them.
    PartsNamed,
    /// The transaction that takes rows from pending to parts is written and not committed.
    PlacedWritten,
    /// That transaction is committed.
    PlacedCommitted,
    /// A merged file has its final name, the index does not list it.
    MergedNamed,
    /// The index lists the merged file, the original files still exist.
    MergedCommitted,
    /// Some of the original files are removed.
    MergedHalfRemoved,
    /// The index no longer lists a day, its files still exist.
    DayForgotten,
}

fn make_folder(folder: &Path) -> Result<()> {
    // The contents show which hosts communicate, and contain the secret of the page.
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|source| Error::io("mkdir", folder, source))?;
    let days = folder.join("days");
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&days);
    created.map_err(|source| Error::io("mkdir", &days, source))
}

fn connect(path: &Path) -> Result<Connection> {
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Error::Foreign(path.to_owned()));
    }
    // SQLite would create it and its log according to the umask: a reader would have the secret of the page.
    let created = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    created.map_err(|source| Error::io("open", path, source))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn reader(path: &Path) -> rusqlite::Result<Connection> {
    // Reading a write-ahead log needs its shared memory, so the connection could write; it is restricted.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;")?;
    Ok(connection)
}

/// Checks that the index is of this version; creates it if the file is empty.
fn prepare_index(connection: &Connection, path: &Path) -> Result<()> {
    // Before any change.
    is_empty(connection, path)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::Refused(format!(
            "{}: SQLite cannot use a write-ahead log there (a network file system?): choose a directory on a local \
             disk (--data)",
            path.display()
        )));
    }
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;",
    )?;
    // With two concurrent openers of an empty file, the second waits here and finds the schema.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let outcome = create_schema_if_empty(connection, path);
    connection.execute_batch(if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    outcome
}

fn create_schema_if_empty(connection: &Connection, path: &Path) -> Result<()> {
    if is_empty(connection, path)? {
        connection.execute_batch(SCHEMA)?;
        connection
            .execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"))?;
    }
    Ok(())
}

/// Whether the index is empty; an error if it is not of this version.
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
/// File name of the index.
const INDEX: &str = "index.sqlite";
const LOCK: &str = "lock";
/// "yamf" in ASCII: SQLite's application identifier in the file header.
const APPLICATION: i64 = 0x7961_6d66;
/// Raised whenever schema.sql changes existing tables.
const VERSION: i64 = 2;
/// Timeout for changes of another process: commands take milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum idle reading connections. Each has a cache of some 2 MB.
const IDLE_MAX: usize = 8;
/// Maximum cached statements of a connection.
const STATEMENTS: usize = 64;

#[cfg(test)]
mod tests;
