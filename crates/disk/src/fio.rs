//! Finds and runs fio, and parses its JSON.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use schema::{DiskTest, Quantiles};
use serde::Deserialize;
use sys::collected::{Killed, Used, collect};
use sys::sandbox::Exit;
use sys::signal::Interrupts;

use super::scratch::Scratch;
use super::trial::{FioCommand, Trial};
use experiment::ExperimentError;

/// Paths of the program in distributions.
const PROGRAMS: [&str; 2] = ["/usr/bin/fio", "/usr/local/bin/fio"];

/// An installed fio.
#[derive(Clone, Debug)]
pub(super) struct Fio {
    program: PathBuf,
    version: String,
}

/// Output of fio for one test.
#[derive(Debug)]
pub(super) struct FioOutput {
    /// Why fio was killed, if it was.
    pub killed: Option<Killed>,
    /// The JSON document, without messages before it.
    pub json: String,
    /// Messages of fio.
    messages: String,
    exit: Exit,
    used: Used,
}

impl Fio {
    /// Finds fio and reads its version.
    pub(super) fn find() -> Result<Fio, ExperimentError> {
        let missing = ExperimentError::Missing { program: "fio", fix: "apt-get install fio" };
        let program = PROGRAMS.iter().map(PathBuf::from).find(|place| place.exists()).ok_or(missing)?;
        let output = collect(&[program.clone().into(), "--version".into()], &[], Duration::from_secs(10), None)?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !version.starts_with("fio-") {
            return Err(ExperimentError::Program {
                program: "fio",
                why: format!("its version is {version:?}; expected fio-.."),
            });
        }
        Ok(Fio { program, version })
    }

    /// Version, such as `fio-3.33`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Runs fio to its end.
    pub(super) fn run(
        &self,
        words: &FioCommand,
        scratch: &Scratch,
        limit: Duration,
        interrupts: &Interrupts,
    ) -> Result<FioOutput, ExperimentError> {
        let argv: Vec<OsString> =
            std::iter::once(self.program.clone().into()).chain(words.words.iter().map(OsString::from)).collect();
        let inherited: Vec<BorrowedFd<'_>> =
            std::iter::once(scratch.as_fd()).chain(words.lists.iter().map(File::as_fd)).collect();
        let done = collect(&argv, &inherited, limit, Some(interrupts))?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        // Messages about options precede the document.
        let (before, json) = text.split_at(text.find('{').unwrap_or(text.len()));
        let messages = format!("{before} {}", String::from_utf8_lossy(&done.stderr));
        Ok(FioOutput {
            killed: done.killed,
            json: json.to_owned(),
            messages: messages.split_whitespace().collect::<Vec<_>>().join(" "),
            exit: done.exit,
            used: done.used,
        })
    }
}

