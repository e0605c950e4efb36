//! What travels from `watch --to` to `watch --from`: HTTP POSTs of JSON lines, some seconds each.
//!
//! ```text
//!   POST /v1/series          Authorization: Bearer TOKEN          Content-Type: application/x-ndjson
//!   {"schema":"yamabiko.series/1", "session":.., "host":.., .., "totals":{..}, "rtt":[..]}     the head
//!   {"index":17, "second":1795167005, "watched_ns":1000000000, ..}                             a line a second
//! ```
//!
//! The head is everything so far, so any one of them is enough to say how things stand; the lines are numbered, so that
//! one that comes twice is taken once and one that never comes is known to be missing. Readers of a version take
//! fields that they do not know for news and leave them; a change of meaning gets another version.
//!
//! What comes in is checked before anything is done with it: it may come from anyone who knows the token.

use schema::document::Host;
use schema::{CaptureReading, WatchPart, WatchSecond};
use serde::{Deserialize, Serialize};
use watch::KINDS_MAX;

use super::view::RttBuckets;

/// The version that is spoken.
pub const SCHEMA: &str = "yamabiko.series/1";
/// Where it is posted.
pub const PATH: &str = "/v1/series";
/// What it is. Not one of the types that a page in a browser may post unasked.
pub const CONTENT_TYPE: &str = "application/x-ndjson";
/// Seconds in one message, at most.
pub const ROWS_MAX: usize = 120;
/// Bytes of a message, at most: a row has under 2 KB, the head a little more.
pub const BODY_MAX: usize = 512 * 1024;

/// How things stand at the sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: String,
    /// Names this watch among all: 32 hexadecimal digits, drawn at its start.
    pub session: String,
    /// Name of the host that watches.
    pub host: String,
    /// The machine.
    pub machine: Host,
    /// When the watch began, in ns since 1970 by the sender's clock.
    pub started_at_ns: u64,
    /// How long it has gone on, or went, in ns.
    pub elapsed_ns: u64,
    /// Seconds that were given up because nobody took them in time.
    pub lost_seconds: u64,
    /// Nothing comes after this message; whether Ctrl-C ended the watch early, and what went wrong.
    pub end: Option<End>,
    /// Everything since the start.
    pub totals: WatchPart,
    /// Handshakes since the start.
    pub rtt: RttBuckets,
}

/// How a watch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Before its time, by Ctrl-C.
    pub interrupted: bool,
    /// Why it could not go on.
    pub failure: Option<String>,
}

/// One second of the series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number since the watch began, from 0.
    pub index: u64,
    /// What passed.
    #[serde(flatten)]
    pub second: WatchSecond,
}

/// A message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its first line.
    pub head: Head,
    /// The others.
    pub rows: Vec<Row>,
}

/// The body of a message.
///
/// # Errors
/// None that is known: every type here has a form in JSON.
pub fn body(head: &Head, rows: &[Row]) -> serde_json::Result<Vec<u8>> {
    let mut body = serde_json::to_vec(head)?;
    body.push(b'\n');
    for row in rows {
        serde_json::to_writer(&mut body, row)?;
        body.push(b'\n');
    }
    Ok(body)
}

/// Reads and checks a body.
///
/// # Errors
/// What is wrong with it, in words for its sender.
pub fn parse(body: &[u8]) -> Result<Message, String> {
    let mut lines = body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let first = lines.next().ok_or("the message is empty")?;
    // The version before all else: what follows may have changed.
    #[derive(Deserialize)]
    struct Version {
        schema: String,
    }
    let version: Version = serde_json::from_slice(first).map_err(|error| format!("line 1: {error}"))?;
    if version.schema != SCHEMA {
        return Err(format!("this receiver reads {SCHEMA}, not {:.40?}: use one version at both ends", version.schema));
    }
    let head: Head = serde_json::from_slice(first).map_err(|error| format!("line 1: {error}"))?;
    check_head(&head).map_err(|what| format!("line 1: {what} is out of range"))?;
    let mut rows: Vec<Row> = Vec::new();
    for (line, number) in lines.zip(2..) {
        if rows.len() == ROWS_MAX {
            return Err(format!("more than {ROWS_MAX} seconds in one message"));
        }
        let row: Row = serde_json::from_slice(line).map_err(|error| format!("line {number}: {error}"))?;
        if rows.last().is_some_and(|last| last.index >= row.index) || row.index > COUNT_MAX {
            return Err(format!("line {number}: the seconds are not in order"));
        }
        check_second(&row.second).map_err(|what| format!("line {number}: {what} is out of range"))?;
        rows.push(row);
    }
    Ok(Message { head, rows })
}

fn check_head(head: &Head) -> Result<(), &'static str> {
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let part = &head.totals;
    let bounds = [
        ("session", head.session.len() == 32 && is_hexadecimal(&head.session)),
        ("host", (1..=255).contains(&head.host.len())),
        ("started_at_ns", head.started_at_ns <= MOMENT_MAX),
        ("elapsed_ns", head.elapsed_ns <= MOMENT_MAX),
        ("lost_seconds", head.lost_seconds <= COUNT_MAX),
        ("end", head.end.as_ref().and_then(|end| end.failure.as_ref()).is_none_or(|text| text.len() <= 4096)),
        ("rtt", head.rtt.is_sound()),
        ("totals.source", part.source.len() <= 1024),
        ("totals.capture_point", matches!(part.capture_point.as_str(), "server" | "client" | "between")),
        ("totals.status", part.status.len() <= 1000 && part.status.keys().all(|key| key.len() <= 16)),
        (
            "totals.connections.states",
            part.connections.states.len() <= 32 && part.connections.states.keys().all(|key| key.len() <= 16),
        ),
    ];
    if part.capture.as_ref().is_some_and(|capture| !is_sound(capture)) {
        return Err("totals.capture");
    }
    match bounds.into_iter().find(|(_, holds)| !holds) {
        Some((what, _)) => Err(what),
        None => Ok(()),
    }
}

