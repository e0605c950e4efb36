//! Messages from `watch --to` to `watch --from`: HTTP POSTs of JSON lines, several seconds each.
//!
//! ```text
//!   POST /v1/series          Authorization: Bearer TOKEN          Content-Type: application/x-ndjson
//!   {"schema":"yamabiko.series/1", "session":.., "host":.., .., "totals":{..}, "rtt":[..]}     the head
//!   {"index":17, "second":1795167005, "watched_ns":1000000000, ..}                             a line a second
//! ```
//!
//! The head has the totals since the start, so one head is enough for the current state. The lines are numbered: a
//! repeated line counts once, and a missing line is noticed. A receiver ignores unknown fields; a change of meaning
//! gets a new version.
//!
//! Every received message is checked before use: any client with the token may have sent it.

use schema::document::Host;
use schema::{CaptureReading, WatchPart, WatchSecond};
use serde::{Deserialize, Serialize};
use watch::KINDS_MAX;

use super::view::RttBuckets;

/// Version of the message format.
pub const SCHEMA: &str = "yamabiko.series/1";
/// Path of the POST request.
pub const PATH: &str = "/v1/series";
/// Content type of a message. A page in a browser cannot post this type to another site without a preflight request.
pub const CONTENT_TYPE: &str = "application/x-ndjson";
/// Most seconds in one message.
pub const ROWS_MAX: usize = 120;
/// Most bytes of a message: a row has under 2 KB, the head a little more.
pub const BODY_MAX: usize = 512 * 1024;

/// First line of a message: identity of the series and its totals.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// [`SCHEMA`].
    pub schema: String,
    /// Identifies the series: 32 random hexadecimal digits.
    pub session: String,
    /// Name of the capturing host.
    pub host: String,
    /// The capturing machine's hardware and system.
    pub machine: Host,
    /// Start of the capture, in ns since 1970 by the sender's clock.
    pub started_at_ns: u64,
    /// Duration of the capture so far, in ns.
    pub elapsed_ns: u64,
    /// Seconds that the sender dropped because its backlog was full.
    pub lost_seconds: u64,
    /// How the capture ended; set in the last message of the series only.
    pub end: Option<End>,
    /// Totals since the start.
    pub totals: WatchPart,
    /// RTTs of the handshakes since the start.
    pub rtt: RttBuckets,
}

/// How a capture ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Ctrl-C ended it before its duration was over.
    pub interrupted: bool,
    /// The failure that ended it.
    pub failure: Option<String>,
}

/// One second of the series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number of the second since the start of the capture, from 0.
    pub index: u64,
    /// Figures of the second.
    #[serde(flatten)]
    pub second: WatchSecond,
}

/// A parsed message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The first line.
    pub head: Head,
    /// The following lines.
    pub rows: Vec<Row>,
}

/// The body of a message.
///
/// # Errors
/// None is known: every type here has a JSON form.
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
/// The first defect, as a text for the sender.
pub fn parse(body: &[u8]) -> Result<Message, String> {
    let mut lines = body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let first = lines.next().ok_or("the message is empty")?;
    // The version is checked first: every other field may differ in another version.
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
        ("started_at_ns", head.started_at_ns <= TIME_MAX_NS),
        ("elapsed_ns", head.elapsed_ns <= TIME_MAX_NS),
        ("lost_seconds", head.lost_seconds <= COUNT_MAX),
        ("end", head.end.as_ref().and_then(|end| end.failure.as_ref()).is_none_or(|text| text.len() <= 4096)),
        ("rtt", head.rtt.has_valid_length()),
        ("totals.source", part.source.len() <= 1024),
        ("totals.capture_point", matches!(part.capture_point.as_str(), "server" | "client" | "between")),
        ("totals.status", part.status.len() <= 1000 && part.status.keys().all(|key| key.len() <= 16)),
        (
            "totals.connections.states",
            part.connections.states.len() <= 32 && part.connections.states.keys().all(|key| key.len() <= 16),
        ),
    ];
    if part.capture.as_ref().is_some_and(|capture| !is_valid(capture)) {
        return Err("totals.capture");
    }
    match bounds.into_iter().find(|(_, is_within)| !is_within) {
        Some((what, _)) => Err(what),
        None => Ok(()),
    }
}

/// Whether names and lists are at most as long as a sender makes them.
fn is_valid(capture: &CaptureReading) -> bool {
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

/// Upper bound of every count: far above any real count of a second, and sums of many stay exact and do not overflow.
const COUNT_MAX: u64 = 1 << 48;
/// The year 2500, in ns since 1970.
const TIME_MAX_NS: u64 = 16_725_225_600_000_000_000;

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
