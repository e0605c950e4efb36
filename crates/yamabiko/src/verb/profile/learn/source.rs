//! Reads connections from their source: a device, a capture file, or a stored run with a packet capture.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use schema::document::{Check, CheckState};
use schema::{ConnectionRecord, WatchSecond, WireRequest};
use store::RunStore;
use sys::capture::{Capture, CaptureSpec, Framing, RETIRE};
use sys::clock::{Clock, realtime_ns};
use sys::signal::{Interrupts, wait_readable};
use units::Timestamp;
use watch::learn::Learn;
use watch::{CapturePoint, Summary, Watch, WatchSpec};
use wire::datagrams::divide;
use wire::link::LinkType;

use crate::args;
use crate::terminal::print_message;
use crate::verb::capture_file::{self, FileRead};
use crate::verb::watch::{CaptureEnd, document};

/// An open source of connections.
pub enum Source {
    Device(Capture, String),
    File(File, PathBuf),
    Run(PathBuf, Option<CapturePoint>),
}

/// How a source was read.
#[derive(Debug, Default)]
pub struct Reading {
    /// Start of the capture.
    pub from: Timestamp,
    /// End of the capture.
    pub to: Timestamp,
    /// Number of packets, if known.
    pub packets: Option<u64>,
    /// Packets that the capturing system lost.
    pub capture_drops: u64,
    /// Whether Ctrl-C ended the capture early.
    pub interrupted: bool,
    /// Why the source could not be read to its end.
    pub failure: Option<Error>,
    /// The capture's failed validity checks that concern connections, RTTs and losses.
    pub failed_checks: Vec<Check>,
}

impl Source {
    /// Opens the source that the arguments name.
    pub fn open(arguments: &args::Learn) -> Result<Source> {
        match (&arguments.interface, &arguments.file) {
            (Some(device), _) => open_device(arguments, device),
            (None, Some(path)) => open_path(path),
            (None, None) => bail!("give a capture file, a run, or a device (-i)"),
        }
    }

    /// Name of the source in messages.
    pub fn name(&self) -> String {
        match self {
            Source::Device(_, device) => device.clone(),
            Source::File(_, path) if path == Path::new("-") => "standard input".to_owned(),
            Source::File(_, path) | Source::Run(path, _) => path.display().to_string(),
        }
    }

    /// Name of the source in the profile, which may be passed on: without the folder.
    pub fn title(&self) -> String {
        match self {
            Source::File(_, path) | Source::Run(path, _) if path != Path::new("-") => {
                path.file_name().map_or_else(|| self.name(), |name| name.to_string_lossy().into_owned())
            }
            _ => self.name(),
        }
    }

    /// Default name of the profile's file: letters, digits, `-`, `_` and `.`.
    pub fn stem(&self) -> String {
        let stem = match self {
            Source::Device(_, device) => device.clone(),
            Source::File(_, path) if path == Path::new("-") => String::new(),
            Source::File(_, path) => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            Source::Run(path, _) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
        let stem: String = stem.chars().map(plain).collect();
        if stem.trim_matches(['.', '-']).is_empty() { "learned".to_owned() } else { stem }
    }

    /// The capture point of a stored run.
    pub fn capture_point(&self) -> Option<CapturePoint> {
        match self {
            Source::Run(_, point) => *point,
            _ => None,
        }
    }

    /// Reads the source to its end, to the first defect, to the end of the duration, or to Ctrl-C.
    pub fn read(self, arguments: &args::Learn, interrupts: &Interrupts, learn: &mut Learn) -> Reading {
        let is_file = matches!(self, Source::File(..));
        let mut feed = Feed {
            watch: Watch::new(WatchSpec {
                server_ports: (!arguments.ports.is_empty()).then(|| arguments.ports.clone()),
                servers: arguments.servers.clone(),
                hash_seed: realtime_ns().rotate_left(32) ^ u64::from(std::process::id()),
                duplicates: true,
                later_protocols: false,
                // Packets of a file are sorted before they are analysed.
                disorder: if is_file { Duration::ZERO } else { WatchSpec::default().disorder },
                ..WatchSpec::default()
            }),
            summary: Summary::new(),
            learn,
            connections: Vec::new(),
            requests: Vec::new(),
            seconds: Vec::new(),
        };
        match self {
            Source::Device(capture, _) => capture_device(capture, arguments.duration, interrupts, &mut feed),
            Source::File(mut input, _) => read_file(&mut input, interrupts, &mut feed),
            Source::Run(dir, _) => read_run(&dir, learn),
        }
    }
}

/// Analyses packets and passes the records on to the learning.
struct Feed<'a> {
    watch: Watch,
    summary: Summary,
    learn: &'a mut Learn,
    connections: Vec<ConnectionRecord>,
    requests: Vec<WireRequest>,
    seconds: Vec<WatchSecond>,
}

