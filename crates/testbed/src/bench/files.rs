//! Files written at the end of a run of load: exact series, histograms, summary.

use load::Histograms;
use schema::{Document, ServerSecond};
use store::RunFolder;
use units::Timestamp;

use validity::evidence::WireFigures;

/// Writes the exact series, which replace the provisional rows written during the run.
pub(super) fn write_series(folder: &RunFolder, counted: &load::Outcome, server: &[ServerSecond]) -> store::Result<()> {
    if !server.is_empty() {
        folder.server_series().finish_with_rows(server)?;
    }
    let write = || -> store::Result<()> {
        folder.distributions().finish_with_rows(&counted.distributions)?;
        folder.series().finish_with_rows(&counted.seconds).map(drop)
    };
    write().or_else(|error| {
        if !error.is_disk_full() {
            return Err(error);
        }
        // The disk is full: removing the provisional rows makes room for the exact ones.
        for table in ["series", "distributions"] {
            let _ = std::fs::remove_dir_all(folder.path().join(table));
        }
        write()
    })
}

/// Writes summary and histograms.
pub(super) fn write_summary_files(
    folder: &RunFolder,
    document: &Document,
    histograms: &Histograms,
    wire: Option<&WireFigures>,
    (from, to): (Timestamp, Timestamp),
) -> store::Result<()> {
    folder.write_summary(document)?;
    let span = |histogram| [(from.as_nanos(), to.as_nanos(), histogram)];
    for (name, histogram) in [
        ("response_time", &histograms.response_time),
        ("service_time", &histograms.service_time),
        ("send_lag", &histograms.send_lag),
        ("connect", &histograms.connect),
        ("tls_handshake", &histograms.tls_handshake),
        ("first_byte", &histograms.first_byte),
        ("connection_duration", &histograms.connection_duration),
    ] {
        if name == "tls_handshake" && histogram.is_empty() {
            continue;
        }
        folder.write_hlog(name, &span(histogram))?;
    }
    if let Some(wire) = wire {
        // With these histograms a report need not read every row of the capture's tables.
        folder.write_hlog("wire_rtt", &span(&wire.handshake_rtt))?;
        folder.write_hlog("wire_service", &span(&wire.service_time))?;
    }
    Ok(())
}
