//! Packets from a device, as they pass.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;
use sys::capture::{Capture, CaptureSpec, Framing, RETIRE};
use sys::clock::{Clock, realtime_ns};
use sys::signal::{Interrupts, wait_readable};
use units::Timestamp;
use watch::Watch;
use wire::link::LinkType;

use super::sink::Sink;
use super::{Ending, Pulse};
use crate::args;
use crate::terminal::say;

/// Opens the device.
pub fn open(arguments: &args::Watch, device: &str) -> Result<Capture> {
    let wants_heads = arguments.clf.is_some() || arguments.csv.is_some() || arguments.jsonl.is_some();
    let snap_length = arguments.snap.unwrap_or(if wants_heads { WHOLE } else { SNAP });
    let spec = CaptureSpec {
        ports: &arguments.ports,
        hosts: &arguments.hosts,
        promiscuous: arguments.promiscuous,
        ..CaptureSpec::new(device, snap_length)
    };
    let capture = Capture::open(&spec).map_err(lab::LabError::environment)?;
    if !arguments.json {
        let kept =
            if snap_length >= WHOLE { "whole packets".to_owned() } else { format!("{snap_length} bytes a packet") };
        say(format_args!("watching {device}, {kept} (Ctrl-C ends it)"));
    }
    Ok(capture)
}

/// Watches until the duration is over, Ctrl-C, or the device goes away.
pub fn watch(
    mut capture: Capture,
    arguments: &args::Watch,
    clock: &Clock,
    interrupts: &Interrupts,
    watch: &mut Watch,
    sink: &mut Sink,
) -> Ending {
    let link = match capture.framing() {
        Framing::Ethernet => LinkType::Ethernet,
        Framing::Ip => LinkType::RawIp,
    };
    let from = Timestamp::from_nanos(realtime_ns());
    watch.handle_time(from);
    let mut pulse = Pulse::new();
    let mut next_second = 1.0;
    let mut failure = None;
    loop {
        wait_readable(capture.as_fd(), TURN);
        take_packets(&mut capture, link, watch, sink);
        let elapsed_s = clock.now().as_secs_f64();
        if elapsed_s >= next_second {
            next_second = elapsed_s.floor() + 1.0;
            count_drops(&capture, watch);
            sink.take(watch);
            sink.second_passed();
            if !arguments.json {
                pulse.tick(elapsed_s, watch, sink);
            }
            if let Err(error) = capture.check() {
                failure = Some(lab::LabError::environment(error).into());
            }
        }
        let over = arguments.duration.is_some_and(|duration| elapsed_s >= duration.as_secs_f64());
        if over || failure.is_some() || interrupts.count() > 0 {
            break;
        }
    }
    let interrupted = interrupts.count() > 0 && arguments.duration.is_some();
    let to = Timestamp::from_nanos(realtime_ns());
    // What was captured by now is still in a block that is not full. A capture that cannot be stopped is ended by
    // the bound on the turns.
    let _ = capture.stop();
    for _ in 0..LAST_TURNS {
        if !wait_readable(capture.as_fd(), RETIRE * 2) {
            break;
        }
        take_packets(&mut capture, link, watch, sink);
    }
    count_drops(&capture, watch);
    Ending { from, to, interrupted, failure }
}

fn take_packets(capture: &mut Capture, link: LinkType, watch: &mut Watch, sink: &mut Sink) {
    while let Some(block) = capture.next_block() {
        for packet in block.packets() {
            watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
        }
        drop(block);
        sink.take(watch);
    }
}

/// Tells the analysis what time it is, and what was lost. A little behind the clock: packets of the last moments are
/// in a block that has not been handed over yet.
fn count_drops(capture: &Capture, watch: &mut Watch) {
    let now = Timestamp::from_nanos(realtime_ns().saturating_sub(BEHIND_NS));
    match capture.statistics() {
        Ok(counted) if counted.drops > 0 => watch.handle_capture_drops(now, counted.drops),
        _ => watch.handle_time(now),
    }
}

/// Bytes of a packet that are captured where nothing else is asked for: every header, a status line, most of a path.
const SNAP: u32 = 128;
/// More than any packet has.
pub const WHOLE: u32 = 262_144;
/// How long to wait for a block before looking at the clock.
const TURN: Duration = Duration::from_millis(100);
/// Well above [`RETIRE`].
const BEHIND_NS: u64 = 200_000_000;
/// Blocks waited for at the end, at most; there are 16.
const LAST_TURNS: usize = 64;
