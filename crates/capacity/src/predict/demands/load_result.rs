//! The figures of one load, read from the document of its run.

use load::Span;
use plan::Plan;
use schema::MeasuredLoad;
use schema::document::{CheckState, Document};
use testbed::Outcome;
use units::{CpuShare, RequestRate};

use crate::predict::gauge::Gauge;
use crate::predict::path::Traffic;
use crate::predict::period;

/// Share of failures from which on a load has no information about the cost of a response.
const FAILED_MAX: f64 = 0.01;
/// Checks that must pass for a load to have information about costs.
const REQUIRED_CHECKS: [&str; 5] = ["server_answers", "server_alive", "error_rate", "failures", "server_unread"];

/// Result of a load.
#[derive(Clone, Debug)]
pub struct LoadResult {
    /// Index of the load among the loads of the document.
    pub number: usize,
    /// Row of the load in the document.
    pub part: MeasuredLoad,
    /// Bytes and packets in each direction; absent without a path.
    pub traffic: Option<Traffic>,
    /// Requests with a response.
    pub completed: u64,
    /// Mean size of a response in bytes.
    pub request_bytes: f64,
    /// Resident memory of the server at the end.
    pub rss_bytes: u64,
    /// Descriptors of the server at the end.
    pub descriptors: Option<u64>,
    /// Kernel memory per open connection, both ends; of loads with idle open connections.
    pub kernel_bytes_each: Option<f64>,
    /// Mean connection duration in seconds.
    pub connection_s: f64,
    /// Mean connect time in seconds.
    pub connect_s: f64,
    /// Busy share of the generator.
    pub loop_busy: f64,
    /// Excess of the pause between two quota periods over that at the full limit, in seconds.
    pub longer_pause_s: f64,
}

impl LoadResult {
    /// Whether the load has information about the cost of its requests.
    pub fn is_usable(&self) -> bool {
        is_usable(&self.part)
    }
}

/// Whether the load has information about the cost of its requests.
pub fn is_usable(load: &MeasuredLoad) -> bool {
    !load.failed.iter().any(|check| REQUIRED_CHECKS.contains(&check.as_str()))
}

/// The figures of a load of this class and kind.
pub(super) fn result_of(class: &str, kind: &str, plan: &Plan, outcome: &Outcome, gauge: &Gauge) -> LoadResult {
    let document = &outcome.document;
    let empty = schema::document::Load::default();
    let load = document.load.as_ref().unwrap_or(&empty);
    let actual_s = document.run.duration_s.max(1e-3);
    let rate_per_s = load.completed as f64 / actual_s;
    let cores = document.run.host.server_cores.as_deref().map(core_list).unwrap_or_default();
    let read = gauge.read(&cores);
    let (rate_per_s, processes, all) = match (&document.server, read) {
        (Some(server), read) => {
            // Over the time between the readings, which are late on a busy machine.
            let seconds = &outcome.server_seconds;
            let read_s: f64 = seconds.iter().map(|second| second.elapsed_s).sum();
            let sum = |of: fn(&schema::ServerSecond) -> f64| seconds.iter().map(of).sum::<f64>();
            let (processes_s, receive_s, of_s) = if read_s > actual_s / 2.0 {
                (
                    sum(|second| second.cpu_user_s + second.cpu_system_s),
                    sum(|second| second.cpu_receive_s.unwrap_or(0.0)),
                    read_s,
                )
            } else {
                (server.cpu_user_s + server.cpu_system_s, server.cpu_receive_s.unwrap_or(0.0), actual_s)
            };
            let (processes, receive) = (processes_s / of_s, receive_s / of_s);
            // Part of receive processing is charged to the processes as well; total CPU time of the cores is an upper
            // bound for both.
            let bound = read.filter(|_| !cores.is_empty()).map_or(f64::INFINITY, |read| read.cores);
            (rate_per_s, processes, (processes + receive).min(bound).max(processes))
        }
        (None, Some(read)) => (read.rate_per_s, read.processes, read.processes),
        (None, None) => (rate_per_s, 0.0, 0.0),
    };
    let failures: u64 = load.failed.values().sum();
    let mut failed: Vec<String> = document
        .validity
        .checks
        .iter()
        .filter(|check| check.state == CheckState::Failed)
        .map(|check| check.name.clone())
        .collect();
    // On a very busy machine resource usage may not have been read during the load.
    if document.server.is_some() && processes <= 0.0 && load.completed > 0 {
        failed.push("server_unread".into());
    }
    if failures as f64 > FAILED_MAX * (load.completed + failures) as f64 {
        failed.push("failures".into());
    }
    let last = outcome.server_seconds.last();
    let tls = load.tls.as_ref();
    LoadResult {
        number: 0,
        part: MeasuredLoad {
            class: class.into(),
            kind: kind.into(),
            offered_rate_per_s: plan.load.rate.map(RequestRate::per_second),
            limited_cores: plan.server.as_ref().and_then(|server| server.share()).map(CpuShare::cores),
            rate_per_s,
            second_half: second_half(&outcome.spans),
            busy_processes: processes,
            busy_cores: all,
            busy_cores_interval: interval(document, all, load.completed as f64 / actual_s),
            cpu_probe_ns: document.run.host.cpu_probe_ns,
            response_mean_ns: load.response_time_ns.mean,
            response_p50_ns: load.response_time_ns.p50,
            response_p99_ns: load.response_time_ns.p99,
            in_flight: load.in_flight.mean,
            connections_each: load.connections_opened as f64 / (load.completed.max(1)) as f64,
            handshakes_full: tls.map(|tls| tls.handshakes_full),
            handshakes_resumed: tls.map(|tls| tls.handshakes_resumed),
            verdict: document.validity.verdict.name().into(),
            failed,
            left_out: false,
        },
        traffic: traffic(document, load),
        completed: load.completed,
        request_bytes: load.bytes_sent as f64 / load.completed.max(1) as f64,
        rss_bytes: last.map_or(0, |second| second.rss_bytes),
        descriptors: last.and_then(|second| second.descriptors),
        kernel_bytes_each: load.open_connections.as_ref().and_then(|open| open.kernel_bytes_each),
        connection_s: load.connection_duration_ns.mean / 1e9,
        connect_s: load.connect_ns.mean / 1e9,
        loop_busy: outcome.loop_busy,
        longer_pause_s: plan.server.as_ref().map_or(0.0, |server| pause_s(server.share()) - pause_s(server.cpu)),
    }
}

