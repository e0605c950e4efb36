//! Makes the JSON document of a capture, with its validity checks.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use report::figures::{count, duration};
use schema::document::{Check, CheckState, Host, Run, SCHEMA, Validity, Weight};
use schema::{CaptureReading, PacketFault, WatchDocument, WatchPart};
use store::RunFolder;
use testbed::host::{CorePlan, facts};

use super::{CaptureEnd, id_and_path};

/// The document of a capture on this machine.
///
/// # Errors
/// The machine's facts cannot be read.
pub fn make(part: WatchPart, end: &CaptureEnd, folder: Option<&RunFolder>, command: &str) -> Result<WatchDocument> {
    let host = facts(&CorePlan::default(), 1)?;
    Ok(of_host(part, end, folder, command, host, None))
}

/// The document of a capture on the machine `host`. `missing_seconds`: seconds of a received series that never arrived.
pub fn of_host(
    part: WatchPart,
    end: &CaptureEnd,
    folder: Option<&RunFolder>,
    command: &str,
    host: Host,
    missing_seconds: Option<u64>,
) -> WatchDocument {
    let (id, dir) = id_and_path(folder);
    WatchDocument {
        schema: SCHEMA.into(),
        run: Run {
            id,
            dir,
            command: command.to_owned(),
            started_at: store::rfc3339(UNIX_EPOCH + Duration::from_nanos(end.from.as_nanos())),
            duration_s: end.to.since(end.from).as_secs_f64(),
            interrupted: end.interrupted,
            host,
            ..Run::default()
        },
        validity: Validity::from_checks(checks(&part, end, missing_seconds)),
        watch: part,
    }
}

/// The validity checks of a capture. `missing_seconds`: seconds of a received series that never arrived.
pub fn checks(part: &WatchPart, end: &CaptureEnd, missing_seconds: Option<u64>) -> Vec<Check> {
    let whole = Check {
        value: None,
        limit: None,
        ..none(
            "capture_whole",
            u64::from(end.failure.is_some()),
            "",
            "The capture could not be read to its end; the figures are of what came before.",
        )
    };
    let received = missing_seconds.map(|missing| {
        none(
            "series_received",
            missing,
            "s",
            "Seconds of the series that did not arrive are in the figures, which the sender computes, but not in the \
            stored series.",
        )
    });
    let mut checks = vec![
        whole,
        none(
            "capture_drops",
            part.capture_drops,
            "packets",
            "Packets that the capturing system lost are in no figure here; a smaller snaplen (-s) or a port filter \
             (--port) makes it faster.",
        ),
        none(
            "capture_missing",
            part.missing_bytes,
            "bytes",
            "Bytes that one end acknowledged passed this capture unseen: it lost packets, or they took another way.",
        ),
        none(
            "connections_evicted",
            part.connections.evicted,
            "connections",
            "Records closed early to limit memory: the same connection may be counted twice.",
        ),
    ];
    if let Some(capture) = &part.capture {
        checks.extend([
            analyzed(part, capture),
            payload(part, capture),
            in_order(part, capture),
            clocks_agree(capture),
            clock_runs(capture),
        ]);
    }
    checks.extend(received);
    checks
}

