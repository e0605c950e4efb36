//! Captures and analyses packets of a network device live.

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
use wire::datagrams::divide;
use wire::link::LinkType;

use super::CaptureEnd;
use super::display::Display;
use super::pcapng::Recorder;
use super::send::Sender;
use super::sink::Sink;
use super::view::{RttBuckets, View};
use crate::args;

/// Opens a network device for capture.
pub fn open(arguments: &args::Watch, device: &str) -> Result<Capture> {
    let spec = CaptureSpec {
        ports: &arguments.ports,
        hosts: &arguments.hosts,
        promiscuous: arguments.promiscuous,
        ..CaptureSpec::new(device, snaplen(arguments))
    };
    Ok(Capture::open(&spec).map_err(testbed::TestbedError::environment)?)
}

/// Bytes captured of each packet: [`DEFAULT_SNAPLEN`], or all if requests are logged or packets are stored.
pub fn snaplen(arguments: &args::Watch) -> u32 {
    let files = [&arguments.clf, &arguments.csv, &arguments.jsonl, &arguments.pcapng];
    arguments.snaplen.unwrap_or(if files.iter().any(|file| file.is_some()) {
        SNAPLEN_WHOLE_PACKET
    } else {
        DEFAULT_SNAPLEN
    })
}

/// The message shown when a live capture begins.
pub fn start_message(arguments: &args::Watch, device: &str) -> String {
    let captured = match snaplen(arguments) {
        SNAPLEN_WHOLE_PACKET.. => "whole packets".to_owned(),
        bytes => format!("{bytes} bytes per packet"),
    };
    format!("capturing on {device}, {captured} (Ctrl-C ends the capture)")
}

/// Settings and connections of a live capture.
pub struct Live<'a> {
    /// Name of the captured device.
    pub device: &'a str,
    /// How long to capture; without a duration until Ctrl-C.
    pub duration: Option<Duration>,
    /// Where packets are captured: at the server, at the client, or between.
    pub capture_point: CapturePoint,
    /// The run's clock.
    pub clock: &'a Clock,
    /// Counts Ctrl-C and SIGTERM.
    pub interrupts: &'a Interrupts,
    /// Shows figures and messages during the capture.
    pub display: &'a mut Display,
    /// Writes progress snapshots into the run's folder, if the run is stored.
    pub opening: Option<&'a SnapshotWriter>,
    /// Sends the series to another host (`--to`).
    pub sender: Option<&'a Sender>,
}

