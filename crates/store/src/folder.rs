//! One run's folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use schema::{
    CacheExchange, CapacityDocument, CompareDocument, ConnectionRecord, DiskDocument, DistributionRecord, Document,
    GatewayDocument, Http2FrameRow, PredictDocument, QuicConnectionRecord, ReproductionDocument, RequestRecord,
    SecondRecord, ServerSecond, ServerWaitRow, ShareRow, TapExchange, TcpSampleRow, WatchPart, WatchSecond,
    WireRequest,
};
use stats::Histogram;

use crate::reader::count_parts;
use crate::{
    CacheExchangesWriter, ConnectionsWriter, DistributionsWriter, Http2FramesWriter, ProgressFile,
    QuicConnectionsWriter, RequestsWriter, Result, SeriesWriter, ServerSeriesWriter, ServerWaitsWriter, StoreError,
    TableWriter, TapsWriter, TcpSamplesWriter, WatchSeriesWriter, WireRequestsWriter, files, hlog,
};
use schema::Record;

/// The folder of a running run. The folder is locked (flock) until this is dropped, so that a list of runs
/// distinguishes a running run from a killed one.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    started: SystemTime,
    /// The open file that has the lock: the kernel also releases it when the process ends.
    lock: File,
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child process that is between fork and exec.
        let _ = self.lock.unlock();
    }
}

impl RunFolder {
    pub(crate) fn new(path: PathBuf, started: SystemTime) -> Result<Self> {
        let lock = File::open(&path).map_err(|source| StoreError::io("open", &path, source))?;
        match lock.lock() {
            // Some network file systems have no locks: there lists show a running run as unfinished.
            Err(source) if source.kind() != io::ErrorKind::Unsupported => {
                return Err(StoreError::io("flock", &path, source));
            }
            _ => {}
        }
        Ok(RunFolder { path, started, lock })
    }

    /// Creates the folder of a run at `path`, outside of a run store. Its name is the run's id.
    ///
    /// # Errors
    /// The folder exists or cannot be created, or its name is not text.
    pub fn create_at(path: &Path, started: SystemTime) -> Result<Self> {
        fs::create_dir(path).map_err(|source| StoreError::io("mkdir", path, source))?;
        let whole = fs::canonicalize(path).map_err(|source| StoreError::io("realpath", path, source))?;
        if whole.file_name().and_then(|name| name.to_str()).is_none() {
            let _ = fs::remove_dir(&whole);
            let why = "the name of a run's folder must be text (UTF-8)".to_owned();
            return Err(StoreError::Refused { what: path.display().to_string(), why });
        }
        RunFolder::new(whole, started)
    }

