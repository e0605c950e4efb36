//! The catalogue in SQLite.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{CATALOGUE, Row, Without};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};

/// An open catalogue.
pub(crate) struct Catalogue {
    connection: Connection,
    path: PathBuf,
    /// The run store's folder, open for its shared lock.
    run_store: File,
}

impl Catalogue {
    /// Opens the catalogue of the run store at `root`, and reads every row with a correct checksum, by id. A missing or
    /// broken catalogue is created anew.
    pub(crate) fn open(root: &Path) -> Without<(Catalogue, HashMap<String, Row>)> {
        let (path, run_store) = lock_folder(root)?;
        let opened = connect(&path).and_then(|connection| Ok((rows(&connection)?, connection)));
        match opened {
            Ok((rows, connection)) => Ok((Catalogue { connection, path, run_store }, rows)),
            Err(Fault::Useless(_)) => {
                discard(&path, &run_store)?;
                let connection = connect(&path).map_err(Fault::words)?;
                Ok((Catalogue { connection, path, run_store }, HashMap::new()))
            }
            Err(Fault::Unavailable(why)) => Err(why),
        }
    }

    /// Deletes the catalogue, broken or not, and creates an empty one.
    pub(crate) fn create_empty(root: &Path) -> Without<Catalogue> {
        let (path, run_store) = lock_folder(root)?;
        match connect(&path) {
            // An intact catalogue may be in use by others, so its rows are deleted with SQL.
            Ok(mut connection) => {
                let emptied = connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)
                    .and_then(|change| change.execute("DELETE FROM entries", []).map(|_| change))
                    .and_then(|change| change.commit());
                match emptied.map_err(Fault::from) {
                    Ok(()) => return Ok(Catalogue { connection, path, run_store }),
                    Err(Fault::Unavailable(why)) => return Err(why),
                    Err(Fault::Useless(_)) => drop(connection),
                }
            }
            Err(Fault::Unavailable(why)) => return Err(why),
            Err(Fault::Useless(_)) => {}
        }
        discard(&path, &run_store)?;
        let connection = connect(&path).map_err(Fault::words)?;
        Ok(Catalogue { connection, path, run_store })
    }

    /// Replaces or inserts rows by id and deletes the rows of removed runs, in one transaction. A catalogue that turns
    /// out to be broken is deleted; the next list creates another.
    pub(crate) fn change(self, rows: &[Row], removed: &[String]) -> Without<()> {
        let Catalogue { mut connection, path, run_store } = self;
        let mut write = || -> rusqlite::Result<()> {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut put = change
                    .prepare("INSERT OR REPLACE INTO entries (id, key, body, checksum) VALUES (?1, ?2, ?3, ?4)")?;
                for row in rows {
                    put.execute(params![row.id, row.key, row.body, checksum(row)])?;
                }
                let mut drop = change.prepare("DELETE FROM entries WHERE id = ?1")?;
                for id in removed {
                    drop.execute([id])?;
                }
            }
            change.commit()
        };
        match write().map_err(Fault::from) {
            Err(Fault::Useless(why)) => {
                drop(connection);
                discard(&path, &run_store)?;
                Err(why)
            }
            outcome => outcome.map_err(Fault::words),
        }
    }
}

fn rows(connection: &Connection) -> Result<HashMap<String, Row>, Fault> {
    let mut statement = connection.prepare("SELECT id, key, body, checksum FROM entries")?;
    let mut rows = statement.query([])?;
    let mut rows_by_id = HashMap::new();
    while let Some(row) = rows.next()? {
        let found = (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, String>(2), row.get::<_, i64>(3));
        let (Ok(id), Ok(key), Ok(body), Ok(sum)) = found else { continue };
        let row = Row { id, key, body };
        if checksum(&row) == sum {
            rows_by_id.insert(row.id.clone(), row);
        }
    }
    Ok(rows_by_id)
}

/// The catalogue's path, and the run store's folder with a shared lock.
fn lock_folder(root: &Path) -> Without<(PathBuf, File)> {
    let message = |error: std::io::Error| error.to_string();
    // SQLite is configured to follow no links, and this includes links in the path of the folder itself.
    let root = fs::canonicalize(root).map_err(message)?;
    let run_store = File::open(&root).map_err(message)?;
    // On a file system without locks no program deletes a catalogue: see `discard`.
    if matches!(run_store.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return Err("another program is making it anew".to_owned());
    }
    Ok((root.join(CATALOGUE), run_store))
}