/// Whether names and lists are such as a watch sends.
fn is_sound(capture: &CaptureReading) -> bool {
    capture.tunnels.len() <= 32
        && capture.tunnels.keys().all(|name| name.len() <= 32)
        && capture.not_analyzed.len() <= KINDS_MAX + 1
        && capture.not_analyzed.iter().all(|one| one.kind.len() <= 32 && one.name.len() <= 64)
}

fn check_second(second: &WatchSecond) -> Result<(), &'static str> {
    let counts = [
        ("second", second.second),
        ("packets", second.packets),
        ("bytes", second.bytes),
        ("data_packets", second.data_packets),
        ("retransmitted_packets", second.retransmitted_packets),
        ("connections_opened", second.connections_opened),
        ("connections_closed", second.connections_closed),
        ("connections_max", second.connections_max),
        ("sessions_max", second.sessions_max),
        ("requests", second.requests),
        ("responses", second.responses),
        ("in_flight_max", second.in_flight_max),
        ("handshakes", second.handshakes),
        ("handshake_rtt_max_ns", second.handshake_rtt_max_ns),
        ("capture_drops", second.capture_drops),
        ("missing_bytes", second.missing_bytes),
    ];
    if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count > COUNT_MAX) {
        return Err(what);
    }
    let means = [
        ("connections_mean", second.connections_mean, second.connections_max),
        ("sessions_mean", second.sessions_mean, second.sessions_max),
        ("in_flight_mean", second.in_flight_mean, second.in_flight_max),
    ];
    if let Some((what, ..)) = means.into_iter().find(|(_, mean, max)| !(0.0..=*max as f64 + 1e-6).contains(mean)) {
        return Err(what);
    }
    if second.watched_ns > 1_000_000_000 { Err("watched_ns") } else { Ok(()) }
}

/// No count of a second comes near it, and sums of many stay exact and do not overflow.
const COUNT_MAX: u64 = 1 << 48;
/// The year 2500.
const MOMENT_MAX: u64 = 16_725_225_600_000_000_000;

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn head() -> Head {
        Head {
            schema: SCHEMA.into(),
            session: "0123456789abcdef0123456789abcdef".into(),
            host: "edge-1".into(),
            machine: Host::default(),
            started_at_ns: 1_795_167_005_000_000_000,
            elapsed_ns: 2_000_000_000,
            lost_seconds: 0,
            end: None,
            totals: WatchPart { source: "eth0".into(), capture_point: "server".into(), ..WatchPart::default() },
            rtt: RttBuckets::default(),
        }
    }

    pub fn row(index: u64) -> Row {
        let second = WatchSecond {
            second: 1_795_167_005 + index,
            watched_ns: 1_000_000_000,
            connections_mean: 0.1 + 0.2,
            connections_max: 3,
            requests: 110,
            ..WatchSecond::default()
        };
        Row { index, second }
    }

    #[test]
    fn message_decodes_to_identical_figures() {
        let rows: Vec<Row> = (0..ROWS_MAX as u64)
            .map(|index| {
                let mut row = row(index);
                row.second.connections_mean = 1.0 / (index as f64 + 3.0);
                row
            })
            .collect();
        let body = body(&head(), &rows).unwrap();
        assert!(body.len() < BODY_MAX / 2, "{}", body.len());
        let message = parse(&body).unwrap();
        assert_eq!(message.rows, rows);
        assert_eq!((message.head.session, message.head.totals), (head().session, head().totals));
    }

    #[test]
    fn malformed_message_is_refused_with_a_reason() {
        let refused = |change: &dyn Fn(&mut Head, &mut Vec<Row>)| {
            let (mut head, mut rows) = (head(), vec![row(4), row(5)]);
            change(&mut head, &mut rows);
            parse(&body(&head, &rows).unwrap()).unwrap_err()
        };
        assert!(refused(&|head, _| head.schema = "yamabiko.series/2".into()).contains("one version at both ends"));
        assert!(refused(&|head, _| head.session = "../../etc".into()).contains("session"));
        assert!(refused(&|head, _| head.host.clear()).contains("host"));
        assert!(refused(&|_, rows| rows.swap(0, 1)).contains("line 3: the seconds are not in order"));
        assert!(refused(&|_, rows| rows[1].second.packets = u64::MAX).contains("line 3: packets"));
        assert!(refused(&|_, rows| rows[0].second.connections_mean = 7.0).contains("line 2: connections_mean"));
        assert!(refused(&|_, rows| *rows = (0..200).map(row).collect()).contains("more than 120"));
        for garbage in [&b""[..], b"\n\n", b"{", b"[]", b"\xFF\x00", b"{\"schema\":1}", b"null\n{}"] {
            assert!(parse(garbage).is_err());
        }
    }

    #[test]
    fn unknown_fields_of_a_message_are_ignored() {
        let text = String::from_utf8(body(&head(), &[row(0)]).unwrap()).unwrap();
        let text =
            text.replace("\"host\"", "\"news\":{\"a\":[1]},\"host\"").replace("\"index\"", "\"more\":2,\"index\"");
        assert_eq!(parse(text.as_bytes()).unwrap().rows, [row(0)]);
    }
}