impl Feed<'_> {
    /// Passes all finished records on.
    fn collect(&mut self) {
        self.watch.take_connections(&mut self.connections);
        self.watch.take_requests(&mut self.requests);
        self.watch.take_seconds(&mut self.seconds);
        self.summary.add_connections(&self.connections);
        self.summary.add_requests(&self.requests);
        self.summary.add_seconds(&self.seconds);
        self.learn.add_connections(&self.connections);
        self.learn.add_requests(&self.requests);
        self.connections.clear();
        self.requests.clear();
        // Arrivals are counted from the records, which the choice of servers filters.
        self.seconds.clear();
    }

    fn finish(&mut self, from: Timestamp, to: Timestamp) -> Reading {
        self.watch.finish(to);
        self.collect();
        let part = self.summary.part(&self.watch, "", CapturePoint::default());
        let end = CaptureEnd { from, to, interrupted: false, failure: None, reordered: 0 };
        Reading {
            from,
            to,
            packets: Some(part.packets),
            capture_drops: part.capture_drops,
            failed_checks: failed_checks(document::checks(&part, &end, None)),
            ..Reading::default()
        }
    }
}

fn open_device(arguments: &args::Learn, device: &str) -> Result<Source> {
    let spec = CaptureSpec {
        ports: &arguments.ports,
        hosts: &arguments.servers,
        promiscuous: arguments.promiscuous,
        ..CaptureSpec::new(device, SNAPLEN)
    };
    let capture = Capture::open(&spec).map_err(testbed::TestbedError::environment)?;
    if !arguments.json {
        let time = arguments.duration.map_or("until Ctrl-C".to_owned(), |time| {
            format!("for {} (Ctrl-C ends it earlier)", units::format_duration(time))
        });
        print_message(format_args!("capturing on {device} {time}"));
    }
    Ok(Source::Device(capture, device.to_owned()))
}

fn open_path(path: &Path) -> Result<Source> {
    if path == Path::new("-") {
        let input = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
        return Ok(Source::File(input.into(), path.to_owned()));
    }
    if path.is_file() || path.exists() && !path.is_dir() {
        // A file that cannot be opened is an error of usage (status 1), so no io::Error is passed on.
        let file = File::open(path).map_err(|error| anyhow!("opening {}: {error}", path.display()))?;
        return Ok(Source::File(file, path.to_owned()));
    }
    let dir = if path.is_dir() {
        path.to_owned()
    } else {
        let found = path.to_str().and_then(|name| RunStore::open().ok()?.find(name).ok());
        found.ok_or_else(|| anyhow!("{}: there is no file and no run of that name", path.display()))?
    };
    if !dir.join("connections.parquet").exists() && !dir.join("connections").exists() {
        bail!("{}: expected a run with a packet capture; this folder has no stored connections", dir.display());
    }
    let point = store::read_watch_part(&dir).ok().flatten().and_then(|part| match part.capture_point.as_str() {
        "server" => Some(CapturePoint::AtServer),
        "client" => Some(CapturePoint::AtClient),
        "between" => Some(CapturePoint::Between),
        _ => None,
    });
    Ok(Source::Run(dir, point))
}

/// Captures the headers of all packets of a device, for a duration or until Ctrl-C.
fn capture_device(
    mut capture: Capture,
    time: Option<Duration>,
    interrupts: &Interrupts,
    feed: &mut Feed<'_>,
) -> Reading {
    let link = match capture.framing() {
        Framing::Ethernet => LinkType::Ethernet,
        Framing::Ip => LinkType::RawIp,
    };
    let from = Timestamp::from_nanos(realtime_ns());
    feed.watch.handle_time(from);
    let clock = Clock::start();
    let (mut checked_s, mut failure) = (0, None);
    while interrupts.count() == 0 && failure.is_none() {
        wait_readable(capture.as_fd(), WAIT_TIMEOUT);
        analyse_packets(&mut capture, link, feed);
        let elapsed = clock.now().since(Timestamp::ZERO);
        if elapsed.as_secs() > checked_s {
            checked_s = elapsed.as_secs();
            count_drops(&capture, feed);
            failure = capture.check().err().map(|error| testbed::TestbedError::environment(error).into());
        }
        if time.is_some_and(|time| elapsed >= time) {
            break;
        }
    }
    let to = Timestamp::from_nanos(realtime_ns());
    // The last packets are still in a block that is not full. FINAL_BLOCKS_MAX ends the loop if the capture cannot be
    // stopped.
    let _ = capture.stop();
    for _ in 0..FINAL_BLOCKS_MAX {
        if !wait_readable(capture.as_fd(), RETIRE * 2) {
            break;
        }
        analyse_packets(&mut capture, link, feed);
    }
    count_drops(&capture, feed);
    let interrupted = interrupts.count() > 0 && time.is_some();
    Reading { interrupted, failure, ..feed.finish(from, to) }
}

