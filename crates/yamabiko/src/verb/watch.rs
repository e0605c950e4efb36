//! `yamabiko watch`: figures and logs from packets, live from a device or out of a capture file.
//!
//! ```text
//!   live: sys::capture --\                     /--> summary, series --> one screen, or JSON
//!                         > watch (analysis) --+--> connections, requests --> the run's folder in the run store
//!   file: wire::capture -/                     \--> log files: Combined Log Format, CSV, JSON lines
//! ```
//!
//! Packets are analysed as they come and their records written as they close: memory does not grow with the capture.

pub(super) mod blocks;
pub(super) mod document;
mod face;
mod file;
mod live;
mod logs;
#[cfg_attr(not(feature = "web"), allow(dead_code, reason = "only a receiver checks what it was sent"))]
mod message;
mod pcapng;
#[cfg(feature = "web")]
mod receive;
#[cfg_attr(not(feature = "tui"), path = "watch/no_screen.rs")]
mod screen;
#[cfg_attr(not(feature = "web"), path = "watch/no_send.rs")]
mod send;
mod sink;
#[cfg_attr(not(feature = "web"), allow(dead_code, reason = "only a receiver checks what it was sent"))]
mod view;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use schema::WatchDocument;
use store::{RunFolder, RunStore};
use sys::clock::{Clock, realtime_ns};
use sys::signal::Interrupts;
use testbed::snapshot::SnapshotWriter;
use units::Timestamp;
use watch::{CapturePoint, Watch, WatchSpec};

use super::bench::{command_line, print};
use crate::args::{self, At};
use crate::exit::{self, Exit};
use crate::terminal;
use face::Face;
use live::Live;
use message::End;
use pcapng::Recorder;
#[cfg(not(feature = "web"))]
use send::Sender;
use sink::Sink;
use view::{RttBuckets, View};

/// How a capture went, besides its records.
pub struct Ending {
    /// First moment watched and last.
    pub from: Timestamp,
    /// Last moment watched.
    pub to: Timestamp,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Why the source could not be read to its end; what came before was analysed.
    pub failure: Option<anyhow::Error>,
    /// Packets of a file that were put in their place.
    pub reordered: u64,
}

/// Watches, and prints the summary.
pub fn run(arguments: &args::Watch) -> Result<Exit> {
    ensure!(
        arguments.show.live.is_none() || arguments.read.is_none(),
        "--live is of a device or of what others send: a file is over as soon as it is read, and `yamabiko live RUN` shows it then"
    );
    let page = crate::live_child::Live::start(&arguments.show, !arguments.no_save)?;
    let interrupts = Interrupts::install()?;
    #[cfg(feature = "web")]
    if let Some(address) = arguments.from {
        return receive::run(arguments, address, &interrupts, &page);
    }
    let capture_point = match arguments.at {
        At::Server => CapturePoint::AtServer,
        At::Client => CapturePoint::AtClient,
        At::Between => CapturePoint::Between,
    };
    #[cfg(feature = "web")]
    if arguments.token_file.is_some() && arguments.to.is_none() {
        bail!("--token-file needs --to or --from");
    }
    let mut watch = Watch::new(watch_spec(arguments, capture_point));
    // What cannot be opened leaves no folder behind.
    let source = open_source(arguments)?;
    refuse_to_overwrite(arguments)?;
    // What a file's packets were cut to is not known before they are read: 0.
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
    let mut ending = match source {
        Source::Live(capture, device) => {
            let mut face = Face::open(arguments.json, arguments.plain, live::greeting(arguments, &device));
            let live = Live {
                device: &device,
                duration: arguments.duration,
                capture_point,
                clock: &clock,
                interrupts: &interrupts,
                face: &mut face,
                opening: opening.as_ref(),
                sender: sender.as_ref(),
            };
            let ending = live::watch(capture, live, &mut watch, &mut sink);
            face.close();
            ending
        }
        Source::File(input, _) => file::watch(input, arguments, &interrupts, &mut watch, &mut sink),
    };
    if watch.live().counts.packets == 0
        && let Some(failure) = ending.failure.take()
    {
        // Nothing was readable: there is nothing to report, and nothing to keep.
        drop(sink);
        if let Some(folder) = &folder {
            let _ = std::fs::remove_dir_all(folder.path());
        }
        return Err(failure.context(name));
    }
    while watch.finish_some(ending.to, TAKE_AT_END) {
        sink.take(&mut watch);
    }
    sink.take(&mut watch);
    let mut part = sink.summary.part(&watch, &name, capture_point);
    if let Some(capture) = &mut part.capture {
        capture.reordered_packets = ending.reordered;
    }
    let fresh = sink.fresh();
    let store_failure = sink.finish(part.capture_drops, ending.to).err();
    let sending_failure = sender.and_then(|sender| {
        let elapsed_s = ending.to.since(ending.from).as_secs_f64();
        let rtt = RttBuckets::of(watch.handshake_rtt_histogram());
        let view = View { elapsed_s, totals: part.clone(), rtt, ..View::default() };
        let failure = ending.failure.as_ref().map(|failure| format!("{failure:#}"));
        sender.finish(fresh, &view, End { interrupted: ending.interrupted, failure }, &interrupts).err()
    });
    let document = document::make(part, &ending, folder.as_ref(), &command_line())?;
    if let Some(folder) = &folder {
        folder.write_summary(&document)?;
    }
    if let Some(opening) = &opening {
        opening.watch_done(clock.now(), &document);
    }
    show(&document, arguments.json)?;
    let reading_failure = ending.failure.map(|failure| failure.context(name));
    let store_failure = store_failure.map(|failure| failure.context("the figures are complete, the files are not"));
    match reading_failure.or(store_failure).or(sending_failure) {
        Some(failure) => Err(failure),
        None => Ok(exit::of_validity(&document.validity)),
    }
}

