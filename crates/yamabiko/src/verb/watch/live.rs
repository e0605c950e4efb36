//! Packets from a device, as they pass.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use report::figures;
use schema::{RunPhase, RunProgress};
use sys::capture::{Capture, CaptureSpec, Framing, RETIRE};
use sys::clock::{Clock, realtime_ns};
use sys::signal::{Interrupts, wait_readable};
use testbed::snapshot::{self, SnapshotWriter};
use units::Timestamp;
use watch::{CapturePoint, Watch};
use wire::link::LinkType;

use super::Ending;
use super::face::Face;
use super::pcapng::Recorder;
use super::send::Sender;
use super::sink::Sink;
use super::view::{RttBuckets, View};
use crate::args;

/// Opens the device.
pub fn open(arguments: &args::Watch, device: &str) -> Result<Capture> {
    let spec = CaptureSpec {
        ports: &arguments.ports,
        hosts: &arguments.hosts,
        promiscuous: arguments.promiscuous,
        ..CaptureSpec::new(device, snaplen(arguments))
    };
    Ok(Capture::open(&spec).map_err(testbed::TestbedError::environment)?)
}

/// Bytes captured of each packet: the first ones, or all if HTTP heads are read or packets are stored.
pub fn snaplen(arguments: &args::Watch) -> u32 {
    let files = [&arguments.clf, &arguments.csv, &arguments.jsonl, &arguments.pcapng];
    arguments.snaplen.unwrap_or(if files.iter().any(|file| file.is_some()) { WHOLE } else { DEFAULT_SNAPLEN })
}

/// What is said when the watch begins.
pub fn greeting(arguments: &args::Watch, device: &str) -> String {
    let kept = match snaplen(arguments) {
        WHOLE.. => "whole packets".to_owned(),
        bytes => format!("{bytes} bytes per packet"),
    };
    format!("capturing on {device}, {kept} (Ctrl-C ends the capture)")
}

/// What a live watch is told besides its packets.
pub struct Live<'a> {
    /// The device's name.
    pub device: &'a str,
    /// When to end by itself.
    pub duration: Option<Duration>,
    /// Where packets are captured.
    pub capture_point: CapturePoint,
    /// The run's clock.
    pub clock: &'a Clock,
    /// Ctrl-C.
    pub interrupts: &'a Interrupts,
    /// What is seen meanwhile.
    pub face: &'a mut Face,
    /// How it stands, where it is kept.
    pub opening: Option<&'a SnapshotWriter>,
    /// Who the series is sent to.
    pub sender: Option<&'a Sender>,
}

/// Watches until the duration is over, Ctrl-C, or the device goes away.
pub fn watch(mut capture: Capture, mut live: Live<'_>, watch: &mut Watch, sink: &mut Sink<'_>) -> Ending {
    let link = link_of(&capture);
    if let Some(recorder) = &mut sink.recorder {
        recorder.interface(link, live.device);
    }
    let from = Timestamp::from_nanos(realtime_ns());
    watch.handle_time(from);
    let mut view = View::default();
    let mut second = settled().as_nanos() / SECOND;
    let mut failure = None;
    let over = |live: &Live<'_>| {
        live.duration.is_some_and(|duration| live.clock.now().as_secs_f64() >= duration.as_secs_f64())
    };
    while failure.is_none() && live.interrupts.count() == 0 && !over(&live) {
        if sink.recorder.as_mut().is_some_and(Recorder::is_full) {
            // Packets wait in the ring, and are lost and counted when that is full too.
            live.interrupts.wait(TURN / 10);
        } else {
            wait_readable(capture.as_fd(), TURN);
        }
        take_packets(&mut capture, link, live.device, watch, sink);
        let now = settled().as_nanos() / SECOND;
        if now == second {
            continue;
        }
        second = now;
        count_drops(&capture, watch);
        sink.take(watch);
        if let Some(text) = sink.second_passed() {
            live.face.note(&text);
        }
        live.show(&mut view, watch, sink);
        if let Err(error) = capture.check() {
            failure = Some(testbed::TestbedError::environment(error).into());
        }
        if let Some(refusal) = live.sender.and_then(Sender::refusal) {
            failure = Some(refusal);
        }
    }
    let interrupted = live.interrupts.count() > 0 && live.duration.is_some();
    let to = Timestamp::from_nanos(realtime_ns());
    // What was captured by now is still in a block that is not full. A capture that cannot be stopped is ended by
    // the bound on the turns.
    let _ = capture.stop();
    for _ in 0..LAST_TURNS {
        if !wait_readable(capture.as_fd(), RETIRE * 2) {
            break;
        }
        if let Some(recorder) = &mut sink.recorder {
            recorder.wait_for_room();
        }
        take_packets(&mut capture, link, live.device, watch, sink);
    }
    count_drops(&capture, watch);
    Ending { from, to, interrupted, failure, reordered: 0 }
}

