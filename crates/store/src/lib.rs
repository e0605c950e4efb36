//! The run store: a run on disk, and the list of runs.
//!
//! ```text
//!   RequestRecord ──> TableWriter ──> requests/000001.parquet ..  ──finish──>  requests.parquet
//!   SecondRecord  ──> TableWriter ──> series/000001.parquet ..    ──finish──>  series.parquet
//!   ConnectionRecord, WireRequest, WatchSecond ──> the same, of captured packets
//!   TapExchange   ──> the same, of socket calls
//!   TcpSampleRow, ServerWaitRow, Http2FrameRow ──> tcp_samples.parquet and others, at the end
//!   ShareRow      ──> shares.parquet, by `explain`
//!   CacheExchange ──> the same, of a cache's responses and their verification
//!   Histogram     ──────────────────────────────────────────────────────────>  response_time.hlog ..
//!   plan (text)   ──────────────────────────────────────────────────────────>  plan.toml
//!   Document      ──────────────────────────────────────────────────────────>  summary.json
//!   DistributionRecord ──> as SecondRecord: the heat map
//!   RunProgress      ── once a second, during the run ──────────────────────>  progress.json
//! ```
//!
//! A Parquet file without its footer cannot be read, so during a run each table is a folder of closed parts. The parts
//! are joined into one file when the run ends; the folder is removed after that file is synced. After a kill
//! every closed part stays readable, and [`RunEntry::state`] has their number. Live viewers read [`read_progress`] and
//! the series with a [`Tail`], which reads each part once.
//!
//! Never call this crate on a time-critical thread: closing a part encodes and writes. Pass records in batches; see
//! [`TableWriter`].
//!
//! [`RunStore::listing`] lists the runs, from the catalogue where the catalogue is up to date; [`archive`] copies runs
//! between run stores.
//!
//! Read [`run_store`] first, then [`table`] for the columns.

pub mod archive;
mod brief;
mod calendar;
mod catalogue;
mod decode;
mod disk_use;
mod encode;
mod entry;
mod error;
mod files;
mod folder;
mod hlog;
mod listing;
mod merge;
mod origin;
mod part_file;
mod progress;
mod reader;
mod removal;
pub mod run_store;
pub mod table;
mod tags;
mod tail;
mod writer;

pub use brief::{Brief, BriefLoad};
pub use calendar::{ctime, rfc3339, unix_ms};
pub use disk_use::{DiskUse, disk_use};
pub use entry::{RunEntry, RunState};
pub use error::{Result, StoreError};
pub use folder::{
    RunFolder, add_part, read_capacity, read_compare, read_disk, read_gateway, read_plan, read_predict,
    read_reproduction, read_summary, read_watch_part, write_shares,
};
pub use hlog::read_histogram;
pub use listing::{CatalogueUse, Listing};
pub use merge::FinishedTable;
pub use origin::imported_with;
pub use part_file::{PartFile, PartWriter};
pub use progress::{ProgressFile, progress_written, read_progress, read_shards_progress, write_shards_progress};
pub use reader::{
    Rows, read_cache_exchanges, read_connections, read_distributions, read_http2_frames, read_quic_connections,
    read_requests, read_series, read_server_series, read_server_waits, read_shares, read_taps, read_tcp_samples,
    read_watch_series, read_wire_requests,
};
pub use removal::{removable, remove};
pub use run_store::RunStore;
pub use table::{columns, columns_page};
pub use tags::{change_tags, read_tags};
pub use tail::{Fresh, Tail};
pub use writer::{
    CacheExchangesWriter, ConnectionsWriter, DistributionsWriter, Http2FramesWriter, QuicConnectionsWriter,
    RequestsWriter, SeriesWriter, ServerSeriesWriter, ServerWaitsWriter, SharesWriter, TableWriter, TapsWriter,
    TcpSamplesWriter, WatchSeriesWriter, WireRequestsWriter,
};
