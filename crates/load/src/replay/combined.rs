//! Parses the common and the combined log format of web servers.
//!
//! `192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326 "http://example/" "Mozilla/4.08"`
//!
//! Apache's vhost_combined format begins with the virtual host: `shop.example:443 192.0.2.1 - frank [..`.

use std::net::IpAddr;

use jiff::fmt::strtime;

use super::escaped::{percent_encoded, unescaped};
use super::{LineError, LogLine, client_of, path_of};

/// Parses a line. Fields after the first seven are ignored, so the combined format and its many extensions are
/// supported. Escapes of Apache and nginx within the request are decoded, and the bytes percent-encoded.
///
/// # Errors
/// Why the line cannot be replayed.
pub fn parse(line: &str) -> Result<LogLine, LineError> {
    let line = line.trim_end();
    // The user's name may contain spaces, so the time after it is found by its bracket.
    let (who, rest) = line.split_once(" [").ok_or(LineError::NotOfFormat)?;
    let client = client(who).ok_or(LineError::NotOfFormat)?;
    let (time, rest) = rest.split_once("] \"").ok_or(LineError::NotOfFormat)?;
    let end = closing_quote(rest).ok_or(LineError::NotOfFormat)?;
    let (request, rest) = (&rest[..end], &rest[end + 1..]);
    let mut numbers = rest.split_ascii_whitespace();
    let (status, bytes) = (numbers.next(), numbers.next());

    let (at_unix_ns, has_fraction) = unix_ns(time).ok_or(LineError::NoTime)?;
    let mut words = request.split(' ');
    let (method, target) = match (words.next(), words.next(), words.next(), words.next()) {
        // A request line without a version is HTTP/0.9, which has only GET.
        (Some("GET"), Some(target), None, None) => ("GET", target),
        (Some(method), Some(target), Some(version), None) if version.starts_with("HTTP/") => (method, target),
        _ => return Err(LineError::NoRequest),
    };
    if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') {
        return Err(LineError::NoRequest);
    }
    Ok(LogLine {
        at_unix_ns,
        has_fraction,
        client: client_of(client),
        method: method.to_owned(),
        target: path_of(&percent_encoded(&unescaped(target)))?.into_owned(),
        status: status.and_then(|status| status.parse().ok()),
        bytes: bytes.and_then(|bytes| bytes.parse().ok()),
    })
}

/// The client among the words before the time: `CLIENT IDENTITY USER`, optionally preceded by a virtual host with or
/// without a port.
fn client(who: &str) -> Option<&str> {
    let mut words = who.split(' ');
    let (first, second, third, fourth) = (words.next()?, words.next()?, words.next(), words.next());
    let is_address = |word: &str| word.parse::<IpAddr>().is_ok();
    // The second word of the plain format is the identity of RFC 1413, which is nearly always `-`.
    let is_host = !is_address(first) && (is_address(second) || has_port(first) && second != "-");
    if is_host && third.is_some() && fourth.is_some() {
        Some(second)
    } else {
        Some(first).filter(|word| !word.is_empty())
    }
}

fn has_port(word: &str) -> bool {
    word.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// The position of the closing quote.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

/// Parses `10/Oct/2000:13:55:36 -0700`, optionally with a fraction after the seconds. Returns the time, and whether it
/// has a fraction.
fn unix_ns(time: &str) -> Option<(i128, bool)> {
    let has_fraction = time.contains('.');
    let format = if has_fraction { "%d/%b/%Y:%H:%M:%S%.f %z" } else { "%d/%b/%Y:%H:%M:%S %z" };
    let at = strtime::parse(format, time).ok()?.to_timestamp().ok()?;
    Some((at.as_nanosecond(), has_fraction))
}
