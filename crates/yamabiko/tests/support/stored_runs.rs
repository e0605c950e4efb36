//! Writes stored runs without measuring anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use schema::document::{Document, Load, Quantiles, Run, SCHEMA, Validity};
use store::{RunFolder, RunStore};

/// Writes a complete run that began `second` seconds after 2026-11-20 09:30:00 UTC, with a p99 of `p99_ms`.
pub fn ended(store: &Path, name: &str, second: u64, command: &str, p99_ms: u64) -> PathBuf {
    let run = start_run(store, name, second);
    run.write_plan("seed = 1\n").unwrap();
    run.write_summary(&document(run.id(), command, p99_ms)).unwrap();
    run.path().to_owned()
}

/// Writes a run that counts as running as long as the returned value exists.
pub fn start_run(store: &Path, name: &str, second: u64) -> RunFolder {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_167_000 + second);
    RunStore::at(store).create(name, time, second).unwrap()
}

/// Writes a run whose document names other runs, like an experiment's document.
pub fn experiment(store: &Path, name: &str, second: u64, named: &[String]) -> PathBuf {
    let dir = ended(store, name, second, "yamabiko capacity http://server/", 1);
    let path = dir.join("summary.json");
    let mut document: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    document["capacity"] = serde_json::json!({ "trials": named });
    fs::write(path, document.to_string()).unwrap();
    dir
}

/// The run's id: the name of its folder.
pub fn id(dir: &Path) -> String {
    dir.file_name().unwrap().to_str().unwrap().to_owned()
}

fn document(id: &str, command: &str, p99_ms: u64) -> Document {
    let times = Quantiles { count: 1000, p50: 1_000_000, p99: p99_ms * 1_000_000, ..Quantiles::default() };
    let load = Load {
        offered_requests: 1000,
        offered_rate_per_s: 100.0,
        achieved_rate_per_s: 100.0,
        completed: 1000,
        response_time_ns: times,
        ..Load::default()
    };
    Document {
        schema: SCHEMA.into(),
        run: Run { id: id.into(), command: command.into(), duration_s: 10.0, ..Run::default() },
        validity: Validity::from_checks(Vec::new()),
        load: Some(load),
        path: None,
        server: None,
        watch: None,
        tap: None,
        slo: None,
        cache: None,
    }
}