/// The parts of fio's document that are used.
#[derive(Debug, Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i64,
    read: Direction,
    write: Direction,
    #[serde(default)]
    sync: Sync,
    /// Percent of `job_runtime`.
    usr_cpu: f64,
    sys_cpu: f64,
    /// Milliseconds.
    job_runtime: u64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    io_bytes: u64,
    bw_bytes: f64,
    iops: f64,
    total_ios: u64,
    #[serde(default)]
    clat_ns: Latency,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sync {
    lat_ns: Latency,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Latency {
    #[serde(rename = "N")]
    count: u64,
    mean: f64,
    stddev: f64,
    min: u64,
    max: u64,
    percentile: BTreeMap<String, u64>,
}

impl Latency {
    fn quantiles(&self) -> Option<Quantiles> {
        // fio reports the middle of a bucket as percentile, which may exceed the exact minimum and maximum.
        let at = |name: &str| Some(self.percentile.get(name)?.min(&self.max).max(&self.min)).copied();
        if self.min > self.max {
            return None;
        }
        Some(Quantiles {
            count: (self.count > 0).then_some(self.count)?,
            mean: self.mean.clamp(self.min as f64, self.max as f64),
            stddev: self.stddev,
            min: self.min,
            p50: at("50.000000")?,
            p75: at("75.000000")?,
            p90: at("90.000000")?,
            p95: at("95.000000")?,
            p99: at("99.000000")?,
            p99_9: at("99.900000")?,
            p99_99: at("99.990000")?,
            max: self.max,
        })
    }
}

/// Figures of one test, or why there are none.
pub(super) fn figures(test: Trial, output: &FioOutput) -> Result<DiskTest, String> {
    let messages = || match output.messages.as_str() {
        "" => "no message".to_owned(),
        text => text.chars().take(300).collect(),
    };
    let document: Output = serde_json::from_str(&output.json)
        .map_err(|why| format!("fio ended with {:?} and unreadable output ({why}): {}", output.exit, messages()))?;
    if let Some(job) = document.jobs.iter().find(|job| job.error != 0) {
        let errno = std::io::Error::from_raw_os_error(i32::try_from(job.error).unwrap_or_default());
        return Err(format!("fio: {errno}: {}", messages()));
    }
    if output.exit != Exit::Code(0) {
        return Err(format!("fio ended with {:?}: {}", output.exit, messages()));
    }
    let jobs = &document.jobs;
    let sum = |of: &dyn Fn(&Job) -> f64| jobs.iter().map(of).sum::<f64>();
    let count = |of: &dyn Fn(&Job) -> u64| jobs.iter().map(of).sum::<u64>();
    let (read_bytes, written_bytes) = (count(&|job| job.read.io_bytes), count(&|job| job.write.io_bytes));
    if read_bytes + written_bytes == 0 {
        return Err(format!("fio transferred no bytes: {}", messages()));
    }
    let (bytes_per_s, iops) = match test {
        // A block read and written back counts once.
        Trial::Rewrite => (sum(&|job| job.write.bw_bytes), sum(&|job| job.write.iops)),
        Trial::Seeks => (sum(&|job| job.read.bw_bytes), sum(&|job| job.read.iops)),
        _ => (sum(&|job| job.read.bw_bytes + job.write.bw_bytes), sum(&|job| job.read.iops + job.write.iops)),
    };
    let latency = match (test, jobs.as_slice()) {
        (Trial::Commits, [job]) => job.sync.lat_ns.quantiles(),
        (_, [job]) if job.read.total_ios > 0 && job.write.total_ios == 0 => job.read.clat_ns.quantiles(),
        (_, [job]) if job.write.total_ios > 0 && job.read.total_ios == 0 => job.write.clat_ns.quantiles(),
        // Percentiles of several distributions do not add up.
        _ => None,
    };
    let (cpu_user, cpu_system) = (sum(&|job| job.usr_cpu) / 100.0, sum(&|job| job.sys_cpu) / 100.0);
    let storage_share = if read_bytes > 0 {
        output.used.storage_read_bytes as f64 / read_bytes as f64
    } else {
        output.used.storage_written_bytes as f64 / written_bytes as f64
    };
    Ok(DiskTest {
        bytes_per_s,
        iops,
        cpu: cpu_user + cpu_system,
        cpu_user,
        cpu_system,
        read_bytes,
        written_bytes,
        duration_s: jobs.iter().map(|job| job.job_runtime).max().unwrap_or_default() as f64 / 1e3,
        latency_ns: latency,
        storage_share: Some(storage_share),
        direct: test.direct(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn direction(bytes: u64, per_s: f64, iops: f64, count: u64) -> serde_json::Value {
        json!({
            "io_bytes": bytes, "bw_bytes": per_s, "iops": iops, "total_ios": count, "runtime": 2000,
            "clat_ns": { "min": 10, "max": 900, "mean": 100.5, "stddev": 3.0, "N": count, "percentile": {
                "50.000000": 90, "75.000000": 110, "90.000000": 120, "95.000000": 130, "99.000000": 140,
                "99.900000": 150, "99.990000": 160 } }
        })
    }

    fn job(read: serde_json::Value, write: serde_json::Value) -> serde_json::Value {
        json!({
            "jobname": "x", "error": 0, "read": read, "write": write, "usr_cpu": 12.5, "sys_cpu": 30.0, "job_runtime": 2000,
            "sync": { "total_ios": 5, "lat_ns": { "min": 1, "max": 9, "mean": 4.0, "stddev": 1.0, "N": 5, "percentile": {
                "50.000000": 2, "75.000000": 3, "90.000000": 4, "95.000000": 5, "99.000000": 6, "99.900000": 7, "99.990000": 8 } } }
        })
    }

    fn output(jobs: &[serde_json::Value]) -> FioOutput {
        FioOutput {
            killed: None,
            json: json!({ "fio version": "fio-3.33", "jobs": jobs }).to_string(),
            messages: String::new(),
            exit: Exit::Code(0),
            used: Used { storage_read_bytes: 500, storage_written_bytes: 2000, ..Used::default() },
        }
    }

    fn none() -> serde_json::Value {
        direction(0, 0.0, 0.0, 0)
    }

    #[test]
    fn figures_of_fio_are_reported_unchanged() {
        let figures = figures(Trial::RandomRead, &output(&[job(direction(1000, 4096.0, 1.5, 7), none())])).unwrap();
        assert_eq!((figures.bytes_per_s, figures.iops, figures.read_bytes), (4096.0, 1.5, 1000));
        assert_eq!((figures.cpu, figures.cpu_user, figures.cpu_system), (0.425, 0.125, 0.3));
        let latency = figures.latency_ns.unwrap();
        assert_eq!((latency.count, latency.p50, latency.p99, latency.p99_99, latency.max), (7, 90, 140, 160, 900));
        assert_eq!((figures.storage_share, figures.duration_s, figures.direct), (Some(0.5), 2.0, true));
    }

    #[test]
    fn seekers_are_summed_and_a_rewritten_block_counts_once() {
        let seeker = job(direction(1600, 100.0, 10.0, 100), direction(160, 10.0, 1.0, 10));
        let seeks = figures(Trial::Seeks, &output(&[seeker.clone(), seeker.clone(), seeker.clone()])).unwrap();
        assert_eq!((seeks.iops, seeks.bytes_per_s, seeks.latency_ns), (30.0, 300.0, None));
        assert!((seeks.cpu - 3.0 * 0.425).abs() < 1e-9);
        let rewrite =
            figures(Trial::Rewrite, &output(&[job(direction(1600, 99.0, 9.9, 9), direction(1600, 100.0, 10.0, 10))]))
                .unwrap();
        assert_eq!((rewrite.bytes_per_s, rewrite.iops), (100.0, 10.0));
    }

    #[test]
    fn commit_latency_is_that_of_fdatasync() {
        let commits = figures(Trial::Commits, &output(&[job(none(), direction(1000, 100.0, 10.0, 10))])).unwrap();
        assert_eq!(commits.latency_ns.unwrap().p50, 2);
        assert_eq!((commits.iops, commits.storage_share), (10.0, Some(2.0)));
    }

    proptest! {
        /// fio reports the middle of a bucket as percentile, which may lie outside the minimum and maximum.
        #[test]
        fn percentiles_are_clamped_to_minimum_and_maximum(mut values in prop::collection::vec(1u64..10_000_000, 1..60), off in 0.97..1.03f64) {
            values.sort_unstable();
            let at = |percent: f64| {
                let exact = values[((values.len() as f64 * percent / 100.0).ceil() as usize).max(1) - 1];
                (exact as f64 * off) as u64
            };
            let names = ["50.000000", "75.000000", "90.000000", "95.000000", "99.000000", "99.900000", "99.990000"];
            let latency = Latency {
                count: values.len() as u64,
                mean: values.iter().sum::<u64>() as f64 / values.len() as f64,
                stddev: 1.0,
                min: values[0],
                max: values[values.len() - 1],
                percentile: names.iter().map(|name| ((*name).to_owned(), at(name.parse().unwrap()))).collect(),
            };
            let quantiles = latency.quantiles().unwrap();
            prop_assert!(quantiles.is_consistent(), "{:?}", quantiles);
        }
    }

    #[test]
    fn errors_of_fio_are_reported() {
        let mut broken = output(&[]);
        broken.json = "fio: nonsense".to_owned();
        broken.messages = "unknown option".to_owned();
        assert!(figures(Trial::Seeks, &broken).unwrap_err().contains("unknown option"));
        let mut job_failed = job(none(), none());
        job_failed["error"] = json!(28);
        let why = figures(Trial::WritePerBlock, &output(&[job_failed])).unwrap_err();
        assert!(why.contains("No space left"), "{why}");
        let why = figures(Trial::ReadPerBlock, &output(&[job(none(), none())])).unwrap_err();
        assert!(why.contains("no byte"), "{why}");
        let mut ended = output(&[job(direction(1, 1.0, 1.0, 1), none())]);
        ended.exit = Exit::Signal(9);
        assert!(figures(Trial::ReadPerBlock, &ended).is_err());
    }
}
