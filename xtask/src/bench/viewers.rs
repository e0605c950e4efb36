//! `cargo xtask bench viewers [--rounds N] [--seconds N]`: the effect of viewers of the live page on a run.
//!
//! An open-loop run over real distances without a page, with a page without viewers, with one viewer and with twenty,
//! in a random order each round; and a second run without a page, which shows the variation of the machine. A viewer
//! reads the page's event stream to its end, as a browser does; a browser's drawing would be on another machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use schema::Document;

use super::extent::Extent;
use super::rounds::{line, ratio};
use super::servers::{PORT, Site, yamabiko};

/// Rounds of five runs.
const USUAL_EXTENT: Extent = Extent { rounds: 7, seconds: 8 };
/// Offered rate, far below the capacity, so that no queue affects the figures.
const RATE: &str = "4000/s";

/// Number of viewers of each kind of run; `None` is a run without a page.
const WAYS: [(&str, Option<usize>); 5] = [
    ("no page", None),
    ("no page again", None),
    ("page, no viewer", Some(0)),
    ("1 viewer", Some(1)),
    ("20 viewers", Some(20)),
];

/// Figures of one run.
struct Figures {
    response_p50_us: f64,
    response_p99_us: f64,
    send_lag_p99_us: f64,
    timing_error_p99_us: f64,
    /// Bytes that all viewers read.
    seen: u64,
    verdict: &'static str,
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
    let extent = USUAL_EXTENT.changed_by(words)?;
    let (program, site) = (yamabiko()?, Site::new()?);
    println!("{RATE} for {} s over 1,000 clients 48 ms away, 1 KB, nginx; {} rounds", extent.seconds, extent.rounds);
    let mut rounds: [Vec<Figures>; WAYS.len()] = Default::default();
    for round in 0..extent.rounds {
        // Each kind of run is at each position equally often.
        for place in 0..WAYS.len() {
            let way = (place * 2 + round) % WAYS.len();
            rounds[way].push(once(&program, &site, extent.seconds, WAYS[way].1)?);
        }
    }
    type Of = fn(&Figures) -> f64;
    let figures: [(&str, Of); 4] = [
        ("response p50", |f| f.response_p50_us),
        ("response p99", |f| f.response_p99_us),
        ("send lag p99", |f| f.send_lag_p99_us),
        ("timing error p99", |f| f.timing_error_p99_us),
    ];
    for (name, of) in figures {
        println!("{name}");
        let values: Vec<Vec<f64>> = rounds.iter().map(|runs| runs.iter().map(of).collect()).collect();
        for ((label, _), values_of) in WAYS.iter().zip(&values) {
            println!("{}  over no page {:.4}", line(label, "us", values_of), ratio(values_of, &values[0]));
        }
    }
    for ((label, _), runs) in WAYS.iter().zip(&rounds) {
        let not_valid: Vec<&str> = runs.iter().map(|run| run.verdict).filter(|verdict| *verdict != "valid").collect();
        let seen: u64 = runs.iter().map(|run| run.seen).sum();
        println!(
            "{label}: {} of {} valid {not_valid:?}; viewers read {} kB",
            runs.len() - not_valid.len(),
            runs.len(),
            seen / 1000
        );
    }
    Ok(())
}

fn once(program: &Path, site: &Site, seconds: u64, viewers: Option<usize>) -> Result<Figures> {
    let mut command = Command::new(program);
    command
        .args(["bench", &format!("http://server:{PORT}/1k.bin"), "--server", &site.nginx()])
        .args(["--rtt", "48ms", "--clients", "1000", "-r", RATE, "-d", &format!("{seconds}s"), "--json"])
        .env("YAMABIKO_RUNS", site.path("runs"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if viewers.is_some() {
        command.arg("--live=127.0.0.1:0");
    }
    let mut child = command.spawn().context("yamabiko bench")?;
    let mut stderr = BufReader::new(child.stderr.take().context("stderr of yamabiko bench")?);
    let mut watching: Vec<JoinHandle<u64>> = Vec::new();
    if let Some(viewers) = viewers {
        let mut first = String::new();
        stderr.read_line(&mut first)?;
        let Some(address) =
            first.trim().strip_prefix("live: http://").map(|rest| rest.trim_end_matches('/').to_owned())
        else {
            bail!("yamabiko bench --live: {}", first.trim());
        };
        watching =
            (0..viewers).map(|_| address.clone()).map(|address| thread::spawn(move || read_events(&address))).collect();
    }
    let rest = thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).map(|_| text).unwrap_or_default()
    });
    let output = child.wait_with_output()?;
    let stderr = rest.join().unwrap_or_default();
    let document: Document =
        serde_json::from_slice(&output.stdout).with_context(|| format!("yamabiko bench: {}", stderr.trim()))?;
    let seen = watching.into_iter().map(|viewer| viewer.join().unwrap_or(0)).sum();
    std::fs::remove_dir_all(site.path("runs")).context("the runs' folder")?;
    let load = document.load.context("the document has no load")?;
    let path = document.path.context("the document has no path")?;
    let us = |ns: u64| ns as f64 / 1e3;
    Ok(Figures {
        response_p50_us: us(load.response_time_ns.p50),
        response_p99_us: us(load.response_time_ns.p99),
        send_lag_p99_us: us(load.send_lag_ns.p99),
        timing_error_p99_us: us(path.timing_error_ns.p99),
        seen,
        verdict: document.validity.verdict.name(),
    })
}

/// Reads the event stream to its end; returns the number of bytes.
fn read_events(address: &str) -> u64 {
    let Ok(mut stream) = TcpStream::connect(address) else { return 0 };
    let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
    // The end of the run closes the stream; the timeout is for a hanging page.
    if stream.set_read_timeout(Some(Duration::from_secs(60))).is_err() || stream.write_all(request.as_bytes()).is_err()
    {
        return 0;
    }
    let (mut seen, mut bytes) = (0, [0; 64 * 1024]);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        seen += count as u64;
    }
    seen
}