/// A check that fails if `count` is not zero.
fn none(name: &str, count: u64, unit: &str, why: &str) -> Check {
    Check {
        name: name.into(),
        state: if count == 0 { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(count as f64),
        limit: Some(0.0),
        unit: unit.into(),
        why: why.into(),
    }
}

/// The check that there were TCP packets, and that most packets could be read.
fn analyzed(part: &WatchPart, capture: &CaptureReading) -> Check {
    let unread = part.malformed_packets + packets_of(capture, "link_type");
    let (share, why) = if part.tcp_packets == 0 && part.quic.is_none() {
        (
            1.0,
            format!(
                "No packet of TCP or QUIC was found, so there is nothing to analyze{}.",
                not_analyzed_text(part, capture)
            ),
        )
    } else {
        let why = format!(
            "{} of {} packets have headers that were not captured in full ({}), contradict themselves, or are of an unknown link \
             layer.",
            count(unread),
            count(part.packets),
            count(capture.truncated_headers)
        );
        (unread as f64 / part.packets.max(1) as f64, why)
    };
    at_most("capture_analyzed", share, UNREAD_MAX, "share", &why)
}

/// The check that the first payload of connections was captured.
fn payload(part: &WatchPart, capture: &CaptureReading) -> Check {
    let why = format!(
        "Of {} of {} connections not one byte of the first data was captured, so the requests in them are not counted: \
         capture more of each packet (-s).",
        count(capture.unread_streams),
        count(part.connections.count)
    );
    let share = capture.unread_streams as f64 / part.connections.count.max(1) as f64;
    at_most("capture_payload", share, UNREAD_MAX, "share", &why)
}

/// A check that fails if `value` exceeds `limit`.
fn at_most(name: &str, value: f64, limit: f64, unit: &str, why: &str) -> Check {
    let state = if value <= limit { CheckState::Ok } else { CheckState::Failed };
    Check { state, value: Some(value), limit: Some(limit), ..none(name, 0, unit, why) }
}

fn packets_of(capture: &CaptureReading, kind: &str) -> u64 {
    capture.not_analyzed.iter().filter(|one| one.kind == kind).map(|one| one.packets).sum()
}

/// Lists the packets that were not analyzed, as the end of a sentence.
fn not_analyzed_text(part: &WatchPart, capture: &CaptureReading) -> String {
    let mut items: Vec<String> = capture
        .not_analyzed
        .iter()
        .take(NAMED_MAX)
        .map(|one| format!("{} of {}", count(one.packets), one.name))
        .collect();
    if part.malformed_packets > 0 {
        items.push(format!("{} with headers cut or malformed", count(part.malformed_packets)));
    }
    if part.later_fragments > 0 {
        items.push(format!("{} later fragments", count(part.later_fragments)));
    }
    if items.is_empty() { String::new() } else { format!(": of {} packets {}", count(part.packets), items.join(", ")) }
}

/// The check that packets are in the order of their timestamps, or could be sorted.
fn in_order(part: &WatchPart, capture: &CaptureReading) -> Check {
    let late = &capture.late_packets;
    let share = late.count as f64 / part.packets.max(1) as f64;
    let why = format!(
        "Packets have a time before that of one before them, by more than the {} within which they are put in order: {} of \
         {}, by up to {}{}. The clock was set back, or files were joined one after the other (mergecap sorts them).",
        duration(capture.reorder_window_ns),
        count(late.count),
        count(part.packets),
        duration(late.max_ns),
        first(late)
    );
    let weight = if share > LATE_MAX { Weight::Invalid } else { Weight::Suspect };
    Check { weight, ..none("capture_order", late.count, "packets", &why) }
}

/// The check that the clocks that timestamp the two directions agree.
fn clocks_agree(capture: &CaptureReading) -> Check {
    let early = &capture.early_acks;
    let why = format!(
        "Packets acknowledge data that has a later time than they have, up to {} later ({} packets{}): two clocks stamped them, \
         and round trips are wrong by as much.",
        duration(early.max_ns),
        count(early.count),
        first(early)
    );
    at_most("capture_clocks_agree", early.max_ns as f64, CLOCK_DISAGREEMENT_MAX_NS as f64, "ns", &why)
}

/// The check that the clock was not set during the capture.
fn clock_runs(capture: &CaptureReading) -> Check {
    let jumps = &capture.clock_jumps;
    let why = format!(
        "After up to {} without any packet {} connections went on as if no time had passed{}: the clock was set, or the \
         capture was interrupted.",
        duration(jumps.max_ns),
        count(jumps.count),
        first(jumps)
    );
    none("capture_clock", jumps.count, "connections", &why)
}

fn first(fault: &PacketFault) -> String {
    fault.first_packet.map_or(String::new(), |number| format!("; the first is packet {number}"))
}

/// Share of packets, or of connections, that may be unreadable. On a working network the share is smaller.
const UNREAD_MAX: f64 = 0.01;
/// Share of packets out of order above which the capture is invalid.
const LATE_MAX: f64 = 0.01;
/// Largest disagreement of clocks, in ns: the limit of RTT errors in every check.
const CLOCK_DISAGREEMENT_MAX_NS: u64 = 1_000_000;
/// Most protocols that are named if nothing could be analyzed.
const NAMED_MAX: usize = 4;