/// Deletes an unusable catalogue if no other process has it open.
fn discard(path: &Path, run_store: &File) -> Without<()> {
    run_store
        .try_lock()
        .map_err(|_| "it is broken or of another version, and another program has it open".to_owned())?;
    let mut outcome = Ok(());
    for ending in ["", "-journal", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => outcome = Err(error.to_string()),
            _ => {}
        }
    }
    // Downgrade to a shared lock. A process that locks the folder in between finds no file or a new one.
    let _ = run_store.try_lock_shared();
    outcome
}

/// Why a catalogue is unusable.
enum Fault {
    /// The catalogue exists but is broken or of another version.
    Useless(String),
    /// The catalogue cannot be opened: locked, no permission, or another program's file.
    Unavailable(String),
}

impl Fault {
    fn words(self) -> String {
        match self {
            Fault::Useless(why) | Fault::Unavailable(why) => why,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        let why = error.to_string();
        let code = match &error {
            rusqlite::Error::SqlInputError { error, .. } => Some(error.code),
            other => other.sqlite_error_code(),
        };
        match code {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::SchemaChanged) => {
                Fault::Useless(why)
            }
            // "no such table" and the like: a file of another version.
            Some(ErrorCode::Unknown) => Fault::Useless(why),
            _ => Fault::Unavailable(why),
        }
    }
}

/// Opens the file; creates it with its tables if it does not exist.
fn connect(path: &Path) -> Result<Connection, Fault> {
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Fault::Unavailable("the path is not a regular file".to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let (mut whose, mut version) = (number("application_id")?, number("user_version")?);
    if (whose, version) == (0, 0) {
        if !has_tables(&connection)? {
            // Another program may create the tables concurrently: existing tables stay unchanged.
            connection.execute_batch(SCHEMA)?;
        }
        (whose, version) = (number("application_id")?, number("user_version")?);
    }
    match (whose, version) {
        (APPLICATION, VERSION) => {
            // SQLite checks each page when it reads the page, so that corruption is an error and not a wrong result.
            connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;")?;
            Ok(connection)
        }
        (APPLICATION, _) => Err(Fault::Useless(format!("it is of version {version}"))),
        _ => {
            let why = "it belongs to another program, or is damaged; remove the file yourself if it is not needed";
            Err(Fault::Unavailable(why.to_owned()))
        }
    }
}

fn has_tables(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) > 0 FROM sqlite_schema", [], |row| row.get(0))
}

/// FNV-1a over the row's fields, each followed by a zero byte. It detects accidental changes, not forgery.
fn checksum(row: &Row) -> i64 {
    let fields = [&row.id, &row.key, &row.body].into_iter();
    let bytes = fields.flat_map(|field| field.bytes().chain([0]));
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    sum.cast_signed()
}

/// SQLite `application_id` in the file header: "yama" in ASCII.
const APPLICATION: i64 = 0x7961_6d61;
/// Version of the catalogue's format: raised when the meaning of rows changes.
const VERSION: i64 = 2;
/// Longest wait for another program's write, which takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The tables, and a view for manual queries: `sqlite3 catalogue.sqlite 'SELECT id, p99_ns FROM runs WHERE verb =
/// "bench"'`.
const SCHEMA: &str = "\
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS entries (
  id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, body TEXT NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS runs AS SELECT
  id,
  body ->> '$.finished.started_at' AS started_at,
  body ->> '$.finished.duration_s' AS duration_s,
  body ->> '$.finished.verdict' AS verdict,
  body ->> '$.finished.command' AS command,
  body ->> '$.finished.url' AS url,
  body ->> '$.finished.load.offered_rate_per_s' AS offered_rate_per_s,
  body ->> '$.finished.load.achieved_rate_per_s' AS achieved_rate_per_s,
  body ->> '$.finished.load.response_time_ns.p50' AS p50_ns,
  body ->> '$.finished.load.response_time_ns.p99' AS p99_ns,
  body -> '$.tags' AS tags
FROM entries;
PRAGMA application_id = 2036428129;
PRAGMA user_version = 2;
COMMIT;";

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