/// Interval of the cores' CPU time for the server's requests, from the interval per request.
fn interval(document: &Document, busy: f64, rate_per_s: f64) -> Option<[f64; 2]> {
    let [low, high] = document.server.as_ref()?.cpu_us_per_request_interval?.map(|us| us * rate_per_s / 1e6);
    Some([low.min(busy), high.max(busy)])
}

/// Pause of a saturated server between two quota periods; 0 without a limit.
pub(super) fn pause_s(share: Option<CpuShare>) -> f64 {
    share.map(CpuShare::cores).map_or(0.0, |share| period(share).as_secs_f64() * (1.0 - share).max(0.0))
}

/// Requests completed in the second half of the spans over those in the first.
fn second_half(spans: &[Span]) -> Option<f64> {
    let completed = |spans: &[Span]| spans.iter().map(|span| span.completed).sum::<u64>();
    let half = spans.len() / 2;
    let (first, second) = (completed(&spans[..half]), completed(&spans[spans.len() - half..]));
    (first > 0 && second > 0).then(|| second as f64 / first as f64)
}

fn traffic(document: &Document, load: &schema::document::Load) -> Option<Traffic> {
    let path = document.path.as_ref()?;
    // The path counts the whole run: warm-up, measured phase and drain.
    let whole_s = document.run.duration_s + document.run.warmup_s;
    let requests = load.completed as f64 * whole_s / document.run.duration_s.max(1e-3);
    (requests >= 1.0).then(|| Traffic {
        up_bytes: path.up.bytes as f64 / requests,
        down_bytes: path.down.bytes as f64 / requests,
        up_packets: path.up.packets as f64 / requests,
        down_packets: path.down.packets as f64 / requests,
        response_body_bytes: load.bytes_received as f64 / load.completed.max(1) as f64,
    })
}

/// Number of cores in a list such as `0,2-3`.
pub fn core_list(list: &str) -> Vec<usize> {
    let part = |part: &str| -> Vec<usize> {
        match part.split_once('-') {
            Some((from, to)) => match (from.parse(), to.parse::<usize>()) {
                (Ok(from), Ok(to)) => (from..=to).collect(),
                _ => Vec::new(),
            },
            None => part.parse().into_iter().collect(),
        }
    };
    list.split(',').flat_map(|word| part(word.trim())).collect()
}
