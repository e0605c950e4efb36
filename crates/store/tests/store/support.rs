//! Helpers for the tests of this crate.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schema::document::{Document, Run, SCHEMA, Validity};
use schema::{FailureCause, RequestRecord};
use store::{RunFolder, RunStore};
use tempfile::TempDir;
use units::Timestamp;

/// 2026-11-20 09:30:05 UTC.
pub fn morning() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_167_005)
}

/// A new run store with one run.
pub fn fresh_run() -> (TempDir, RunStore, RunFolder) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let run_store = RunStore::at(dir.path());
    let run = run_store.create("bench", morning(), 7).expect("a run folder");
    (dir, run_store, run)
}

/// A request whose fields differ by its number; every third one failed.
pub fn request(number: u64) -> RequestRecord {
    let at = |offset| Timestamp::from_nanos(number * 1_000_000 + offset);
    let failed = number % 3 == 2;
    RequestRecord {
        sequence: number,
        client: (number % 100) as u32,
        connection: Some(number / 2),
        session: None,
        url: 0,
        stream: None,
        scheduled_at: at(0),
        started_at: Some(at(5_000)),
        connected_at: number.is_multiple_of(2).then(|| at(48_000_000)),
        secured_at: number.is_multiple_of(4).then(|| at(48_005_000)),
        sent_at: Some(at(48_010_000)),
        first_byte_at: (!failed).then(|| at(96_000_000)),
        done_at: at(97_000_000),
        status: if failed { 0 } else { 200 },
        bytes_received: if failed { 0 } else { 10_240 },
        head_bytes: if failed { 0 } else { 240 },
        keep_alive: !failed && number.is_multiple_of(2),
        bytes_sent: 80,
        attempts: 1,
        early_response: false,
        queued: false,
        failure: failed.then_some(FailureCause::ResponseTimeout),
    }
}

pub fn requests(numbers: std::ops::Range<u64>) -> Vec<RequestRecord> {
    numbers.map(request).collect()
}

/// A document with nothing measured.
pub fn document(id: &str) -> Document {
    Document {
        schema: SCHEMA.into(),
        run: Run { id: id.into(), ..Run::default() },
        validity: Validity::from_checks(Vec::new()),
        load: None,
        path: None,
        server: None,
        watch: None,
        tap: None,
        slo: None,
        cache: None,
    }
}