    /// Opens the folder of a run that ended, or was killed, to resume it.
    ///
    /// # Errors
    /// The folder does not exist, or another process has locked it.
    pub fn reopen(path: PathBuf, started: SystemTime) -> Result<Self> {
        // The folder's name is the id, so a relative or symbolic path is resolved first.
        let path = fs::canonicalize(&path).map_err(|source| StoreError::io("realpath", &path, source))?;
        let lock = File::open(&path).map_err(|source| StoreError::io("open", &path, source))?;
        match lock.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                let busy = io::Error::new(io::ErrorKind::ResourceBusy, "the run is still running in another process");
                Err(StoreError::io("flock", &path, busy))
            }
            Err(fs::TryLockError::Error(source)) if source.kind() != io::ErrorKind::Unsupported => {
                Err(StoreError::io("flock", &path, source))
            }
            _ => Ok(RunFolder { path, started, lock }),
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's id: the folder's name.
    pub fn id(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).expect("the run store names folders in ASCII")
    }

    /// Writes plan.toml atomically. A plan with credentials ([`schema::withheld`]) is readable by its owner only.
    ///
    /// # Errors
    /// A full disk or another failure of the file system.
    pub fn write_plan(&self, plan: &str) -> Result<()> {
        let path = self.path.join(PLAN);
        if schema::withheld::plan(plan) == plan {
            files::write_whole(&path, plan.as_bytes())
        } else {
            files::write_private(&path, plan.as_bytes())
        }
    }

    /// Writes summary.json atomically: a [`Document`], optionally with further parts. Its presence means that the run
    /// ended.
    ///
    /// # Errors
    /// A full disk or another failure of the file system; [`StoreError::Summary`] if the document could not be read
    /// back, as with a figure that is not a number.
    pub fn write_summary(&self, document: &impl serde::Serialize) -> Result<()> {
        let path = self.path.join(SUMMARY);
        let mut text = serde_json::to_string_pretty(document).map_err(|source| StoreError::summary(&path, source))?;
        text.push('\n');
        // JSON has no NaN: serde writes null, which no reader accepts. Writing fails instead of reading.
        serde_json::from_str::<Document>(&text).map_err(|source| StoreError::summary(&path, source))?;
        files::write_whole(&path, text.as_bytes())
    }

    /// Begins requests.parquet.
    pub fn requests(&self) -> RequestsWriter {
        TableWriter::<RequestRecord>::new(&self.path)
    }

    /// Begins series.parquet.
    pub fn series(&self) -> SeriesWriter {
        TableWriter::<SecondRecord>::new(&self.path)
    }

    /// Begins distributions.parquet.
    pub fn distributions(&self) -> DistributionsWriter {
        TableWriter::<DistributionRecord>::new(&self.path)
    }

    /// The writer of progress.json, for any thread.
    pub fn progress_file(&self) -> ProgressFile {
        ProgressFile::of(&self.path)
    }

    /// Begins server_series.parquet.
    pub fn server_series(&self) -> ServerSeriesWriter {
        TableWriter::<ServerSecond>::new(&self.path)
    }

    /// Begins connections.parquet.
    pub fn connections(&self) -> ConnectionsWriter {
        TableWriter::<ConnectionRecord>::new(&self.path)
    }

    /// Begins quic_connections.parquet.
    pub fn quic_connections(&self) -> QuicConnectionsWriter {
        TableWriter::<QuicConnectionRecord>::new(&self.path)
    }

    /// Begins wire_requests.parquet.
    pub fn wire_requests(&self) -> WireRequestsWriter {
        TableWriter::<WireRequest>::new(&self.path)
    }

    /// Begins watch_series.parquet.
    pub fn watch_series(&self) -> WatchSeriesWriter {
        TableWriter::<WatchSecond>::new(&self.path)
    }

    /// Begins taps.parquet.
    pub fn taps(&self) -> TapsWriter {
        TableWriter::<TapExchange>::new(&self.path)
    }

    /// Begins tcp_samples.parquet.
    pub fn tcp_samples(&self) -> TcpSamplesWriter {
        TableWriter::<TcpSampleRow>::new(&self.path)
    }

    /// Begins server_waits.parquet.
    pub fn server_waits(&self) -> ServerWaitsWriter {
        TableWriter::<ServerWaitRow>::new(&self.path)
    }

    /// Begins http2_frames.parquet.
    pub fn http2_frames(&self) -> Http2FramesWriter {
        TableWriter::<Http2FrameRow>::new(&self.path)
    }

    /// Writes a file atomically: `write` writes its content under another name, then the file is made durable and
    /// renamed.
    ///
    /// # Errors
    /// A full disk or another failure of the file system; the file then does not exist.
    pub fn write_file(&self, name: &str, write: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Result<()> {
        files::write_with(&self.path.join(name), write)
    }

    /// The same for a file that only its owner may read.
    ///
    /// # Errors
    /// A full disk or another failure of the file system.
    pub fn write_private_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        files::write_private(&self.path.join(name), bytes)
    }

    /// Begins cache_exchanges.parquet.
    pub fn cache_exchanges(&self) -> CacheExchangesWriter {
        TableWriter::<CacheExchange>::new(&self.path)
    }

    /// Writes `<name>.hlog`: `(from, to, values)` for each interval, in nanoseconds since the run's zero, rising.
    ///
    /// # Errors
    /// A full disk or another failure of the file system.
    pub fn write_hlog(&self, name: &str, intervals: &[(u64, u64, &Histogram)]) -> Result<()> {
        hlog::write(&self.path, name, self.started, intervals)
    }
}