fn analyse_packets(capture: &mut Capture, link: LinkType, feed: &mut Feed<'_>) {
    let mut scratch = Vec::new();
    while let Some(block) = capture.next_block() {
        for packet in block.packets() {
            divide(packet.bytes, packet.original_length, packet.datagram_bytes, &mut scratch, |bytes, length| {
                feed.watch.handle_packet(packet.at, link, bytes, length);
            });
        }
        drop(block);
        feed.collect();
    }
}

/// Passes time and lost packets to the analysis. The time is slightly behind the clock, as the latest packets are in a
/// block that is not yet delivered.
fn count_drops(capture: &Capture, feed: &mut Feed<'_>) {
    let now = Timestamp::from_nanos(realtime_ns().saturating_sub(DELIVERY_DELAY_NS));
    match capture.statistics() {
        Ok(counted) if counted.drops > 0 => feed.watch.handle_capture_drops(now, counted.drops),
        _ => feed.watch.handle_time(now),
    }
}

/// Reads a capture file to its end, to the first defect, or to Ctrl-C.
fn read_file(input: &mut File, interrupts: &Interrupts, feed: &mut Feed<'_>) -> Reading {
    let (mut from, mut to, mut unknown, mut packets) = (Timestamp::MAX, Timestamp::ZERO, None, 0u64);
    let FileRead { interrupted, failure, drops, .. } = capture_file::read(input, interrupts, |packet| {
        (from, to) = (from.min(packet.at), to.max(packet.at));
        feed.watch.number_next(packet.number);
        match LinkType::from_number(packet.link) {
            Some(link) => feed.watch.handle_packet(packet.at, link, packet.bytes, packet.original_length),
            None => {
                unknown = Some(packet.link);
                feed.watch.handle_unknown(packet.at, packet.link, packet.original_length);
            }
        }
        packets += 1;
        if packets.is_multiple_of(PACKETS_PER_COLLECTION) {
            feed.collect();
        }
    });
    if drops > 0 {
        feed.watch.handle_capture_drops(to, drops);
    }
    let unknown =
        unknown.map(|number| anyhow!("packets with the unsupported link layer {number} (LINKTYPE) were left out"));
    let failure = failure.or(unknown);
    Reading { interrupted, failure, ..feed.finish(from.min(to), to) }
}

/// Reads the tables of a stored run. Unreadable parts are left out; the first failure is reported.
fn read_run(dir: &Path, learn: &mut Learn) -> Reading {
    let mut reading = Reading { from: Timestamp::MAX, ..Reading::default() };
    let outcome = (|| -> Result<()> {
        let mut failure = Ok(());
        for row in store::read_connections(dir)? {
            match row {
                Ok(record) => {
                    (reading.from, reading.to) = (reading.from.min(record.first_at), reading.to.max(record.last_at));
                    learn.add_connections(std::slice::from_ref(&record));
                }
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        for row in store::read_wire_requests(dir)? {
            match row {
                Ok(request) => learn.add_requests(std::slice::from_ref(&request)),
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        Ok(failure?)
    })();
    reading.failure = outcome.err();
    reading.from = reading.from.min(reading.to);
    if let Ok(Some(part)) = store::read_watch_part(dir) {
        (reading.packets, reading.capture_drops) = (Some(part.packets), part.capture_drops);
    }
    if let Ok(document) = store::read_summary(dir) {
        reading.failed_checks = failed_checks(document.validity.checks);
    }
    reading
}

/// The failed checks of a capture that concern connections, RTTs and losses. Checks of payload do not matter here.
fn failed_checks(mut checks: Vec<Check>) -> Vec<Check> {
    checks.retain(|check| check.state == CheckState::Failed && RELEVANT_CHECKS.contains(&check.name.as_str()));
    checks
}

/// Checks of `watch`, and of a run with a packet capture, that concern connections, RTTs and losses.
const RELEVANT_CHECKS: [&str; 9] = [
    "capture_whole",
    "capture_drops",
    "capture_missing",
    "connections_evicted",
    "capture_order",
    "capture_clocks_agree",
    "capture_clock",
    ANALYZED,
    "wire_capture_drops",
];
/// The check that there were packets to analyze. Without connections the error of learning is reported instead of it.
pub const ANALYZED: &str = "capture_analyzed";
/// Bytes captured of a packet: all headers up to TCP, and an HTTP status line.
const SNAPLEN: u32 = 128;
/// How long to wait for packets before the clock is checked.
const WAIT_TIMEOUT: Duration = Duration::from_millis(100);
/// Upper bound of the time from a packet's arrival to its delivery: well above [`RETIRE`].
const DELIVERY_DELAY_NS: u64 = 200_000_000;
/// Most blocks waited for at the end; the ring has 16.
const FINAL_BLOCKS_MAX: usize = 64;
/// Packets between two collections of finished records.
const PACKETS_PER_COLLECTION: u64 = 4096;
