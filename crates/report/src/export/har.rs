//! Requests as a HAR 1.2 archive, which browsers' developer tools and similar programs draw as a waterfall.
//!
//! Source: HTTP Archive 1.2, W3C Web Performance Working Group. Headers and bodies are not stored, so the
//! archive has only sizes, statuses and times.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use schema::RequestRecord;
use serde_json::{Value, json};
use units::Timestamp;

use super::RequestTarget;

/// Data of an archive in addition to the requests.
#[derive(Clone, Debug)]
pub struct Archive<'a> {
    /// The run's name: the only page of the archive.
    pub run: &'a str,
    /// Wall clock at the run's zero, in ms since 1970.
    pub zero_unix_ms: u64,
    /// Protocol version, such as `HTTP/1.1`.
    pub version: &'a str,
    /// Targets by index: see [`RequestRecord::url`].
    pub targets: &'a [RequestTarget],
    /// Number of rows that `rows` yields.
    pub of: u64,
    /// Largest number of entries.
    pub limit: u64,
}

/// The archive, and its number of entries: every request, or, above the limit, every k-th in the order of the table.
/// The archive's comment states the sampling.
///
/// # Errors
/// A row cannot be read.
pub fn har(
    archive: &Archive<'_>,
    rows: impl Iterator<Item = store::Result<RequestRecord>>,
) -> io::Result<(String, usize)> {
    let one_in = archive.of.div_ceil(archive.limit.max(1)).max(1);
    let mut entries = Vec::new();
    for (at, row) in rows.enumerate() {
        let row = row.map_err(io::Error::other)?;
        if (at as u64).is_multiple_of(one_in) {
            entries.push(entry(archive, &row));
        }
    }
    entries.sort_by(|left, right| left["startedDateTime"].as_str().cmp(&right["startedDateTime"].as_str()));
    let sample = match one_in {
        1 => format!("all {} requests in the table", archive.of),
        more => format!("{} of {} requests in the table, every {more}th", entries.len(), archive.of),
    };
    let count = entries.len();
    let whole = json!({ "log": {
        "version": "1.2",
        "creator": { "name": "yamabiko", "version": env!("CARGO_PKG_VERSION") },
        "pages": [{
            "startedDateTime": rfc3339(archive.zero_unix_ms, 0),
            "id": PAGE,
            "title": archive.run,
            "pageTimings": { "onContentLoad": null, "onLoad": null },
        }],
        "entries": entries,
        "comment": format!(
            "Yamabiko run {}: {sample}. A request begins at its scheduled time; `blocked` is the send lag of the load generator. \
             Headers and bodies are not stored. Placeholders in URLs ({{client}} ..) are not replaced.",
            archive.run
        ),
    }});
    Ok((serde_json::to_string(&whole).expect("text and numbers") + "\n", count))
}

fn entry(archive: &Archive<'_>, row: &RequestRecord) -> Value {
    let target = archive.targets.get(row.url as usize);
    let method = target.map_or("GET", |target| target.method.as_str());
    let url = target.map_or("http://unknown.invalid/", |target| target.url.as_str());
    let size = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let head = if row.head_bytes == 0 { -1 } else { i64::from(row.head_bytes) };
    let times = timings(row);
    let mut entry = json!({
        "pageref": PAGE,
        "startedDateTime": rfc3339(archive.zero_unix_ms, row.scheduled_at.as_nanos()),
        "time": ms(row.response_time_ns()),
        "request": {
            "method": method, "url": url, "httpVersion": archive.version, "cookies": [], "headers": [],
            "queryString": query(url), "headersSize": -1, "bodySize": -1, "_bytesSent": size(row.bytes_sent),
        },
        "response": {
            "status": row.status, "statusText": "", "httpVersion": archive.version, "cookies": [], "headers": [],
            "content": { "size": size(row.body_bytes()), "mimeType": "" },
            "redirectURL": "", "headersSize": head, "bodySize": if head < 0 { -1 } else { size(row.body_bytes()) },
        },
        "cache": {},
        "timings": times,
        "_client": row.client,
        "_sequence": row.sequence,
    });
    if let Some(connection) = row.connection {
        entry["connection"] = json!(connection.to_string());
    }
    if let Some(cause) = row.failure {
        // As in browsers, a failed request has status 0.
        entry["response"]["_error"] = json!(cause.name());
        entry["comment"] = json!(format!("failed: {}", cause.name()));
    }
    entry
}

/// The phases in milliseconds; their sum is the entry's time. A phase that did not happen is -1, or 0 where the format
/// requires a number. The phase in which a request failed lasts until the end of the request.
fn timings(row: &RequestRecord) -> Value {
    let ready = row.secured_at.or(row.connected_at).or(row.started_at);
    // Each phase ends at its timestamp; the last phase that began ends with the request.
    let mut from = row.scheduled_at;
    let mut until = |timestamp: Option<Timestamp>| {
        let to = timestamp.unwrap_or(row.done_at).max(from);
        let span = to.as_nanos() - from.as_nanos();
        from = to;
        span
    };
    let blocked = until(row.started_at);
    let is_connecting = row.connected_at.is_some() || (row.started_at.is_some() && row.sent_at.is_none());
    let connect = if is_connecting { until(ready.filter(|_| row.connected_at.is_some())) } else { 0 };
    let send = until(row.sent_at);
    let wait = until(row.first_byte_at);
    let receive = until(None);
    let ssl = row.tls_handshake_ns();
    json!({
        "blocked": ms(blocked),
        "dns": -1,
        "connect": if is_connecting { ms(connect) } else { -1.0 },
        "send": ms(send),
        "wait": ms(wait),
        "receive": ms(receive),
        "ssl": ssl.map_or(-1.0, ms),
    })
}