/// Adds a part to the summary of the run in `dir`, or replaces it. Readers of the document do not see it.
///
/// # Errors
/// The summary does not exist, or the file system fails; the summary is then unchanged.
pub fn add_part(dir: &Path, name: &str, part: serde_json::Value) -> Result<()> {
    let path = dir.join(SUMMARY);
    let text = fs::read(&path).map_err(|source| StoreError::io("read", &path, source))?;
    let mut whole: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))?;
    whole.insert(name.to_owned(), part);
    let mut text = serde_json::to_string_pretty(&whole).map_err(|source| StoreError::summary(&path, source))?;
    text.push('\n');
    files::write_whole(&path, text.as_bytes())
}

/// Writes shares.parquet of the run in `dir`.
///
/// # Errors
/// A full disk or another failure of the file system; an earlier file is then unchanged.
pub fn write_shares(dir: &Path, shares: &[ShareRow]) -> Result<()> {
    TableWriter::<ShareRow>::new(dir).finish_with_rows(shares).map(drop)
}

/// The document of the run in `dir`.
///
/// # Errors
/// [`StoreError::Unfinished`] if there is no document; or the document is invalid.
pub fn read_summary(dir: &Path) -> Result<Document> {
    let path = dir.join(SUMMARY);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(source) if source.kind() == io::ErrorKind::NotFound && dir.is_dir() => {
            let (parts, rows) = count_parts(dir, RequestRecord::TABLE)?;
            return Err(StoreError::Unfinished { dir: dir.to_owned(), parts, rows });
        }
        Err(source) => return Err(StoreError::io("read", &path, source)),
    };
    serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))
}

/// The packet capture's part (`watch`) of the document of the run in `dir`, if the document has one.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_watch_part(dir: &Path) -> Result<Option<WatchPart>> {
    #[derive(serde::Deserialize)]
    struct Part {
        watch: Option<WatchPart>,
    }
    let path = dir.join(SUMMARY);
    let text = fs::read(&path).map_err(|source| StoreError::io("read", &path, source))?;
    let part: Part = serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))?;
    Ok(part.watch)
}

/// The document in `dir` if the run is a reproduction of a paper.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_reproduction(dir: &Path) -> Result<Option<ReproductionDocument>> {
    read_document_with("reproduce", dir)
}

/// The document in `dir` if the run is a disk benchmark.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_disk(dir: &Path) -> Result<Option<DiskDocument>> {
    read_document_with("disk", dir)
}

/// The document in `dir` if the run is a gateway measurement.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_gateway(dir: &Path) -> Result<Option<GatewayDocument>> {
    read_document_with("gateway", dir)
}

/// The document in `dir` if the run is a capacity search.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_capacity(dir: &Path) -> Result<Option<CapacityDocument>> {
    read_document_with("capacity", dir)
}

/// The document in `dir` if the run is a comparison.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_compare(dir: &Path) -> Result<Option<CompareDocument>> {
    read_document_with("compare", dir)
}

/// The document in `dir` if the run is a prediction.
///
/// # Errors
/// There is no document, or the part is not of this version.
pub fn read_predict(dir: &Path) -> Result<Option<PredictDocument>> {
    read_document_with("predict", dir)
}

fn read_document_with<D: serde::de::DeserializeOwned>(part: &str, dir: &Path) -> Result<Option<D>> {
    let path = dir.join(SUMMARY);
    let text = fs::read(&path).map_err(|source| StoreError::io("read", &path, source))?;
    let document: serde_json::Value =
        serde_json::from_slice(&text).map_err(|source| StoreError::summary(&path, source))?;
    if document.get(part).is_none() {
        return Ok(None);
    }
    serde_json::from_value(document).map(Some).map_err(|source| StoreError::summary(&path, source))
}

/// The plan of the run in `dir`, as text.
///
/// # Errors
/// There is no plan, or the file cannot be read.
pub fn read_plan(dir: &Path) -> Result<String> {
    let path = dir.join(PLAN);
    fs::read_to_string(&path).map_err(|source| StoreError::io("read", &path, source))
}

pub(crate) const PLAN: &str = "plan.toml";
pub(crate) const SUMMARY: &str = "summary.json";
