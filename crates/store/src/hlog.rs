//! HdrHistogram interval logs (format V2, deflated): one file for each quantity. The HdrHistogram tools of any language
//! read and merge these files.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, IntervalLogWriterBuilder, LogEntry};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};
use stats::Histogram;

use crate::{Result, StoreError, files};

/// `(from, to, values)`: an interval in nanoseconds since the run's zero, and the values recorded in it.
pub(crate) type Interval<'a> = (u64, u64, &'a Histogram);

/// Writes `dir/<name>.hlog`.
pub(crate) fn write(dir: &Path, name: &str, zero: SystemTime, intervals: &[Interval<'_>]) -> Result<()> {
    let path = dir.join(format!("{name}.hlog"));
    let wrong = |why: String| StoreError::Log { path: path.clone(), why };
    let mut text = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(&format!("{name}, in ns; intervals count from the run's zero"))
        .with_start_time(zero)
        .with_base_time(zero)
        // The column of largest values is in ms, as other tools expect; the histograms are in ns.
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut text, &mut serializer)
        .map_err(|error| wrong(error.to_string()))?;
    for &(from, to, values) in intervals {
        let (start, length) = (Duration::from_nanos(from), Duration::from_nanos(to.saturating_sub(from)));
        log.write_histogram(values.inner(), start, length, None).map_err(|error| wrong(error.to_string()))?;
    }
    files::write_whole(&path, &text)
}

/// All intervals of `dir/<name>.hlog` as one histogram, such as `response_time`.
///
/// # Errors
/// The file does not exist, cannot be read, or is not a histogram log.
pub fn read_histogram(dir: &Path, name: &str) -> Result<Histogram> {
    let path = dir.join(format!("{name}.hlog"));
    let text = fs::read(&path).map_err(|source| StoreError::io("read", &path, source))?;
    let wrong = |why: String| StoreError::Log { path: path.clone(), why };
    let mut all = Histogram::new();
    let mut deserializer = Deserializer::new();
    for entry in IntervalLogIterator::new(&text) {
        let LogEntry::Interval(interval) = entry.map_err(|error| wrong(format!("{error:?}")))? else { continue };
        let bytes = STANDARD.decode(interval.encoded_histogram()).map_err(|error| wrong(error.to_string()))?;
        let counts: hdrhistogram::Histogram<u64> =
            deserializer.deserialize(&mut &bytes[..]).map_err(|error| wrong(format!("{error:?}")))?;
        all.add_counts(&counts);
    }
    Ok(all)
}
