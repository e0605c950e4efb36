//! Parses logs of JSON lines: one object per line, with the field names of common servers and exporters.

use serde_json::{Map, Value};

use super::{LineError, LogLine, SECOND_NS, client_of, path_of};

/// Parses a line. Of each group below, the first field that the line has is used:
///
/// - time: `StartUTC`, `StartLocal`, `start_time`, `time`, `ts`, `timestamp`, `@timestamp`, `time_iso8601`,
///   `time_local`, `msec`: RFC 3339 text, or seconds since 1970 as a number or text, with or without a fraction;
/// - client, without its port: `client`, `remote_addr`, `client_ip`, `remote_ip`, `clientip`, `ClientHost`,
///   `ClientAddr`, `downstream_remote_address`, `remoteIp`, `host`;
/// - method and target: `method`, `request_method`, `RequestMethod`, `requestMethod`; `target`, `uri`, `request_uri`,
///   `path`, `url`, `RequestPath`, `requestUrl`; or both in `request`, as in a request line;
/// - `status`, `response_code`, `DownstreamStatus`; `bytes`, `body_bytes_sent`, `size`, `bytes_sent`,
///   `DownstreamContentSize`, `responseSize`.
///
/// All fields except the time may also be in an object `request`, as with Caddy, or `httpRequest`, as with Google's
/// load balancers. The names are those of nginx, Caddy, Envoy, Traefik and Google Cloud.
///
/// # Errors
/// Why the line cannot be replayed.
pub fn parse(line: &str) -> Result<LogLine, LineError> {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return Err(LineError::NotOfFormat) };
    let object = |name: &str| fields.get(name).and_then(Value::as_object);
    let inner = object("request").or_else(|| object("httpRequest"));
    let first = |names: &[&str]| {
        let within = |map: &Map<String, Value>| names.iter().find_map(|&name| map.get(name).cloned());
        within(&fields).or_else(|| inner.and_then(within))
    };
    let text = |names: &[&str]| first(names).and_then(|value| value.as_str().map(str::to_owned));
    let number = |names: &[&str]| {
        first(names).and_then(|value| value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())))
    };

    let time = first(&[
        "StartUTC",
        "StartLocal",
        "start_time",
        "time",
        "ts",
        "timestamp",
        "@timestamp",
        "time_iso8601",
        "time_local",
        "msec",
    ]);
    let (at_unix_ns, has_fraction) = time.as_ref().and_then(unix_ns).ok_or(LineError::NoTime)?;
    let client = text(CLIENT_FIELDS);
    let line = fields.get("request").and_then(Value::as_str);
    let (method, target) = match (line, text(TARGET_FIELDS)) {
        (Some(line), _) => {
            let mut words = line.split(' ');
            match (words.next(), words.next()) {
                (Some(method), Some(target)) if !method.is_empty() => (method.to_owned(), target.to_owned()),
                _ => return Err(LineError::NoRequest),
            }
        }
        (None, Some(target)) => (text(METHOD_FIELDS).unwrap_or_else(|| "GET".to_owned()), target),
        (None, None) => return Err(LineError::NoRequest),
    };
    Ok(LogLine {
        at_unix_ns,
        has_fraction,
        client: client_of(&client.ok_or(LineError::NotOfFormat)?),
        method,
        target: path_of(&target)?.into_owned(),
        status: number(&["status", "response_code", "DownstreamStatus"]).and_then(|status| u16::try_from(status).ok()),
        bytes: number(BYTES_FIELDS),
    })
}

const CLIENT_FIELDS: &[&str] = &[
    "client",
    "remote_addr",
    "client_ip",
    "remote_ip",
    "clientip",
    "ClientHost",
    "ClientAddr",
    "downstream_remote_address",
    "remoteIp",
    "host",
];
const TARGET_FIELDS: &[&str] = &["target", "uri", "request_uri", "path", "url", "RequestPath", "requestUrl"];
const METHOD_FIELDS: &[&str] = &["method", "request_method", "RequestMethod", "requestMethod"];
const BYTES_FIELDS: &[&str] =
    &["bytes", "body_bytes_sent", "size", "bytes_sent", "DownstreamContentSize", "responseSize"];

fn unix_ns(time: &Value) -> Option<(i128, bool)> {
    match time {
        Value::Number(number) => seconds(&number.to_string()),
        Value::String(text) => seconds(text).or_else(|| {
            let at: jiff::Timestamp = text.parse().ok()?;
            Some((at.as_nanosecond(), text.contains('.')))
        }),
        _ => None,
    }
}

/// Parses seconds since 1970 in decimal digits, without rounding and without exponents.
fn seconds(text: &str) -> Option<(i128, bool)> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || whole.len() > 12 || fraction.is_some_and(|fraction| !digits(fraction)) {
        return None;
    }
    let fraction_text = fraction.unwrap_or_default();
    let nine: String = fraction_text.chars().chain(std::iter::repeat('0')).take(9).collect();
    Some((whole.parse::<i128>().ok()? * SECOND_NS + nine.parse::<i128>().ok()?, fraction.is_some()))
}
