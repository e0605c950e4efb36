//! Format of a log line.
//!
//! Combined, as Apache and nginx write it, times in UTC:
//!
//! ```text
//! 192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] "GET /a.gif HTTP/1.1" 200 2326 "http://example/" "Mozilla/4.08"
//! ```
//!
//! The extended format appends, separated by spaces: time in microseconds, outcome and reason of the result cache (`-`
//! without it), and `complete` or `truncated`.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::record::Record;
use crate::cache::Outcome;
use crate::date::{MONTHS, civil, two_digits, write_year_and_time};

/// Fields of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined log format.
    #[default]
    Combined,
    /// The combined format with time taken, outcome and reason of the result cache, and whether the response is
    /// complete.
    Extended,
}

/// Formats records. The formatted date of the last second is cached: most lines share it.
#[derive(Debug)]
pub(super) struct Lines {
    format: LogFormat,
    anonymous: bool,
    /// Wall clock at the zero of the server's clock, in nanoseconds since 1970.
    zero_unix_ns: u64,
    second: u64,
    date: [u8; 26],
}

impl Lines {
    /// `zero_unix_ns`: the wall clock when the server's clock was zero.
    pub(super) fn new(format: LogFormat, anonymous: bool, zero_unix_ns: u64) -> Self {
        Lines { format, anonymous, zero_unix_ns, second: 0, date: log_date(0) }
    }

    /// The wall clock may be set; lines follow it from the next buffer on.
    pub(super) fn set_zero(&mut self, zero_unix_ns: u64) {
        self.zero_unix_ns = zero_unix_ns;
    }

    /// Appends the line of `record`. Its time is the end of the request's head.
    pub(super) fn append(&mut self, out: &mut Vec<u8>, record: &Record<'_>) {
        let second = self.zero_unix_ns.saturating_add(record.began.as_nanos()) / 1_000_000_000;
        if second != self.second {
            self.second = second;
            self.date = log_date(second);
        }
        let peer = if self.anonymous { without_host(record.peer) } else { record.peer };
        // Writing to a Vec does not fail.
        let _ = write!(out, "{} - - [", peer.to_canonical());
        out.extend_from_slice(&self.date);
        out.extend_from_slice(b"] \"");
        let (line, fields) = split_line(record.head);
        quoted(out, line);
        let _ = write!(out, "\" {} ", record.status);
        match record.content_bytes {
            0 => out.push(b'-'),
            bytes => {
                let _ = write!(out, "{bytes}");
            }
        }
        let (referer, agent) = named(fields);
        for field in [referer, agent] {
            out.extend_from_slice(b" \"");
            quoted(out, field.unwrap_or(b"-"));
            out.push(b'"');
        }
        if self.format == LogFormat::Extended {
            let _ = write!(out, " {}", record.ended.since(record.began).as_micros());
            match record.finding.outcome {
                Outcome::None => out.extend_from_slice(b" - -"),
                outcome => {
                    let _ = write!(out, " {} {}", outcome.name(), record.finding.reason.name());
                }
            }
            out.extend_from_slice(if record.whole { b" complete" } else { b" truncated" });
        }
        out.push(b'\n');
    }
}

/// The request line without its end, and the remaining lines, of any bytes.
fn split_line(head: &[u8]) -> (&[u8], &[u8]) {
    // RFC 9112, section 2.2: empty lines before a request line are skipped.
    let from = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(head.len());
    let head = &head[from..];
    let end = head.iter().position(|&byte| byte == b'\n').unwrap_or(head.len());
    let line = &head[..end];
    match line.strip_suffix(b"\r").unwrap_or(line) {
        // As other servers log a missing request.
        [] => (b"-", b""),
        line => (line, &head[(end + 1).min(head.len())..]),
    }
}

/// The first Referer and User-Agent.
fn named(fields: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    let (mut referer, mut agent) = (None, None);
    for line in fields.split(|&byte| byte == b'\n') {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if value.is_empty() {
            continue;
        }
        if referer.is_none() && name.eq_ignore_ascii_case(b"referer") {
            referer = Some(value);
        } else if agent.is_none() && name.eq_ignore_ascii_case(b"user-agent") {
            agent = Some(value);
        }
    }
    (referer, agent)
}

/// Appends `text` so that no client byte can end the quotes or the line or control a terminal: quotes and backslashes
/// get a backslash, other than printable ASCII becomes `\xhh`. Long text is truncated.
fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text.iter().take(TEXT_MAX) {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
            }
        }
    }
}

fn without_host(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !((1 << 80) - 1))),
    }
}

/// `10/Oct/2000:13:55:36 +0000` of seconds since 1970; the end of 9999 for later times.
fn log_date(unix_s: u64) -> [u8; 26] {
    let civil = civil(unix_s);
    let mut text = *b"01/Jan/1970:00:00:00 +0000";
    two_digits(&mut text[0..2], civil.day());
    text[3..6].copy_from_slice(MONTHS[civil.month() as usize - 1]);
    write_year_and_time(&mut text[7..20], civil);
    text
}

/// Maximum bytes of one quoted text.
const TEXT_MAX: usize = 8 << 10;
