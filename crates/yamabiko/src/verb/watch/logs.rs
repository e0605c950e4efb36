//! Writes requests as lines of text: Combined Log Format, CSV, JSON lines.
//!
//! Text from packets is escaped: no quote, line break or control character in it can end a field.

use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result};
use schema::WireRequest;
use serde_json::json;
use units::Timestamp;

use super::create;
use crate::args;

/// The log files that the command line names.
pub struct Logs(Vec<Log>);

struct Log {
    name: String,
    file: BufWriter<File>,
    line: Line,
}

/// Adds one request's line to a text.
type Line = fn(&mut String, &WireRequest);

impl Logs {
    /// Creates the log files.
    ///
    /// # Errors
    /// A file cannot be created.
    pub fn create(arguments: &args::Watch) -> Result<Logs> {
        let kinds: [(_, &str, Line); 3] = [
            (&arguments.clf, "", combined),
            (&arguments.csv, CSV_HEAD, comma_separated),
            (&arguments.jsonl, "", json_line),
        ];
        let mut logs = Vec::new();
        for (path, head, line) in kinds {
            let Some(path) = path else { continue };
            let name = path.display().to_string();
            let mut file = BufWriter::new(create(path)?);
            file.write_all(head.as_bytes()).with_context(|| format!("writing {name}"))?;
            logs.push(Log { name, file, line });
        }
        Ok(Logs(logs))
    }

    /// Whether the command line names no log file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends requests to every log file.
    ///
    /// # Errors
    /// A full disk or another failure of the file system.
    pub fn write(&mut self, requests: &[WireRequest]) -> Result<()> {
        let mut text = String::new();
        for log in &mut self.0 {
            for request in requests {
                text.clear();
                (log.line)(&mut text, request);
                log.file.write_all(text.as_bytes()).with_context(|| format!("writing {}", log.name))?;
            }
        }
        Ok(())
    }

    /// Flushes buffered lines to the files.
    ///
    /// # Errors
    /// As for [`Logs::write`].
    pub fn flush(&mut self) -> Result<()> {
        self.0.iter_mut().try_for_each(|log| log.file.flush().with_context(|| format!("writing {}", log.name)))
    }
}

/// Appends a line of Combined Log Format, followed by the service time in microseconds, as Apache's `%D`. The user
/// field is always `-`. Bytes include the head, as Apache's `%O`. The time is that of the request's first byte. A
/// request that was not captured is `-`, as Apache writes it. A request without a captured response has status 499, as
/// nginx writes it: log readers refuse lines without a number.
fn combined(line: &mut String, request: &WireRequest) {
    let at = request.request_first_at.or(request.response_first_at).unwrap_or(Timestamp::ZERO);
    let _ = write!(line, "{} - - [{}] \"", request.client.ip(), clf_time(at));
    match (&request.method, &request.path) {
        (Some(method), Some(path)) => {
            quoted(line, method);
            line.push(' ');
            quoted(line, path);
            match request.http_version {
                ..2 => put(line, format_args!(" HTTP/1.{}", request.minor_version.unwrap_or(1))),
                major => put(line, format_args!(" HTTP/{major}.0")),
            }
        }
        _ => line.push('-'),
    }
    let _ = write!(line, "\" {} {} \"", request.status.unwrap_or(NO_RESPONSE), request.response_bytes);
    quoted(line, request.referer.as_deref().unwrap_or(b"-"));
    line.push_str("\" \"");
    quoted(line, request.user_agent.as_deref().unwrap_or(b"-"));
    line.push_str("\" ");
    match request.service_time_ns() {
        Some(time) => put(line, format_args!("{}\n", time / 1000)),
        None => line.push_str("-\n"),
    }
}

fn comma_separated(line: &mut String, request: &WireRequest) {
    let _ = write!(line, "{},{},{},{}", request.connection, request.index, request.client, request.server);
    let times =
        [request.request_first_at, request.request_last_at, request.response_first_at, request.response_last_at];
    for number in times.map(|time| time.map(Timestamp::as_nanos)).into_iter().chain([request.service_time_ns()]) {
        line.push(',');
        number.iter().for_each(|number| put(line, number));
    }
    for word in [&request.method, &request.host, &request.path] {
        line.push(',');
        csv_field(line, word);
    }
    line.push(',');
    request.status.iter().for_each(|status| put(line, status));
    let _ = writeln!(
        line,
        ",{},{},{},{},{},{}",
        request.request_bytes,
        request.response_bytes,
        request.framing.as_str(),
        request.complete,
        request.http_version,
        request.stream.map(|stream| stream.to_string()).unwrap_or_default()
    );
}

fn json_line(line: &mut String, request: &WireRequest) {
    let word = |word: &Option<Arc<[u8]>>| word.as_deref().map(text);
    let nanos = |time: Option<Timestamp>| time.map(Timestamp::as_nanos);
    let value = json!({
        "connection": request.connection,
        "index": request.index,
        "client": request.client.to_string(),
        "server": request.server.to_string(),
        "request_first_at_ns": nanos(request.request_first_at),
        "request_last_at_ns": nanos(request.request_last_at),
        "response_first_at_ns": nanos(request.response_first_at),
        "response_last_at_ns": nanos(request.response_last_at),
        "service_time_ns": request.service_time_ns(),
        "method": word(&request.method),
        "host": word(&request.host),
        "path": word(&request.path),
        "status": request.status,
        "request_bytes": request.request_bytes,
        "response_bytes": request.response_bytes,
        "framing": request.framing.as_str(),
        "complete": request.complete,
        "http_version": request.http_version,
        "stream": request.stream,
    });
    let _ = writeln!(line, "{value}");
}

