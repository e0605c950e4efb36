//! `yamabiko watch`: computes figures and logs from packets, live from a device or from a capture file.
//!
//! ```text
//!   live: sys::capture --\                     /--> summary, series --> one screen, or JSON
//!                         > watch (analysis) --+--> connections, requests --> the run's folder in the run store
//!   file: wire::capture -/                     \--> log files: Combined Log Format, CSV, JSON lines
//! ```
//!
//! Packets are analysed as they arrive, and records are written as connections close: memory use does not grow with the
//! length of the capture.

pub(super) mod blocks;
mod display;
pub(super) mod document;
mod file;
mod live;
mod logs;
#[cfg_attr(not(feature = "web"), allow(dead_code, reason = "only a receiver checks received messages"))]
mod message;
mod pcapng;
#[cfg(feature = "web")]
mod receive;
#[cfg_attr(not(feature = "tui"), path = "watch/no_screen.rs")]
mod screen;
#[cfg_attr(not(feature = "web"), path = "watch/no_send.rs")]
mod send;
mod sink;
#[cfg_attr(not(feature = "web"), allow(dead_code, reason = "only a receiver checks received messages"))]
mod view;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use schema::WatchDocument;
use store::{RunFolder, RunStore};
use sys::clock::{Clock, realtime_ns};
use sys::signal::Interrupts;
use testbed::snapshot::SnapshotWriter;
use units::Timestamp;
use watch::{CapturePoint, KeyLog, Watch, WatchSpec};

use super::bench::{command_line, print};
use crate::args::{self, At};
use crate::exit::{self, Exit};
use crate::terminal;
use display::Display;
use live::Live;
use message::End;
use pcapng::Recorder;
#[cfg(not(feature = "web"))]
use send::Sender;
use sink::Sink;
use view::{RttBuckets, View};

/// How a capture ended: times, interruption, failure.
pub struct CaptureEnd {
    /// Start of the capture.
    pub from: Timestamp,
    /// End of the capture.
    pub to: Timestamp,
    /// Whether Ctrl-C ended the capture before its duration was over.
    pub interrupted: bool,
    /// Why the source could not be read to its end. The packets before the failure are analysed.
    pub failure: Option<anyhow::Error>,
    /// Packets of a file that were sorted into the order of their timestamps.
    pub reordered: u64,
}

/// Analyses the packets of a device, a file or other hosts, and prints the summary.
pub fn run(arguments: &args::Watch) -> Result<Exit> {
    ensure!(
        arguments.show.live.is_none() || arguments.read.is_none(),
        "--live needs -i or --from: a capture file is stored first, and `yamabiko live RUN` shows it afterwards"
    );
    let page = crate::live_child::LivePage::start(&arguments.show, !arguments.no_save)?;
    let interrupts = Interrupts::install()?;
    #[cfg(feature = "web")]
    if let Some(from) = &arguments.from {
        return receive::run(arguments, from, &interrupts, &page);
    }
    let capture_point = capture_point(arguments.at);
    #[cfg(feature = "web")]
    if arguments.token_file.is_some() && arguments.to.is_none() {
        bail!("--token-file needs --to or --from");
    }
    let key_log = arguments.keylog.as_deref().map(read_key_log).transpose()?;
    let mut watch = Watch::new(WatchSpec { key_log, ..watch_spec(arguments, capture_point) });
    // The source is opened before the run's folder is created: a failure leaves no folder behind.
    let source = open_source(arguments)?;
    refuse_to_overwrite(arguments)?;
    // The snaplen of a file is unknown before its packets are read: 0.
    let snaplen = if arguments.interface.is_some() { live::snaplen(arguments) } else { 0 };
    let create = |path| Recorder::create(path, snaplen, &interrupts);
    let recorder = arguments.pcapng.as_deref().map(create).transpose()?;
    #[cfg(not(feature = "web"))]
    let sender: Option<Sender> = None;
    #[cfg(feature = "web")]
    let sender = match &arguments.to {
        Some(to) => Some(send::start(to, arguments, source.name(), capture_point)?),
        None => None,
    };
    let clock = Clock::start();
    let folder = create_folder(arguments, &clock)?;
    let opening = folder.as_ref().map(|folder| begin_progress(folder, &clock, &page));
    let mut sink = Sink::new(folder.as_ref(), arguments, arguments.interface.is_some(), recorder)?;
    let name = source.name().to_owned();
    let mut end = match source {
        Source::Live(capture, device) => {
            let mut display = Display::open(arguments.json, arguments.plain, live::start_message(arguments, &device));
            let live = Live {
                device: &device,
                duration: arguments.duration,
                capture_point,
                clock: &clock,
                interrupts: &interrupts,
                display: &mut display,
                opening: opening.as_ref(),
                sender: sender.as_ref(),
            };
            let end = live::watch(capture, live, &mut watch, &mut sink);
            display.close();
            end
        }
        Source::File(input, _) => file::watch(input, arguments, &interrupts, &mut watch, &mut sink),
    };
    if watch.live().counts.packets == 0
        && let Some(failure) = end.failure.take()
    {
        // Without a readable packet there is nothing to report and nothing to store.
        drop(sink);
        if let Some(folder) = &folder {
            let _ = std::fs::remove_dir_all(folder.path());
        }
        return Err(failure.context(name));
    }
    while watch.finish_some(end.to, CLOSE_BATCH) {
        sink.collect(&mut watch);
    }
    sink.collect(&mut watch);
    let mut part = sink.summary.part(&watch, &name, capture_point);
    if let Some(capture) = &mut part.capture {
        capture.reordered_packets = end.reordered;
    }
    let unsent_seconds = sink.new_seconds();
    let store_failure = sink.finish(part.capture_drops, end.to).err();
    let sending_failure = sender.and_then(|sender| {
        let elapsed_s = end.to.since(end.from).as_secs_f64();
        let rtt = RttBuckets::of(watch.handshake_rtt_histogram());
        let view = View { elapsed_s, totals: part.clone(), rtt, ..View::default() };
        let failure = end.failure.as_ref().map(|failure| format!("{failure:#}"));
        sender.finish(unsent_seconds, &view, End { interrupted: end.interrupted, failure }, &interrupts).err()
    });
    let document = document::make(part, &end, folder.as_ref(), &command_line())?;
    if let Some(folder) = &folder {
        folder.write_summary(&document)?;
    }
    if let Some(opening) = &opening {
        opening.watch_done(clock.now(), &document);
    }
    show(&document, arguments.json)?;
    let reading_failure = end.failure.map(|failure| failure.context(name));
    let store_failure = store_failure.map(|failure| failure.context("the figures are complete, the files are not"));
    match reading_failure.or(store_failure).or(sending_failure) {
        Some(failure) => Err(failure),
        None => Ok(exit::of_validity(&document.validity)),
    }
}

