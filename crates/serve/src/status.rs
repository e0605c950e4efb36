//! `/-/status`: the server's metrics, as JSON and for Prometheus.
//!
//! ```text
//!   StatusSources ──collect_report──▶ Report ──┬─ json.rs: one document
//!                                              └─ prometheus.rs: text format 0.0.4
//! ```
//!
//! docs/concepts/serve-performance.md has the keys of the document.
//!
//! The worker that serves the request collects the data: some files of /proc and some atomics, far below a millisecond.

mod json;
mod prometheus;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use units::Timestamp;

use crate::cache::{Cache, Usage};
use crate::dynamic::{DynamicUsage, UsageReader};
use crate::figures::{Figures, Total};
use crate::file_response::Reply;
use crate::journal::{Log, LogSummary};
use crate::phrase::status_line;
use crate::request::{Method, Request};
use crate::response::{Persistence, Status, field, write_head, write_refusal_with};

/// Who may read the status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusSpec {
    /// Loopback clients without X-Forwarded-For or Forwarded; for others the path belongs to the files.
    #[default]
    Local,
    /// Every client.
    All,
    /// Disabled: the path belongs to the files.
    Off,
}

/// Sources of a status report. One per worker; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StatusSources {
    pub(crate) spec: StatusSpec,
    pub(crate) figures: Figures,
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) log: Option<Log>,
    pub(crate) usage_reader: Option<UsageReader>,
}

/// A snapshot of the metrics.
#[derive(Clone, Debug, Default)]
struct Report {
    /// Since the server's start.
    uptime: Duration,
    total: Total,
    last_minute: u64,
    workers: usize,
    workers_cpu: (Duration, Duration),
    relay_cpu: Option<(Duration, Duration)>,
    /// CPU time of all threads, and resident memory.
    process: Option<(Duration, Duration, u64)>,
    cache: Option<Usage>,
    log: Option<LogSummary>,
    dynamic: Option<DynamicUsage>,
}

impl StatusSources {
    /// Whether this is a request for `/-/status` by a permitted client.
    pub(crate) fn matches(&self, request: &Request<'_>, peer: IpAddr) -> bool {
        request.path == PATH && self.may_read(request, peer)
    }

    /// Responds to a request that [`StatusSources::matches`]. `date` is the Date field with its line end.
    pub(crate) fn answer(
        &self,
        request: &Request<'_>,
        now: Timestamp,
        date: &[u8],
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Reply {
        let head_only = request.method == Method::Head;
        if !head_only && request.method != Method::Get {
            let refused = Status::MethodNotAllowed;
            let content_bytes = write_refusal_with(out, refused, b"Allow: GET, HEAD\r\n", date, persistence, false);
            return Reply { status: refused.code(), content_bytes, body: None };
        }
        let report = self.collect_report(now);
        let (media_type, text) = if wants_prometheus(request) {
            ("text/plain; version=0.0.4; charset=utf-8", prometheus::text(&report))
        } else {
            ("application/json", json::text(&report))
        };
        status_line(out, 200);
        field(
            out,
            format_args!("Server: yamabiko\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n", text.len()),
        );
        write_head(out, b"Cache-Control: no-store\r\n", date, persistence);
        if !head_only {
            out.extend_from_slice(text.as_bytes());
        }
        Reply { status: 200, content_bytes: if head_only { 0 } else { text.len() as u64 }, body: None }
    }

    fn may_read(&self, request: &Request<'_>, peer: IpAddr) -> bool {
        // A proxy on this host forwards requests of other clients, and adds these fields.
        let on_behalf =
            |name: &[u8]| name.eq_ignore_ascii_case(b"x-forwarded-for") || name.eq_ignore_ascii_case(b"forwarded");
        match self.spec {
            StatusSpec::Off => false,
            StatusSpec::All => true,
            StatusSpec::Local => {
                peer.to_canonical().is_loopback() && !request.fields.lines().any(|(name, _)| on_behalf(name))
            }
        }
    }

    fn collect_report(&self, now: Timestamp) -> Report {
        let (workers_cpu, relay_cpu) = self.figures.cpu();
        Report {
            uptime: now.since(Timestamp::ZERO),
            total: self.figures.total(),
            last_minute: self.figures.last_minute(now),
            workers: self.figures.workers(),
            workers_cpu,
            relay_cpu,
            process: sys::accounting::own_usage(),
            cache: self.cache.as_ref().map(|cache| cache.usage()),
            log: self.log.as_ref().map(Log::summary),
            dynamic: self.usage_reader.as_ref().map(UsageReader::read),
        }
    }
}

impl Report {
    /// Requests a second over the last minute, or since a later start.
    fn rate_last_minute_per_s(&self) -> f64 {
        self.last_minute as f64 / self.uptime.as_secs_f64().clamp(1.0, 60.0)
    }

    /// Requests a second since the start.
    fn rate_per_s(&self) -> f64 {
        self.total.requests() as f64 / self.uptime.as_secs_f64().max(1.0)
    }
}

/// By `?format=`, otherwise by the first of the two types in Accept.
fn wants_prometheus(request: &Request<'_>) -> bool {
    for pair in request.query.unwrap_or_default().split(|&byte| byte == b'&') {
        match pair {
            b"format=prometheus" => return true,
            b"format=json" => return false,
            _ => {}
        }
    }
    // Prometheus requests its types by name; browsers and curl name neither.
    request.fields.values(b"accept").any(|accept| {
        let named = |name: &[u8]| accept.windows(name.len()).position(|part| part.eq_ignore_ascii_case(name));
        let text = named(b"application/openmetrics-text").or(named(b"text/plain"));
        match (text, named(b"application/json")) {
            (Some(text), Some(json)) => text < json,
            (text, _) => text.is_some(),
        }
    })
}

/// The status path.
const PATH: &[u8] = b"/-/status";
/// For requests per day, the unit of services of the nineties.
const DAY_S: f64 = 86_400.0;
