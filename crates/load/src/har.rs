//! Reads an HTTP archive (HAR 1.2), as browsers record it, into a session.
//!
//! ```text
//!   HAR --entries--> of the page's own host --> RequestSpec, Step at its recorded offset
//!              \---> left out, counted by reason
//! ```
//!
//! Each request is sent to the plan's host, whatever its host in the archive, at its recorded time after the beginning
//! of the session. Source: the HAR 1.2 specification (J. Odvarko); fields with a leading underscore are Chromium's.

mod body;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use schema::Method;
use serde_json::Value;

use crate::workload::{SessionSpec, Step, Template, When};
use crate::{RequestSpec, Target};

/// A recorded session.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The different requests, in order of their first use.
    pub requests: Vec<RequestSpec>,
    /// Each recorded request at its own time.
    pub session: SessionSpec,
    /// Entries in the archive.
    pub entries: u64,
    /// Entries that are not in the session, by reason (text for the user).
    pub left_out: BTreeMap<String, u64>,
    /// Host and port in the archive whose requests are sent to the plan's host.
    pub host: String,
}

/// Maximum bytes of an archive; the caller checks the limit.
pub const BYTES_MAX: u64 = 256 << 20;

/// Maximum steps of a session; a longer recording is not a visit.
const STEPS_MAX: usize = 100_000;

/// The properties of an archive's entry that a replay needs.
struct Entry<'a> {
    at_unix_ns: i128,
    method: Method,
    authority: String,
    path: String,
    request: &'a Value,
}

/// Reads an archive. Requests to the host of the first request, and to the host of `target`, are sent to `target`.
///
/// # Errors
/// One sentence: the bytes are not an archive, or it has no request that can be replayed.
pub fn read(bytes: &[u8], target: &Target) -> Result<Recorded, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let archive: Value = serde_json::from_slice(bytes).map_err(|error| format!("it is not valid JSON: {error}"))?;
    let listed =
        archive.pointer("/log/entries").and_then(Value::as_array).ok_or("it has no log.entries: not a HAR file")?;
    let mut left_out = BTreeMap::<String, u64>::new();
    let mut entries = Vec::new();
    for entry in listed {
        match parse_entry(entry) {
            Ok(entry) => entries.push(entry),
            Err(why) => *left_out.entry(why.to_owned()).or_default() += 1,
        }
    }
    // Archives need not be sorted. The sort is stable: entries with the same time keep their order.
    entries.sort_by_key(|entry| entry.at_unix_ns);
    let host = entries.first().map(|entry| entry.authority.clone()).unwrap_or_default();
    let own = target.authority.to_ascii_lowercase();
    let (replayed, others): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.authority == host || entry.authority == own);
    if !others.is_empty() {
        left_out.insert("of another host".to_owned(), others.len() as u64);
    }
    let Some(first) = replayed.first().map(|entry| entry.at_unix_ns) else {
        return Err(format!("none of its {} entries is a request that can be replayed", listed.len()));
    };
    if replayed.len() > STEPS_MAX {
        return Err(format!("it has {} requests: a session has at most {STEPS_MAX}", replayed.len()));
    }
    let (mut requests, mut steps, mut known) = (Vec::new(), Vec::new(), HashMap::new());
    for entry in &replayed {
        let request = request(entry, target);
        let key = (request.method, entry.path.clone(), format!("{:?}", request.headers), request.body.clone());
        let index = *known.entry(key).or_insert_with(|| {
            requests.push(request);
            requests.len() as u32 - 1
        });
        let offset = Duration::from_nanos(u64::try_from(entry.at_unix_ns - first).unwrap_or(u64::MAX));
        steps.push(Step { request: index, when: When::At(offset), embedded: Vec::new(), parallel: 1 });
    }
    Ok(Recorded {
        requests,
        // A browser requests the other objects even if one fails.
        session: SessionSpec { name: None, weight: 1.0, steps, goes_on: true },
        entries: listed.len() as u64,
        left_out,
        host,
    })
}

fn parse_entry(entry: &Value) -> Result<Entry<'_>, &'static str> {
    let request = entry.get("request").ok_or("without a request")?;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let url = text(request, "url").ok_or("without a URL")?;
    let rest = match url.split_once("://") {
        Some(("http" | "https", rest)) => rest,
        _ => return Err("not http"),
    };
    // The request was blocked, cancelled or failed; often no server received it.
    if entry.pointer("/response/status").and_then(Value::as_i64) == Some(0) {
        return Err("without a response (status 0)");
    }
    if entry.get("_fromCache").is_some() {
        return Err("from the browser's cache");
    }
    let method = text(request, "method").ok_or("without a method")?;
    let method = Method::ALL.into_iter().find(|known| known.as_str() == method);
    let method = method.ok_or("its method is not one that is sent here")?;
    let at: jiff::Timestamp =
        text(entry, "startedDateTime").and_then(|at| at.parse().ok()).ok_or("no time that can be read")?;
    let rest = rest.split('#').next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    // Rejects paths that would end the request line, and texts that are not URLs.
    if authority.is_empty() || authority.contains('@') || path.parse::<http::uri::PathAndQuery>().is_err() {
        return Err("its URL cannot be sent");
    }
    Ok(Entry { at_unix_ns: at.as_nanosecond(), method, authority: authority.to_ascii_lowercase(), path, request })
}

/// Headers of the recording that are not replayed: they belong to the connection, are generated, or identify the person
/// who made the recording.
const OMITTED_HEADERS: [&str; 14] = [
    "host",
    "connection",
    "proxy-connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "content-length",
    "expect",
    "cookie",
    "authorization",
    "proxy-authorization",
];

fn request(entry: &Entry<'_>, target: &Target) -> RequestSpec {
    let mut request = RequestSpec::get(target.with_path(&entry.path));
    request.method = entry.method;
    if entry.method != Method::Get {
        request.name = Some(format!("{} {}", entry.method.as_str(), request.target.url()));
    }
    let headers = entry.request.get("headers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for header in headers {
        let (Some(name), Some(value)) =
            (header.get("name").and_then(Value::as_str), header.get("value").and_then(Value::as_str))
        else {
            continue;
        };
        // Pseudo-headers of HTTP/2 begin with a colon and are not valid names.
        let sendable =
            http::HeaderName::from_bytes(name.as_bytes()).is_ok() && http::HeaderValue::from_str(value).is_ok();
        if sendable && !OMITTED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            request.headers.push((name.to_owned(), Template::literal(value)));
        }
    }
    let body = body::of(entry.request);
    if let Some(content_type) = body.content_type {
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
        request.headers.push(("Content-Type".to_owned(), Template::literal(&content_type)));
    }
    request.body = Template::bytes(&body.bytes);
    request
}

#[cfg(test)]
mod tests;
