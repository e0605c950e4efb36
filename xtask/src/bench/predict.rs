//! `cargo xtask bench predict [--rounds N] [--seconds N]`: the capacity that `yamabiko predict` predicts, compared with
//! the one that `yamabiko capacity` measures.
//!
//! Five servers with CPU limits: files, the directory service (`examples/directory`) without and with its result cache,
//! TLS with a connection for each request, with complete and with resumed handshakes. For each server, the prediction
//! from loads of `--seconds` comes first, then one search with trials of 20 s. If components can model a server, their
//! sum is printed, too. `--only` runs one of the five.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use schema::document::Validity;
use schema::{CapacityDocument, CheckState, MeasuredLoad, PredictDocument, TrialPart, Verdict};
use serde::de::DeserializeOwned;

use super::extent::{Extent, only};
use super::rounds::median;
use super::servers::{PORT, Site, certificate, need, output, yamabiko};

/// The default: one prediction of each server, from loads of 4 s.
const USUAL_EXTENT: Extent = Extent { rounds: 1, seconds: 4 };
/// CPU limit of the servers. For files it is lower: they are so cheap that the client would be the limit.
const SHARE: &str = "20%";
const SHARE_OF_FILES: &str = "5%";
/// Lower limit of the result cache, for the same reason; with a lower one a Python application takes too long to start.
const SHARE_OF_CACHED: &str = "6%";
/// Higher limit of the application alone: with a low limit the kernel grants CPU time in slices of a millisecond, about
/// three requests, and the CPU time per request depends on it.
const SHARE_OF_DIRECTORY: &str = "50%";
/// Objective, loose enough that the CPU limit is the bottleneck.
const OBJECTIVE: &str = "p99 < 500ms, errors < 0.1%";
/// Prediction error above which a reason is printed.
const MAX_ERROR: f64 = 0.15;

/// Names of the servers for `--only`.
const SITES: [&str; 5] = ["files", "directory", "cached", "tls", "resumed"];

/// One of the servers.
struct Case {
    name: &'static str,
    url: String,
    server: String,
    share: &'static str,
    load: &'static [&'static str],
    /// Options that model the server by components. `None` for an application, which is not a component.
    described: &'static [&'static str],
}

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement.
pub fn run_with(words: &[&str]) -> Result<()> {
    let (selected, words) = only(words, &SITES)?;
    let extent = USUAL_EXTENT.changed_by(&words)?;
    need("gunicorn")?;
    need("curl")?;
    let (program, site) = (yamabiko()?, Site::new()?);
    certificate(&site.path(""))?;
    let mut cases = cases(&program, &site)?;
    if let Some(at) = selected.and_then(|selected| SITES.iter().position(|&site| site == selected)) {
        cases = vec![cases.swap_remove(at)];
    }
    println!(
        "held to {SHARE} of a core (files to {SHARE_OF_FILES}, the directory to {SHARE_OF_DIRECTORY}, its cached results to {SHARE_OF_CACHED}), objective `{OBJECTIVE}`; loads of {} s, then capacity --quick",
        extent.seconds
    );
    println!(
        "{:<28} {:>9} {:>19} {:>9} {:>19} {:>7} {:>9} {:>7}  bound by: predicted, measured",
        "site", "predicted", "95 %", "measured", "bracket", "error", "components", "error"
    );
    let mut off = 0;
    for case in cases.iter().flat_map(|case| std::iter::repeat_n(case, extent.rounds)) {
        let each = format!("{}s", extent.seconds);
        let words = [&["--no-memory", "--load-time", &each], case.described].concat();
        let predicted: PredictDocument = run_document(&program, "predict", case, &words)?;
        let found: CapacityDocument =
            run_document(&program, "capacity", case, &["--quick", "--no-overload", "--slo", OBJECTIVE])?;
        let (line, error) = line(case.name, &predicted, &found);
        println!("{line}");
        println!("    {}; {}", describe_prediction(&predicted), describe_measurement(&found));
        doubts("predicted", &predicted.validity);
        doubts("measured", &found.validity);
        off += u32::from(error.is_none_or(|error| error.abs() > MAX_ERROR));
    }
    println!("\n{off} of {} further off than {:.0} %", cases.len() * extent.rounds, MAX_ERROR * 100.0);
    Ok(())
}

fn cases(program: &Path, site: &Site) -> Result<Vec<Case>> {
    let (program, folder) = (program.display(), site.path(""));
    let folder = folder.display();
    let files = format!("exec {program} serve {folder} --listen 0.0.0.0:{PORT}");
    let directory = directory(site, &files)?;
    let secure = format!("{files} --tls {folder}/certificate.pem {folder}/key.pem");
    let of = |name, scheme: &str, path: &str, server: &str, load, described| Case {
        name,
        url: format!("{scheme}://server:{PORT}{path}"),
        server: server.to_owned(),
        share: SHARE,
        load,
        described,
    };
    // `serve` has small files in memory and uses io_uring.
    let memory = &["--components", "--object", "10KiB", "--model-waits", "io_uring"][..];
    let resumed = &["--components", "--object", "10KiB", "--model-waits", "io_uring", "--resumed", "100%"][..];
    // A Python program needs seconds to start with a few percent of a core; the server listens once it has started, and
    // then its cache is filled.
    let entry = "/app/entry/{random 1..200}";
    let slowly = &["--warmup", "8s", "--server-start-timeout", "60s"][..];
    Ok(vec![
        Case { share: SHARE_OF_FILES, ..of("files, 10 KB", "http", "/10k.bin", &files, &[], memory) },
        Case { share: SHARE_OF_DIRECTORY, ..of("directory", "http", entry, &directory, slowly, &[]) },
        Case {
            share: SHARE_OF_CACHED,
            ..of("directory, results cached", "http", entry, &format!("{directory} --cache"), slowly, &[])
        },
        of("TLS, handshakes in full", "https", "/10k.bin", &secure, &["-k", "--close", "--no-resumption"], memory),
        of("TLS, handshakes resumed", "https", "/10k.bin", &secure, &["-k", "--close"], resumed),
    ])
}