/// Appends a value to a text, which cannot fail.
fn put(text: &mut String, value: impl Display) {
    let _ = write!(text, "{value}");
}

/// Printable text unchanged, other bytes as `\xNN`. A backslash becomes `\x5c`, so that the escapes are unambiguous.
fn text(word: &[u8]) -> String {
    let mut text = String::with_capacity(word.len());
    for chunk in word.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\x5c"),
                c if c.is_control() => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| put(&mut text, format_args!("\\x{byte:02x}")));
                }
                c => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| put(&mut text, format_args!("\\x{byte:02x}")));
    }
    text
}

/// Escapes text inside quotes as Apache does: `\"` and `\\`, bytes that are not printable as `\xNN`.
fn quoted(line: &mut String, word: &[u8]) {
    for &byte in word {
        match byte {
            b'"' => line.push_str("\\\""),
            b'\\' => line.push_str("\\\\"),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => put(line, format_args!("\\x{byte:02x}")),
        }
    }
}

fn csv_field(line: &mut String, word: &Option<Arc<[u8]>>) {
    let Some(word) = word else { return };
    report::export::push_field(line, &text(word));
}

/// A time of Combined Log Format: `20/Nov/2026:09:30:05 +0000`.
fn clf_time(at: Timestamp) -> String {
    let rfc3339 = store::rfc3339(UNIX_EPOCH + Duration::from_nanos(at.as_nanos()));
    let mut parts = rfc3339.split(['-', 'T', '.']);
    let mut part = || parts.next().unwrap_or_default();
    let (year, month, day, time) = (part(), part(), part(), part());
    let month = month.parse().ok().and_then(|month: usize| MONTHS.get(month.wrapping_sub(1))).unwrap_or(&"Jan");
    format!("{day}/{month}/{year}:{time} +0000")
}

/// nginx's status of a request whose client closed the connection before the response.
const NO_RESPONSE: u16 = 499;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const CSV_HEAD: &str = "connection,index,client,server,request_first_at_ns,request_last_at_ns,response_first_at_ns,\
                        response_last_at_ns,service_time_ns,method,host,path,status,request_bytes,response_bytes,\
                        framing,complete,http_version,stream\n";

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Framing;

    fn request() -> WireRequest {
        let at = |micros: u64| Some(Timestamp::from_nanos(1_795_167_005_000_000_000 + micros * 1000));
        WireRequest {
            connection: 3,
            client: "198.19.0.7:50000".parse().unwrap(),
            server: "[2001:2::1]:80".parse().unwrap(),
            index: 1,
            request_first_at: at(0),
            request_last_at: at(5),
            response_first_at: at(100),
            response_last_at: at(255),
            method: Some(b"GET"[..].into()),
            host: Some(b"server"[..].into()),
            path: Some(b"/a,\"b\"\\\xFF\x1b"[..].into()),
            minor_version: Some(0),
            referer: Some(b"http://r/\"x"[..].into()),
            user_agent: Some(b"a\\b (\xc3\xa9)"[..].into()),
            status: Some(200),
            request_bytes: 80,
            response_bytes: 10_400,
            framing: Framing::Exact,
            complete: true,
            http_version: 1,
            stream: None,
        }
    }

    fn line(of: fn(&mut String, &WireRequest), request: &WireRequest) -> String {
        let mut line = String::new();
        of(&mut line, request);
        line
    }

    #[test]
    fn log_line_of_each_format() {
        let combined = line(combined, &request());
        assert_eq!(
            combined,
            "198.19.0.7 - - [20/Nov/2026:09:30:05 +0000] \"GET /a,\\\"b\\\"\\\\\\xff\\x1b HTTP/1.0\" 200 10400 \
             \"http://r/\\\"x\" \"a\\\\b (\\xc3\\xa9)\" 250\n"
        );
        let csv = line(comma_separated, &request());
        assert!(csv.starts_with("3,1,198.19.0.7:50000,[2001:2::1]:80,1795167005000000000,"), "{csv}");
        assert!(
            csv.ends_with(",250000,GET,server,\"/a,\"\"b\"\"\\x5c\\xff\\x1b\",200,80,10400,exact,true,1,\n"),
            "{csv}"
        );
        let json: serde_json::Value = serde_json::from_str(&line(json_line, &request())).unwrap();
        assert_eq!(
            (json["path"].as_str(), json["service_time_ns"].as_u64()),
            (Some("/a,\"b\"\\x5c\\xff\\x1b"), Some(250_000))
        );
        let later = WireRequest { http_version: 2, stream: Some(5), minor_version: None, ..request() };
        assert!(line(comma_separated, &later).ends_with(",exact,true,2,5\n"));
        assert!(line(super::combined, &later).contains(" HTTP/2.0\" 200 "));
        assert_eq!(
            CSV_HEAD.trim().split(',').count(),
            line(comma_separated, &uncaptured_request()).trim().split(',').count()
        );
    }

    fn uncaptured_request() -> WireRequest {
        WireRequest {
            request_first_at: None,
            request_last_at: None,
            response_first_at: None,
            response_last_at: None,
            method: None,
            host: None,
            path: None,
            minor_version: None,
            referer: None,
            user_agent: None,
            status: None,
            complete: false,
            ..request()
        }
    }

    #[test]
    fn log_has_empty_fields_for_uncaptured_parts() {
        let line = line(combined, &uncaptured_request());
        assert!(line.ends_with("\"-\" 499 10400 \"-\" \"-\" -\n"), "{line}");
    }
}
