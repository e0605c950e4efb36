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
    /// The run store's folder, held for its shared lock.
    run_store: File,
}

impl Catalogue {
    /// Opens the catalogue of the run store at `root`, made anew where there is none or a broken one, and reads every row of it
    /// that adds up, by id.
    pub(crate) fn open(root: &Path) -> Without<(Catalogue, HashMap<String, Row>)> {
        let (path, run_store) = hold(root)?;
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

    /// Throws away what there is, broken or not, and makes an empty one.
    pub(crate) fn anew(root: &Path) -> Without<Catalogue> {
        let (path, run_store) = hold(root)?;
        match connect(&path) {
            // Whole, and perhaps in use: emptied by its own means.
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

    /// Takes in rows, in place of those of the same id, and drops rows of removed runs: all or
    /// nothing. A catalogue that turns out to be broken is thrown away; the next list makes another.
    pub(crate) fn change(self, rows: &[Row], gone: &[String]) -> Without<()> {
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
                for id in gone {
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
    let mut known = HashMap::new();
    while let Some(row) = rows.next()? {
        let found = (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, String>(2), row.get::<_, i64>(3));
        let (Ok(id), Ok(key), Ok(body), Ok(sum)) = found else { continue };
        let row = Row { id, key, body };
        if checksum(&row) == sum {
            known.insert(row.id.clone(), row);
        }
    }
    Ok(known)
}

/// The catalogue's path, and the run store's folder with a shared lock on it.
fn hold(root: &Path) -> Without<(PathBuf, File)> {
    let said = |error: std::io::Error| error.to_string();
    // SQLite is told to follow no link, and does not take the folder's own way there as an exception.
    let root = fs::canonicalize(root).map_err(said)?;
    let run_store = File::open(&root).map_err(said)?;
    // Where there are no locks, nobody throws a catalogue away: see `discard`.
    if matches!(run_store.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return Err("another program is making it anew".to_owned());
    }
    Ok((root.join(CATALOGUE), run_store))
}

/// Removes a catalogue that is of no use, where nobody else has it open.
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
    // Back to what others may have too. They come in between at worst, and find no file or a new one.
    let _ = run_store.try_lock_shared();
    outcome
}

/// Why a catalogue is unusable.
enum Fault {
    /// It is there and worth nothing: broken, or of another version.
    Useless(String),
    /// It may be good, and cannot be had: locked, no right to it, somebody else's file.
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
            // "no such table", and the like: not what this version made.
            Some(ErrorCode::Unknown) => Fault::Useless(why),
            _ => Fault::Unavailable(why),
        }
    }
}

/// Opens the file, made and furnished where it is not there.
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
            // Another program may be here as well: what is there by now is left as it is.
            connection.execute_batch(SCHEMA)?;
        }
        (whose, version) = (number("application_id")?, number("user_version")?);
    }
    match (whose, version) {
        (APPLICATION, VERSION) => {
            // A page that cannot be right is found where it is read, not where it has led to nonsense.
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

/// FNV-1a over the row's fields, each ended by a zero. It finds what a disk or a hand has changed, and is not meant to
/// find more.
fn checksum(row: &Row) -> i64 {
    let fields = [&row.id, &row.key, &row.body].into_iter();
    let bytes = fields.flat_map(|field| field.bytes().chain([0]));
    let sum = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    sum.cast_signed()
}

/// "yama" in ASCII: whose file it is, as SQLite keeps it in the file's head.
const APPLICATION: i64 = 0x7961_6d61;
/// Raised whenever rows mean something else.
const VERSION: i64 = 2;
/// Wait for another program's write, which takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// The view is for people: `sqlite3 catalogue.sqlite 'SELECT id, p99_ns FROM runs WHERE verb = "bench"'`.
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