fn capture_point(at: At) -> CapturePoint {
    match at {
        At::Server => CapturePoint::AtServer,
        At::Client => CapturePoint::AtClient,
        At::Between => CapturePoint::Between,
    }
}

/// Reads the secrets of TLS connections.
pub(super) fn read_key_log(path: &Path) -> Result<Arc<KeyLog>> {
    let name = path.display();
    let mut text = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("opening the key log {name}"))?;
    file.take(KEY_LOG_MAX + 1).read_to_end(&mut text).with_context(|| format!("reading the key log {name}"))?;
    ensure!(
        text.len() as u64 <= KEY_LOG_MAX,
        "the key log {name} has more than {} MB; keep the lines of the captured connections",
        KEY_LOG_MAX >> 20
    );
    let log = KeyLog::parse(&text).with_context(|| format!("reading the key log {name}"))?;
    ensure!(!log.is_empty(), "the key log {name} has no secrets; a client writes them if SSLKEYLOGFILE names the file");
    Ok(Arc::new(log))
}

/// How the command line's options have packets analysed.
fn watch_spec(arguments: &args::Watch, capture_point: CapturePoint) -> WatchSpec {
    let logs = [&arguments.clf, &arguments.csv, &arguments.jsonl];
    WatchSpec {
        capture_point,
        server_ports: (!arguments.ports.is_empty()).then(|| arguments.ports.clone()),
        servers: arguments.servers.clone(),
        // A sender of packets must not be able to guess the seed and cause collisions.
        hash_seed: random(),
        // Method, host, path and headers of requests are needed by the files only.
        words: !arguments.no_save || logs.iter().any(|path| path.is_some()),
        duplicates: true,
        // Packets of a file are sorted before they are analysed.
        disorder: if arguments.read.is_some() { Duration::ZERO } else { WatchSpec::default().disorder },
        ..WatchSpec::default()
    }
}

/// Creates the run's folder, unless `--no-save` is given.
fn create_folder(arguments: &args::Watch, clock: &Clock) -> Result<Option<RunFolder>> {
    let is_stored = !arguments.no_save;
    let create = || anyhow::Ok(RunStore::open()?.create(&arguments.name, clock.started(), realtime_ns())?);
    is_stored.then(create).transpose()
}

/// Writes the first progress snapshot into the run's folder, and shows the run on the live page.
fn begin_progress(folder: &RunFolder, clock: &Clock, page: &crate::live_child::LivePage) -> SnapshotWriter {
    let mut opening = SnapshotWriter::begin(folder, "watch", &command_line(), 0);
    opening.set_zero(clock);
    page.show(folder.path());
    opening
}

/// Opens the device or the capture file that packets come from.
fn open_source(arguments: &args::Watch) -> Result<Source> {
    match (&arguments.interface, &arguments.read) {
        (Some(device), None) => Ok(Source::Live(live::open(arguments, device)?, device.clone())),
        (None, Some(path)) => Ok(Source::File(file::open(path)?, file::name(path))),
        _ => bail!("give a device (-i) or a capture file (-r)"),
    }
}

/// A random number from the system's random source, which also seeds every hash map.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Prints the document of a capture.
pub fn show(document: &WatchDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::watch(document, terminal::style()))
    }
}

enum Source {
    Live(sys::capture::Capture, String),
    File(std::fs::File, String),
}

impl Source {
    fn name(&self) -> &str {
        match self {
            Source::Live(_, name) | Source::File(_, name) => name,
        }
    }
}

/// ID and path of the run's folder; both empty if the run is not stored.
fn id_and_path(folder: Option<&RunFolder>) -> (String, String) {
    folder.map(|folder| (folder.id().to_owned(), folder.path().display().to_string())).unwrap_or_default()
}

/// Refuses an output file that is the input file: creating it would truncate the input.
fn refuse_to_overwrite(arguments: &args::Watch) -> Result<()> {
    let Some(read) = arguments.read.as_deref().and_then(|path| path.metadata().ok()) else { return Ok(()) };
    for path in [&arguments.clf, &arguments.csv, &arguments.jsonl, &arguments.pcapng].into_iter().flatten() {
        if path.metadata().is_ok_and(|written| (written.dev(), written.ino()) == (read.dev(), read.ino())) {
            bail!("{} is the input file; give another output file", path.display());
        }
    }
    Ok(())
}

/// Creates an output file that an option names.
fn create(path: &Path) -> Result<std::fs::File> {
    std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))
}

/// A key log of this size has the secrets of 80,000 connections.
const KEY_LOG_MAX: u64 = 64 << 20;
/// Connections closed at a time when the capture ends, so that their records do not all wait in memory.
const CLOSE_BATCH: usize = 256;
