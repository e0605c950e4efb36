//! The files of the merged run: the shards' tables side by side, series and histograms of the whole.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use schema::Document;
use store::RunFolder;

use crate::document::Figures;
use crate::error::MergeError;
use crate::source::Sources;

/// Tables whose rows are those of one shard. Series and distributions are written for the whole.
const TABLES: [&str; 9] = [
    "requests",
    "connections",
    "quic_connections",
    "wire_requests",
    "watch_series",
    "taps",
    "tcp_samples",
    "server_waits",
    "server_series",
];

/// Places the tables of the shards with a result as `requests/shard=3/requests.parquet`, which readers of Hive
/// partitions read as one table with a column `shard`. A table is linked where both runs are on one file system.
///
/// # Errors
/// A full disk, or a table that cannot be read.
pub(crate) fn place_tables(sources: &Sources, into: &Path) -> Result<(), MergeError> {
    for source in &sources.complete {
        for table in TABLES {
            let name = format!("{table}.parquet");
            let from = source.dir.join(&name);
            let folder = into.join(table).join(format!("shard={}", source.index));
            let place = || -> io::Result<()> {
                if !from.try_exists()? {
                    return Ok(());
                }
                fs::create_dir_all(&folder)?;
                let to = folder.join(&name);
                match fs::hard_link(&from, &to) {
                    Err(error) if error.kind() != ErrorKind::StorageFull => fs::copy(&from, &to).map(drop),
                    other => other,
                }
            };
            place().map_err(|error| MergeError::Table { path: from.clone(), source: error })?;
        }
    }
    Ok(())
}

/// Writes series, histograms and, last, the summary.
///
/// # Errors
/// A full disk or another failure of the file system.
pub(crate) fn write_figures(folder: &RunFolder, document: &Document, figures: &Figures) -> store::Result<()> {
    folder.distributions().finish_with_rows(&figures.load.distributions)?;
    folder.series().finish_with_rows(&figures.load.seconds)?;
    let (from, to) = figures.measured;
    let histograms = &figures.load.histograms;
    for (name, histogram) in [
        ("response_time", &histograms.response_time),
        ("service_time", &histograms.service_time),
        ("send_lag", &histograms.send_lag),
        ("connect", &histograms.connect),
        ("tls_handshake", &histograms.tls_handshake),
        ("first_byte", &histograms.first_byte),
        ("connection_duration", &histograms.connection_duration),
    ] {
        if name != "tls_handshake" || !histogram.is_empty() {
            folder.write_hlog(name, &[(from.as_nanos(), to.as_nanos(), histogram)])?;
        }
    }
    folder.write_summary(document)
}