/// Nanoseconds converted to milliseconds, precise to the nanosecond.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn rfc3339(zero_unix_ms: u64, after_ns: u64) -> String {
    store::rfc3339(UNIX_EPOCH + Duration::from_millis(zero_unix_ms) + Duration::from_nanos(after_ns))
}

/// Names and values of the query, as typed: nothing is decoded.
fn query(url: &str) -> Vec<Value> {
    let query = url.split('#').next().unwrap_or_default().split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            json!({ "name": name, "value": value })
        })
        .collect()
}

const PAGE: &str = "run";

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{FailureCause, Method};

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn whole() -> RequestRecord {
        RequestRecord {
            scheduled_at: at(1000),
            started_at: Some(at(1001)),
            connected_at: Some(at(1011)),
            secured_at: Some(at(1031)),
            sent_at: Some(at(1032)),
            first_byte_at: Some(at(1052)),
            done_at: at(1060),
            status: 200,
            bytes_received: 1300,
            head_bytes: 300,
            ..RequestRecord::BLANK
        }
    }

    fn archive_of(rows: &[RequestRecord], limit: u64) -> (Value, usize) {
        let targets = [RequestTarget { method: Method::Post, url: "http://server/a?b=c&d".to_owned() }];
        let archive = Archive {
            run: "<script>",
            zero_unix_ms: 1_795_167_005_000,
            version: "HTTP/1.1",
            targets: &targets,
            of: rows.len() as u64,
            limit,
        };
        let (text, count) = har(&archive, rows.iter().copied().map(Ok)).unwrap();
        (serde_json::from_str(&text).unwrap(), count)
    }

    #[test]
    fn har_timings_add_up_to_the_response_time() {
        let (log, _) = archive_of(&[whole()], 10);
        let entry = &log["log"]["entries"][0];
        assert_eq!(entry["startedDateTime"], "2026-11-20T09:30:06.000Z");
        assert_eq!(entry["time"], 60.0);
        let of = |name: &str| entry["timings"][name].as_f64().unwrap();
        assert_eq!(
            [of("blocked"), of("connect"), of("ssl"), of("send"), of("wait"), of("receive")],
            [1.0, 30.0, 20.0, 1.0, 20.0, 8.0]
        );
        assert_eq!(entry["request"]["queryString"], json!([{"name": "b", "value": "c"}, {"name": "d", "value": ""}]));
        assert_eq!((&entry["response"]["headersSize"], &entry["response"]["bodySize"]), (&json!(300), &json!(1000)));
    }

    #[test]
    fn har_timings_of_failed_requests_add_up_to_their_time() {
        let open = RequestRecord { connected_at: None, secured_at: None, ..whole() };
        let refused = RequestRecord {
            connected_at: None,
            secured_at: None,
            sent_at: None,
            first_byte_at: None,
            status: 0,
            head_bytes: 0,
            failure: Some(FailureCause::ConnectRefused),
            ..whole()
        };
        let never = RequestRecord { started_at: None, ..refused };
        let silent = RequestRecord { first_byte_at: None, failure: Some(FailureCause::ResponseTimeout), ..open };
        for row in [whole(), open, refused, never, silent] {
            let (log, _) = archive_of(&[row], 1);
            let entry = &log["log"]["entries"][0];
            let times = entry["timings"].as_object().unwrap();
            // ssl is part of connect.
            let parts =
                times.iter().filter(|(name, _)| *name != "ssl").map(|(_, time)| time.as_f64().unwrap().max(0.0));
            assert!((parts.sum::<f64>() - entry["time"].as_f64().unwrap()).abs() < 1e-6, "{entry}");
            assert_eq!(entry["response"]["_error"].is_string(), row.failure.is_some());
        }
        let (log, _) = archive_of(&[refused], 1);
        assert_eq!(log["log"]["entries"][0]["timings"]["connect"], 59.0);
    }

    #[test]
    fn har_of_a_sample_states_the_sampling() {
        let rows: Vec<RequestRecord> = (0..10).map(|sequence| RequestRecord { sequence, ..whole() }).collect();
        for (limit, entries) in [(10, 10), (9, 5), (3, 3), (1, 1)] {
            let (log, count) = archive_of(&rows, limit);
            assert_eq!((count, log["log"]["entries"].as_array().unwrap().len()), (entries, entries), "{limit}");
            let comment = log["log"]["comment"].as_str().unwrap();
            assert_eq!(comment.contains("all 10 requests"), limit == 10, "{comment}");
        }
    }
}