/// Command of the directory service behind the server command `files`, which waits for the service.
fn directory(site: &Site, files: &str) -> Result<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/directory");
    let source: PathBuf = source.canonicalize().context("examples/directory")?;
    let database = site.path("directory.db");
    output(Command::new("python3").arg(source.join("directory.py")).arg("make").arg(&database))?;
    let socket = "127.0.0.1:19000";
    Ok(format!(
        "DIRECTORY_DB={} gunicorn -w 1 -b {socket} --chdir {} directory:application & \
         until curl -sf -o /dev/null http://{socket}/entry/1; do sleep 0.1; done; {files} --dynamic /app=http://{socket}",
        database.display(),
        source.display()
    ))
}

fn run_document<D: DeserializeOwned>(program: &Path, verb: &str, case: &Case, more: &[&str]) -> Result<D> {
    let output = Command::new(program)
        .args([verb, &case.url, "--server", &case.server, "--server-cpu", case.share, "--json", "--no-save"])
        .args(case.load)
        .args(more)
        .output()
        .with_context(|| format!("yamabiko {verb}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.stdout.is_empty() {
        bail!("{}: yamabiko {verb}: {}", case.name, stderr.trim());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{}: yamabiko {verb}: {}", case.name, stderr.trim()))
}

/// Medians of the server's CPU time per request in the prediction's loads, and of the CPU speed probe.
fn describe_prediction(predicted: &PredictDocument) -> String {
    let limited: Vec<&MeasuredLoad> =
        predicted.predict.loads.iter().filter(|load| load.limited_cores.is_some()).collect();
    let costs: Vec<f64> = limited.iter().map(|load| 1e6 * load.busy_processes / load.rate_per_s).collect();
    cost_and_cpu_speed("predicted", &costs, limited.iter().filter_map(|load| load.cpu_probe_ns))
}

/// Medians of the server's CPU time per request in the counted long trials of the search, and of the CPU speed probe.
fn describe_measurement(found: &CapacityDocument) -> String {
    let counts = |trial: &&TrialPart| trial.search > 0 && trial.verdict != "void";
    let long: Vec<&TrialPart> = found.capacity.trials.iter().filter(counts).collect();
    let cost = |trial: &&TrialPart| Some(1e6 * trial.server?.cpu_cores / trial.achieved_rate_per_s);
    cost_and_cpu_speed(
        "measured",
        &long.iter().filter_map(cost).collect::<Vec<_>>(),
        long.iter().filter_map(|trial| trial.cpu_probe_ns),
    )
}

fn cost_and_cpu_speed(when: &str, costs_us: &[f64], probes_ns: impl Iterator<Item = u64>) -> String {
    let probes_us: Vec<f64> = probes_ns.map(|ns| ns as f64 / 1e3).collect();
    format!("{when}: {:.1} us per request, CPU probe {:.2} us", median(costs_us), median(&probes_us))
}

/// Prints the checks because of which a result is not valid.
fn doubts(of: &str, validity: &Validity) {
    for check in validity.checks.iter().filter(|check| check.state == CheckState::Failed) {
        println!("    {of}: {}: {}", check.name, check.why);
    }
}

/// A line of the table, and the relative error: predicted / measured - 1.
fn line(name: &str, predicted: &PredictDocument, found: &CapacityDocument) -> (String, Option<f64>) {
    let (predict, capacity) = (&predicted.predict, &found.capacity);
    let between =
        |interval: Option<[f64; 2]>| interval.map_or("-".to_owned(), |[low, high]| format!("{low:.0} to {high:.0}"));
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
    let error = predict.rate_per_s.zip(capacity.rate_per_s).map(|(predicted, measured)| predicted / measured - 1.0);
    let doubt = match (predicted.validity.verdict, found.validity.verdict) {
        (Verdict::Valid, Verdict::Valid) => String::new(),
        (first, second) => format!(" ({}, {})", first.name(), second.name()),
    };
    let sum = predict.component_sum.as_ref().and_then(|sum| sum.rate_per_s);
    let percent = |error: Option<f64>| error.map_or("-".to_owned(), |error| format!("{:+.1} %", error * 100.0));
    let line = format!(
        "{name:<28} {:>9} {:>19} {:>9} {:>19} {:>7} {:>9} {:>7}  {}, {}{doubt}",
        rate(predict.rate_per_s),
        between(predict.interval),
        rate(capacity.rate_per_s),
        between(capacity.interval),
        percent(error),
        rate(sum),
        percent(sum.zip(capacity.rate_per_s).map(|(sum, measured)| sum / measured - 1.0)),
        predict.bound_by,
        capacity.bound_by.name,
    );
    (line, error)
}
