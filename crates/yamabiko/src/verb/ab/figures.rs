//! Computes the figures of ab's report from the request records of a run.

use std::time::Duration;

use load::Target;
use report::ab::{Failed, Report, RequestTimes, Secured, Times};
use schema::document::Tls;
use schema::{FailureCause, RequestRecord};
use testbed::Outcome;

use super::failures;
use crate::args::ab::Options;

/// The report of a run with these request records.
pub fn report(options: &Options, outcome: &Outcome, records: &[RequestRecord]) -> Report {
    let target = Target::parse(&options.url).expect("the plan's URL was parsed before the run");
    let document_bytes = document_bytes(records);
    let tls = outcome.document.load.as_ref().and_then(|load| load.tls.as_ref());
    Report {
        software: software(outcome.first_exchange.response_head.as_deref().unwrap_or_default()),
        tls: tls.map(|tls| secured(tls, &target.host)),
        hostname: target.host,
        port: target.port,
        path: target.path_and_query,
        document_bytes: (!options.any_length).then_some(document_bytes),
        concurrency: options.concurrency,
        taken: Duration::from_secs_f64(outcome.document.run.duration_s),
        complete: records.len() as u64,
        failed: failed(records, (!options.any_length).then_some(document_bytes)),
        write_errors: records.iter().filter(|record| is_write_error(record)).count() as u64,
        non_2xx: records.iter().filter(|record| record.status != 0 && record.status / 100 != 2).count() as u64,
        kept_alive: options.keep_alive.then(|| records.iter().filter(|record| record.keep_alive).count() as u64),
        bytes_received: records.iter().map(|record| record.bytes_received).sum(),
        bytes_sent: options.body.is_some().then(|| records.iter().map(|record| record.bytes_sent).sum()),
        body_bytes: records.iter().map(RequestRecord::body_bytes).sum(),
        times: Times::new(records.iter().filter_map(times).collect()),
        zero_at: outcome.zero_at,
    }
}

/// The records of requests that ended within a measured phase of `phase_s` seconds from the first scheduled time. As in
/// ab, requests in flight at its end are left out.
pub fn ended_within(records: Vec<RequestRecord>, phase_s: f64) -> Vec<RequestRecord> {
    let Some(from) = records.iter().map(|record| record.scheduled_at).min() else { return records };
    let end = from + Duration::from_secs_f64(phase_s);
    let ended = |record: &RequestRecord| record.done_at <= end && record.failure != Some(FailureCause::Aborted);
    records.into_iter().filter(ended).collect()
}

/// Body length of the first complete response.
fn document_bytes(records: &[RequestRecord]) -> u64 {
    records.iter().find(|record| record.failure.is_none()).map_or(0, RequestRecord::body_bytes)
}

fn failed(records: &[RequestRecord], document_bytes: Option<u64>) -> Failed {
    let mut failed = Failed::default();
    for record in records {
        match record.failure {
            Some(cause) => failures::count(&mut failed, cause),
            None if document_bytes.is_some_and(|bytes| bytes != record.body_bytes()) => failed.length += 1,
            None => {}
        }
    }
    failed
}

/// Whether the server reset the connection while the request was being written.
fn is_write_error(record: &RequestRecord) -> bool {
    record.failure == Some(FailureCause::Reset) && record.sent_at.is_none() && record.bytes_sent > 0
}

/// ab's times of a request; `None` if it did not start. A request without a response waited until it failed; ab would
/// not count that time as waiting.
fn times(record: &RequestRecord) -> Option<RequestTimes> {
    let started_at = record.started_at?;
    let total_ns = record.service_time_ns()?;
    let connected_at = record.secured_at.or(record.connected_at);
    let connecting = record.sent_at.is_none() && record.bytes_sent == 0;
    let connect_ns = match connected_at {
        _ if connecting => total_ns,
        Some(connected_at) => connected_at.since(started_at).as_nanos() as u64,
        None => 0,
    };
    let answered_at = record.first_byte_at.unwrap_or(record.done_at);
    let waiting = record.sent_at.map(|sent_at| answered_at.since(sent_at));
    Some(RequestTimes {
        started_at_ns: started_at.as_nanos(),
        connect_ns,
        waiting_ns: waiting.unwrap_or_default().as_nanos() as u64,
        total_ns,
    })
}

/// The first word of the Server header.
fn software(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let value = text.lines().skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("server").then_some(value)
    });
    value.and_then(|value| value.split_whitespace().next()).unwrap_or_default().to_owned()
}

fn secured(tls: &Tls, host: &str) -> Secured {
    let most = |counts: &std::collections::BTreeMap<String, u64>| {
        report::phrases::by_frequency(counts).first().map_or("none", |(name, _)| *name).to_owned()
    };
    Secured {
        protocol: format!("{},{}", most(&tls.version), most(&tls.cipher_suite)),
        server_name: host.parse::<std::net::IpAddr>().is_err().then(|| tls.server_name.clone()),
    }
}

#[cfg(test)]
mod tests;
