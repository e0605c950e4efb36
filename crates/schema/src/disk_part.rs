//! What `disk` measures: a part of the JSON document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::{Quantiles, Run, Validity};

/// What one test of a disk came to. Every figure is fio's own, but for those named otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskTest {
    /// Bytes read and written a second, the flush at the end included. Of tests that read and write: both together.
    pub bytes_per_s: f64,
    /// Reads and writes a second; of `seeks`, seeks a second, each of which reads; of `commits`, commits a second.
    pub iops: f64,
    /// CPU time over elapsed time, user and kernel: 1 is one core all the time. Kernel threads that write pages back later
    /// are not in it.
    pub cpu: f64,
    /// Of that, the share in user mode.
    pub cpu_user: f64,
    /// Of that, the share in the kernel.
    pub cpu_system: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// How long it took in seconds.
    pub duration_s: f64,
    /// Time of one read or write from its submission to its completion; of `commits`, of one write and its fdatasync. Percentiles
    /// are fio's, which are in steps of up to 1.6 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Quantiles>,
    /// Bytes that the kernel moved from or to storage for the test, over the bytes that it asked for: getrusage(2). Far below 1, it
    /// was the page cache that was measured, or a file system in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_share: Option<f64>,
    /// Whether the page cache was gone round (O_DIRECT).
    pub direct: bool,
}

/// The document of `disk`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// What was measured, where and when; folder, file system, size of the file and fio's version are among the host's settings.
    pub run: Run,
    /// Whether to believe it.
    pub validity: Validity,
    /// By name of the test. One that could not be made is absent, and a check says why.
    pub disk: BTreeMap<String, DiskTest>,
}
