//! `report --export otlp`: makes one OTLP message of a run's metrics.

use std::path::Path;

use anyhow::Result;
use report::export::otlp::{self, Durations};
use report::export::{self, Figures};
use schema::Document;

use super::request_targets;

/// Durations of a run's requests. Empty if the table is a sample, whose counts would be too low.
pub fn durations(dir: &Path, document: &Document) -> Result<Durations> {
    if document.run.recorded.is_none_or(|recorded| recorded.one_in > 1) {
        return Ok(Durations::default());
    }
    let mut durations = Durations::of(&request_targets(dir));
    for row in store::read_requests(dir)? {
        durations.add(&row?);
    }
    Ok(durations)
}

/// All metrics of a run as one message.
pub fn message(dir: &Path) -> Result<Vec<u8>> {
    let figures = Figures::read(dir)?;
    let durations = durations(dir, &store::read_summary(dir)?)?;
    Ok(otlp::whole(&figures, &export::metrics(&figures), &durations))
}
