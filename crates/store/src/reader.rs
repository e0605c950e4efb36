//! Reading tables back: the joined file, or the parts of a run that did not end.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use schema::{
    CacheExchange, ConnectionRecord, DistributionRecord, Http2FrameRow, QuicConnectionRecord, RequestRecord,
    SecondRecord, ServerSecond, ServerWaitRow, ShareRow, TapExchange, TcpSampleRow, WatchSecond, WireRequest,
};

use crate::decode::Input;
use crate::{Result, StoreError};
use schema::Record;

/// Reads the requests of a run, in the order in which they were written.
///
/// # Errors
/// The folder cannot be read. A missing table has no rows.
pub fn read_requests(dir: &Path) -> Result<Rows<RequestRecord>> {
    Rows::open(dir)
}

/// The seconds of a run.
///
/// # Errors
/// See [`read_requests`].
pub fn read_series(dir: &Path) -> Result<Rows<SecondRecord>> {
    Rows::open(dir)
}

/// Distributions of response times of a run, in the order of the seconds.
///
/// # Errors
/// See [`read_requests`].
pub fn read_distributions(dir: &Path) -> Result<Rows<DistributionRecord>> {
    Rows::open(dir)
}

/// The seconds of a run's measured phase at the server of the testbed.
///
/// # Errors
/// See [`read_requests`].
pub fn read_server_series(dir: &Path) -> Result<Rows<ServerSecond>> {
    Rows::open(dir)
}

/// The connections of a run, as seen in packets.
///
/// # Errors
/// See [`read_requests`].
pub fn read_connections(dir: &Path) -> Result<Rows<ConnectionRecord>> {
    Rows::open(dir)
}

/// The QUIC connections of a run, as seen in packets.
///
/// # Errors
/// See [`read_requests`].
pub fn read_quic_connections(dir: &Path) -> Result<Rows<QuicConnectionRecord>> {
    Rows::open(dir)
}

/// The requests of a run, as seen in packets.
///
/// # Errors
/// See [`read_requests`].
pub fn read_wire_requests(dir: &Path) -> Result<Rows<WireRequest>> {
    Rows::open(dir)
}

/// The seconds of a run, as seen in packets.
///
/// # Errors
/// See [`read_requests`].
pub fn read_watch_series(dir: &Path) -> Result<Rows<WatchSecond>> {
    Rows::open(dir)
}

/// The exchanges of a run, as seen by socket calls.
///
/// # Errors
/// See [`read_requests`].
pub fn read_taps(dir: &Path) -> Result<Rows<TapExchange>> {
    Rows::open(dir)
}

/// The TCP state of a run's connections at the server.
///
/// # Errors
/// See [`read_requests`].
pub fn read_tcp_samples(dir: &Path) -> Result<Rows<TcpSampleRow>> {
    Rows::open(dir)
}

/// The times in which a run's server was ready to run and did not.
///
/// # Errors
/// See [`read_requests`].
pub fn read_server_waits(dir: &Path) -> Result<Rows<ServerWaitRow>> {
    Rows::open(dir)
}

/// The frames of HTTP/2 on a run's connections.
///
/// # Errors
/// See [`read_requests`].
pub fn read_http2_frames(dir: &Path) -> Result<Rows<Http2FrameRow>> {
    Rows::open(dir)
}

/// The shares of a run's response times, as `explain` found them.
///
/// # Errors
/// See [`read_requests`].
pub fn read_shares(dir: &Path) -> Result<Rows<ShareRow>> {
    Rows::open(dir)
}

/// The verified exchanges of a cache benchmark.
///
/// # Errors
/// See [`read_requests`].
pub fn read_cache_exchanges(dir: &Path) -> Result<Rows<CacheExchange>> {
    Rows::open(dir)
}

/// Iterator over the rows of one table, read one row group at a time. A file that cannot be read yields one error, and
/// the rows of the next file follow. If the finished table replaces the parts meanwhile, the iterator continues with
/// the table's rows after those returned already.
pub struct Rows<R: Record> {
    dir: PathBuf,
    files: VecDeque<PathBuf>,
    /// Number of rows returned so far.
    returned: u64,
    /// Rows to skip in the finished table, because they were returned from parts.
    skip: u64,
    open: Option<(Input, usize)>,
    ready: Vec<R>,
    at: usize,
}

