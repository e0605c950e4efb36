//! The JSON document of a capture, and whether to believe it.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use lab::host::{CorePlan, facts};
use ledger::document::{Check, CheckState, Host, Run, SCHEMA, Validity, Weight};
use ledger::{WatchDocument, WatchPart};
use store::RunFolder;

use super::{Ending, kept};

/// Puts it together.
///
/// # Errors
/// The machine's facts cannot be read.
pub fn make(part: WatchPart, ending: &Ending, folder: Option<&RunFolder>, command: &str) -> Result<WatchDocument> {
    let host = facts(&CorePlan::default(), 1)?;
    Ok(of_host(part, ending, folder, command, host, None))
}

/// The same of a capture on another host, of which so many seconds never came.
pub fn of_host(
    part: WatchPart,
    ending: &Ending,
    folder: Option<&RunFolder>,
    command: &str,
    host: Host,
    missing_seconds: Option<u64>,
) -> WatchDocument {
    let (id, dir) = kept(folder);
    WatchDocument {
        schema: SCHEMA.into(),
        run: Run {
            id,
            dir,
            command: command.to_owned(),
            started_at: store::rfc3339(UNIX_EPOCH + Duration::from_nanos(ending.from.as_nanos())),
            duration_s: ending.to.since(ending.from).as_secs_f64(),
            interrupted: ending.interrupted,
            host,
            ..Run::default()
        },
        validity: Validity::from_checks(checks(&part, ending, missing_seconds)),
        watch: part,
    }
}

fn checks(part: &WatchPart, ending: &Ending, missing_seconds: Option<u64>) -> Vec<Check> {
    let none = |name: &str, count: u64, unit: &str, why: &str| Check {
        name: name.into(),
        state: if count == 0 { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(count as f64),
        limit: Some(0.0),
        unit: unit.into(),
        why: why.into(),
    };
    let whole = Check {
        value: None,
        limit: None,
        ..none(
            "capture_whole",
            u64::from(ending.failure.is_some()),
            "",
            "The capture could not be read to its end; the figures are of what came before.",
        )
    };
    let received = missing_seconds.map(|missing| {
        none(
            "series_received",
            missing,
            "s",
            "Seconds of the series that never came here are in the figures, which the sender adds up, and not in the \
             series that is kept.",
        )
    });
    let mut checks = vec![
        whole,
        none(
            "capture_drops",
            part.capture_drops,
            "packets",
            "Packets that the capturing system lost are in no figure here; a smaller snap length (-s) or a port filter \
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
            "Records closed early for want of room: the same connection may be counted twice.",
        ),
    ];
    checks.extend(received);
    checks
}
