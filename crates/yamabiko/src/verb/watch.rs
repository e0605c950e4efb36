//! `yamabiko watch`: figures and logs from packets, live from a device or out of a capture file.
//!
//! ```text
//!   live: sys::capture --\                     /--> summary, series --> one screen, or JSON
//!                         > watch (analysis) --+--> connections, requests --> the run's folder in the book
//!   file: wire::capture -/                     \--> log files: Combined Log Format, CSV, JSON lines
//! ```
//!
//! Packets are analysed as they come and their records written as they close: memory does not grow with the capture.

mod document;
mod file;
mod live;
mod logs;
mod sink;

use anyhow::{Context, Result, bail};
use ledger::WatchDocument;
use report::figures;
use store::{Book, RunFolder};
use sys::clock::{Clock, realtime_ns};
use sys::signal::Interrupts;
use units::Timestamp;
use watch::{CapturePoint, Watch, WatchSpec};

use super::bench::{command_line, print};
use crate::args::{self, At};
use crate::exit::{self, Exit};
use crate::terminal::{self, say};
use sink::Sink;

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
}

/// Watches, and prints the summary.
pub fn run(arguments: &args::Watch) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let capture_point = match arguments.at {
        At::Server => CapturePoint::AtServer,
        At::Client => CapturePoint::AtClient,
        At::Between => CapturePoint::Between,
    };
    let mut watch = Watch::new(WatchSpec {
        capture_point,
        server_ports: (!arguments.ports.is_empty()).then(|| arguments.ports.clone()),
        servers: arguments.servers.clone(),
        // Not to be guessed by whoever sends the packets.
        hash_seed: realtime_ns().rotate_left(32) ^ u64::from(std::process::id()),
        ..WatchSpec::default()
    });
    // The source first: what cannot be opened leaves no folder behind.
    let source = match (&arguments.interface, &arguments.read) {
        (Some(device), None) => Source::Live(live::open(arguments, device)?, device.clone()),
        (None, Some(path)) => Source::File(file::open(path)?, file::name(path)),
        _ => bail!("give a device (-i) or a capture file (-r)"),
    };
    let clock = Clock::start();
    let folder = if arguments.no_save {
        None
    } else {
        Some(Book::open()?.create(&arguments.name, clock.started(), realtime_ns())?)
    };
    let mut sink = Sink::new(folder.as_ref(), arguments)?;
    let name = source.name().to_owned();
    let ending = match source {
        Source::Live(capture, _) => live::watch(capture, arguments, &clock, &interrupts, &mut watch, &mut sink),
        Source::File(input, _) => file::watch(input, arguments, &interrupts, &mut watch, &mut sink),
    };
    if let (Some(failure), 0) = (&ending.failure, watch.live().counts.packets) {
        // Nothing was readable: there is nothing to report, and nothing to keep.
        drop(sink);
        if let Some(folder) = &folder {
            let _ = std::fs::remove_dir(folder.path());
        }
        bail!("{name}: {failure:#}");
    }
    watch.finish(ending.to);
    sink.take(&mut watch);
    let part = sink.summary.part(&watch, &name, capture_point);
    let store_failure = sink.finish().err();
    let document = document::make(part, &ending, folder.as_ref(), &command_line())?;
    if let Some(folder) = &folder {
        folder.write_summary(&document)?;
    }
    show(&document, arguments.json)?;
    if let Some(failure) = ending.failure {
        return Err(failure.context(name));
    }
    if let Some(failure) = store_failure {
        return Err(failure.context("the figures are whole, the files are not"));
    }
    Ok(exit::of_validity(&document.validity))
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

/// One line of how things stand, with rates since the last.
struct Pulse {
    at: f64,
    packets: u64,
    connections: u64,
}

impl Pulse {
    const EVERY_S: f64 = 5.0;

    fn new() -> Pulse {
        Pulse { at: 0.0, packets: 0, connections: 0 }
    }

    /// Says it when it is time.
    fn tick(&mut self, elapsed_s: f64, watch: &Watch, sink: &Sink) {
        let length = elapsed_s - self.at;
        if length < Pulse::EVERY_S {
            return;
        }
        let live = watch.live();
        let rate = |now: u64, before: u64| figures::rate(now.saturating_sub(before) as f64 / length);
        say(format_args!(
            "{elapsed_s:>5.0} s  {} connections in process, {} new, {} packets, {} requests in the last second, {} in \
             flight, {} lost",
            figures::count(live.connections),
            rate(live.counts.connections, self.connections),
            rate(live.counts.packets, self.packets),
            figures::count(sink.last_second.requests),
            figures::count(live.in_flight),
            figures::count(live.counts.capture_drops),
        ));
        *self = Pulse { at: elapsed_s, packets: live.counts.packets, connections: live.counts.connections };
    }
}

/// Creates a file that a flag names.
fn create(path: &std::path::Path) -> Result<std::fs::File> {
    std::fs::File::create(path).with_context(|| format!("creating {}", path.display()))
}