impl Live<'_> {
    /// Shows and sends the seconds that have ended.
    fn show(&mut self, view: &mut View, watch: &Watch, sink: &mut Sink<'_>) {
        let fresh = sink.fresh();
        for second in &fresh {
            view.second_passed(second);
        }
        view.elapsed_s = self.clock.now().as_secs_f64();
        view.totals = sink.summary.part(watch, self.device, self.capture_point);
        view.rtt = RttBuckets::of(watch.handshake_rtt_histogram());
        if let Some(opening) = self.opening {
            let seen = Some(snapshot::watch(&view.totals, &view.last));
            opening.write(&RunProgress { watch: seen, ..opening.at(self.clock.now(), RunPhase::Measured) });
        }
        let mut remarks = Vec::new();
        view.is_doubtful = false;
        if let Some(sender) = self.sender {
            sender.push(fresh, view);
            let (state, is_doubtful) = sender.state();
            remarks.push(state);
            view.is_doubtful = is_doubtful;
        }
        if let Some(recorder) = &mut sink.recorder {
            remarks.push(format!("{} packets written", figures::count(recorder.packets())));
            if recorder.is_full() {
                remarks.push("the file does not keep up".to_owned());
                view.is_doubtful = true;
            }
        }
        view.remark = remarks.join("; ");
        // The end of a response whose head was cut is known when the next request comes, and not before.
        let are_cut = view.totals.by_direction * 2 > view.totals.requests;
        view.advice = if are_cut { "headers are truncated: capture more with -s 65535" } else { "" };
        let view = Arc::new(view.clone());
        self.face.show(std::slice::from_ref(&view), std::slice::from_ref(&view));
    }
}

fn link_of(capture: &Capture) -> LinkType {
    match capture.framing() {
        Framing::Ethernet => LinkType::Ethernet,
        Framing::Ip => LinkType::RawIp,
    }
}

fn take_packets(capture: &mut Capture, link: LinkType, device: &str, watch: &mut Watch, sink: &mut Sink<'_>) {
    while !sink.recorder.as_mut().is_some_and(Recorder::is_full) {
        let Some(block) = capture.next_block() else { return };
        for packet in block.packets() {
            watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
            if let Some(recorder) = &mut sink.recorder {
                recorder.packet(link, device, packet.at, packet.bytes, packet.original_length);
            }
        }
        drop(block);
        sink.take(watch);
    }
}

/// Tells the analysis what time it is, and what was lost.
fn count_drops(capture: &Capture, watch: &mut Watch) {
    let now = settled();
    match capture.statistics() {
        Ok(counted) if counted.drops > 0 => watch.handle_capture_drops(now, counted.drops),
        _ => watch.handle_time(now),
    }
}

/// Up to when every packet has been handed over: a little behind the clock, as those of the last moments are in a
/// block that is not full.
fn settled() -> Timestamp {
    Timestamp::from_nanos(realtime_ns().saturating_sub(BEHIND_NS))
}

/// Bytes of a packet that are captured where nothing else is asked for: nearly every head of a message whole, and no
/// more of a body than that. With 128 bytes, which no server's head fits into, what is in progress reads too high
/// (docs/decisions/0011).
const DEFAULT_SNAPLEN: u32 = 1024;
/// More than any packet has.
const WHOLE: u32 = 262_144;
/// How long to wait for a block before looking at the clock.
const TURN: Duration = Duration::from_millis(100);
/// Well above [`RETIRE`].
const BEHIND_NS: u64 = 200_000_000;
/// Blocks waited for at the end, at most; there are 16.
const LAST_TURNS: usize = 64;
const SECOND: u64 = 1_000_000_000;