impl<R: Record> Rows<R> {
    fn open(dir: &Path) -> Result<Self> {
        let files = table_files(dir, R::TABLE)?.into();
        Ok(Rows { dir: dir.to_owned(), files, returned: 0, skip: 0, open: None, ready: Vec::new(), at: 0 })
    }

    /// Reads the next row group, of this file or the next. `None` at the end.
    fn advance(&mut self) -> Option<Result<()>> {
        self.ready.clear();
        self.at = 0;
        let (input, group) = match self.open.take() {
            Some(open) => open,
            None => match Input::open(&self.files.pop_front()?) {
                Ok(input) => (input, 0),
                Err(StoreError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && self.is_replaced() =>
                {
                    self.files = [joined_path(&self.dir, R::TABLE)].into();
                    self.skip = self.returned;
                    return Some(Ok(()));
                }
                Err(error) => return Some(Err(error)),
            },
        };
        if group < input.groups() {
            let outcome = input.read_group(group, &mut self.ready);
            let skipped = self.skip.min(self.ready.len() as u64);
            (self.at, self.skip) = (skipped as usize, self.skip - skipped);
            self.open = Some((input, group + 1));
            return Some(outcome);
        }
        Some(Ok(()))
    }

    /// Whether the joined file has replaced the parts.
    fn is_replaced(&self) -> bool {
        // If the joined file itself is missing, nothing can have replaced it.
        self.skip == 0 && joined_path(&self.dir, R::TABLE).exists()
    }
}

impl<R: Record> Iterator for Rows<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Result<R>> {
        loop {
            if let Some(row) = self.ready.get(self.at).cloned() {
                self.at += 1;
                self.returned += 1;
                return Some(Ok(row));
            }
            if let Err(error) = self.advance()? {
                return Some(Err(error));
            }
        }
    }
}

/// The files of a table, in order. If the joined file exists, parts are remains of a crash between joining and
/// removing, and would count every row twice: they are ignored. A merged run has a file for each shard, in the order of
/// the shards.
pub(crate) fn table_files(dir: &Path, table: &str) -> Result<Vec<PathBuf>> {
    let joined = joined_path(dir, table);
    match joined.try_exists() {
        Ok(true) => Ok(vec![joined]),
        Ok(false) => match part_paths(&dir.join(table))? {
            parts if parts.is_empty() => shard_paths(&dir.join(table)),
            parts => Ok(parts),
        },
        Err(source) => Err(StoreError::io("stat", &joined, source)),
    }
}

fn joined_path(dir: &Path, table: &str) -> PathBuf {
    dir.join(format!("{table}.parquet"))
}

/// The files in a merged table's folders `shard=0`, `shard=1` .., by number of the shard; empty without them.
fn shard_paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StoreError::io("opendir", folder, source)),
    };
    let mut shards = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| StoreError::io("readdir", folder, source))?;
        let name = entry.file_name();
        let index = name.to_str().and_then(|name| name.strip_prefix(SHARD_FOLDER)).and_then(|index| index.parse().ok());
        shards.extend(index.map(|index: u32| (index, entry.path())));
    }
    shards.sort();
    let files = shards.iter().map(|(_, folder)| part_paths(folder)).collect::<Result<Vec<_>>>()?;
    Ok(files.concat())
}

/// Beginning of the name of a shard's folder within a merged table's folder (Hive partitioning).
const SHARD_FOLDER: &str = "shard=";

/// The closed parts in a table's folder, in order; empty without the folder.
pub(crate) fn part_paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StoreError::io("opendir", folder, source)),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|source| StoreError::io("readdir", folder, source))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    // Parts are sorted by number: from part 1,000,000 on, names have seven digits.
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    Ok(paths)
}

/// Number of closed parts of a table and of their rows; a part with an unreadable footer counts no rows.
pub(crate) fn count_parts(dir: &Path, table: &str) -> Result<(usize, u64)> {
    let files = table_files(dir, table)?;
    let rows = files.iter().filter_map(|path| Input::open(path).ok()).map(|input| input.rows()).sum();
    Ok((files.len(), rows))
}