/// Captures until the duration is over, until Ctrl-C, or until the device disappears.
pub fn watch(mut capture: Capture, mut live: Live<'_>, watch: &mut Watch, sink: &mut Sink<'_>) -> CaptureEnd {
    let link = link_of(&capture);
    if let Some(recorder) = &mut sink.recorder {
        recorder.interface(link, live.device);
    }
    let from = Timestamp::from_nanos(realtime_ns());
    watch.handle_time(from);
    let mut view = View::default();
    let mut second = complete_until().as_nanos() / NANOS_PER_SECOND;
    let mut failure = None;
    let is_over = |live: &Live<'_>| {
        live.duration.is_some_and(|duration| live.clock.now().as_secs_f64() >= duration.as_secs_f64())
    };
    while failure.is_none() && live.interrupts.count() == 0 && !is_over(&live) {
        if sink.recorder.as_mut().is_some_and(Recorder::is_full) {
            // Packets wait in the kernel's ring. Once the ring is full too, further packets are lost and counted.
            live.interrupts.wait(WAIT_TIMEOUT / 10);
        } else {
            wait_readable(capture.as_fd(), WAIT_TIMEOUT);
        }
        analyse_packets(&mut capture, link, live.device, watch, sink);
        let now = complete_until().as_nanos() / NANOS_PER_SECOND;
        if now == second {
            continue;
        }
        second = now;
        count_drops(&capture, watch);
        sink.collect(watch);
        if let Some(text) = sink.second_passed() {
            live.display.note(&text);
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
    // The last packets are still in a block that is not full. FINAL_BLOCKS_MAX ends the loop if the capture cannot
    // be stopped.
    let _ = capture.stop();
    for _ in 0..FINAL_BLOCKS_MAX {
        if !wait_readable(capture.as_fd(), RETIRE * 2) {
            break;
        }
        if let Some(recorder) = &mut sink.recorder {
            recorder.wait_for_space();
        }
        analyse_packets(&mut capture, link, live.device, watch, sink);
    }
    count_drops(&capture, watch);
    CaptureEnd { from, to, interrupted, failure, reordered: 0 }
}

impl Live<'_> {
    /// Shows and sends the seconds that ended since the last call.
    fn show(&mut self, view: &mut View, watch: &Watch, sink: &mut Sink<'_>) {
        let new_seconds = sink.new_seconds();
        for second in &new_seconds {
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
        view.has_problem = false;
        if let Some(sender) = self.sender {
            sender.push(new_seconds, view);
            let (state, has_problem) = sender.state();
            remarks.push(state);
            view.has_problem = has_problem;
        }
        if let Some(recorder) = &mut sink.recorder {
            remarks.push(format!("{} packets written", figures::count(recorder.packets())));
            if recorder.is_full() {
                remarks.push("the file does not keep up".to_owned());
                view.has_problem = true;
            }
        }
        view.remark = remarks.join("; ");
        // The end of a response whose head was truncated is known only when the next request arrives.
        let are_cut = view.totals.by_direction * 2 > view.totals.requests;
        view.advice = if are_cut { "headers are truncated: capture more with -s 65535" } else { "" };
        let view = Arc::new(view.clone());
        self.display.show(std::slice::from_ref(&view), std::slice::from_ref(&view));
    }
}

fn link_of(capture: &Capture) -> LinkType {
    match capture.framing() {
        Framing::Ethernet => LinkType::Ethernet,
        Framing::Ip => LinkType::RawIp,
    }
}

fn analyse_packets(capture: &mut Capture, link: LinkType, device: &str, watch: &mut Watch, sink: &mut Sink<'_>) {
    let mut scratch = Vec::new();
    while !sink.recorder.as_mut().is_some_and(Recorder::is_full) {
        let Some(block) = capture.next_block() else { return };
        for packet in block.packets() {
            let recorder = &mut sink.recorder;
            divide(packet.bytes, packet.original_length, packet.datagram_bytes, &mut scratch, |bytes, length| {
                watch.handle_packet(packet.at, link, bytes, length);
                if let Some(recorder) = recorder {
                    recorder.packet(link, device, packet.at, bytes, length);
                }
            });
        }
        drop(block);
        sink.collect(watch);
    }
}

/// Passes the current capture time and the number of lost packets to the analysis.
fn count_drops(capture: &Capture, watch: &mut Watch) {
    let now = complete_until();
    match capture.statistics() {
        Ok(counted) if counted.drops > 0 => watch.handle_capture_drops(now, counted.drops),
        _ => watch.handle_time(now),
    }
}

/// The time up to which all packets were delivered. It is slightly behind the clock: the latest packets are in a block
/// that is not full.
fn complete_until() -> Timestamp {
    Timestamp::from_nanos(realtime_ns().saturating_sub(DELIVERY_DELAY_NS))
}

/// Bytes captured of each packet by default: nearly every HTTP head whole, and no more of a body. With 128 bytes, into
/// which no server's head fits, the number of transactions in progress would be too high (docs/decisions/0011).
const DEFAULT_SNAPLEN: u32 = 1024;
/// A snaplen above the size of any packet.
const SNAPLEN_WHOLE_PACKET: u32 = 262_144;
/// How long to wait for a block before the clock is checked.
const WAIT_TIMEOUT: Duration = Duration::from_millis(100);
/// Upper bound of the time from a packet's arrival to its delivery: well above [`RETIRE`].
const DELIVERY_DELAY_NS: u64 = 200_000_000;
/// Most blocks waited for at the end; the ring has 16.
const FINAL_BLOCKS_MAX: usize = 64;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