/// How packets are analysed.
fn watch_spec(arguments: &args::Watch, capture_point: CapturePoint) -> WatchSpec {
    let logs = [&arguments.clf, &arguments.csv, &arguments.jsonl];
    WatchSpec {
        capture_point,
        server_ports: (!arguments.ports.is_empty()).then(|| arguments.ports.clone()),
        servers: arguments.servers.clone(),
        // Who sends the packets must not be able to guess it.
        hash_seed: random(),
        // Only the files have the words of requests.
        words: !arguments.no_save || logs.iter().any(|path| path.is_some()),
        duplicates: true,
        // A file's packets are put in order before.
        disorder: if arguments.read.is_some() { Duration::ZERO } else { WatchSpec::default().disorder },
        ..WatchSpec::default()
    }
}

/// Makes the run's folder, where the run is kept.
fn create_folder(arguments: &args::Watch, clock: &Clock) -> Result<Option<RunFolder>> {
    let keeps = !arguments.no_save;
    let create = || anyhow::Ok(RunStore::open()?.create(&arguments.name, clock.started(), realtime_ns())?);
    keeps.then(create).transpose()
}

/// Writes the first progress snapshot, and shows the run on its live page.
fn begin_progress(folder: &RunFolder, clock: &Clock, page: &crate::live_child::Live) -> SnapshotWriter {
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

/// From the system's own source of chance, as the seeds of every hash map.
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

/// Where the run is kept, for `document`.
fn kept(folder: Option<&RunFolder>) -> (String, String) {
    folder.map(|folder| (folder.id().to_owned(), folder.path().display().to_string())).unwrap_or_default()
}

/// A file that is read must not be one that is written: creating it would empty it first.
fn refuse_to_overwrite(arguments: &args::Watch) -> Result<()> {
    let Some(read) = arguments.read.as_deref().and_then(|path| path.metadata().ok()) else { return Ok(()) };
    for path in [&arguments.clf, &arguments.csv, &arguments.jsonl, &arguments.pcapng].into_iter().flatten() {
        if path.metadata().is_ok_and(|written| (written.dev(), written.ino()) == (read.dev(), read.ino())) {
            bail!("{} is the input file; give another output file", path.display());
        }
    }
    Ok(())
}

/// Creates a file that a flag names.
fn create(path: &Path) -> Result<std::fs::File> {
    std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))
}

/// Connections recorded at once when the capture ends.
const TAKE_AT_END: usize = 256;
