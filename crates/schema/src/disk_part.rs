//! The disk part of the JSON document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Quantiles, Run, Validity};

/// Figures of one disk test, from fio unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskTest {
    /// Bytes read and written per second, including the final flush.
    pub bytes_per_s: f64,
    /// Reads and writes per second; of `seeks`, seeks (each reads a block); of `commits`, commits.
    pub iops: f64,
    /// CPU time over elapsed time, user and kernel: 1 is one core all the time. Kernel threads that write pages back later
    /// are not in it.
    pub cpu: f64,
    /// User part of it.
    pub cpu_user: f64,
    /// System part of it.
    pub cpu_system: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Duration in seconds.
    pub duration_s: f64,
    /// Time of one read or write from submission to completion; of `commits`, of one write and its fdatasync. Percentiles have
    /// fio's resolution of 1.6 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Quantiles>,
    /// Bytes that the kernel moved from or to storage over bytes requested, by getrusage(2). Far below 1 the page cache or a
    /// memory file system was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_share: Option<f64>,
    /// Whether the page cache was bypassed (O_DIRECT).
    pub direct: bool,
}

/// The document of `disk`: a run's document with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The run; folder, file system, file size and fio's version are among the host's settings.
    pub run: Run,
    /// Validity of the figures.
    pub validity: Validity,
    /// Figures by name of the test. A test that failed is absent; a check states why.
    pub disk: BTreeMap<String, DiskTest>,
}
