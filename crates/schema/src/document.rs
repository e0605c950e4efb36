//! The JSON document of a run: design section 4, field for field.
//!
//! Absent parts are absent, never zero. Every `_ns` field is nanoseconds. Reading accepts exactly what writing writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cache_part::CachePart;
use crate::tap_part::TapPart;
use crate::watch_part::WatchPart;

/// The value of [`Document::schema`].
pub const SCHEMA: &str = "yamabiko.run/1";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run, where and when.
    pub run: Run,
    /// Whether to believe it.
    pub validity: Validity,
    /// The load's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The path's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// What the wire showed at the server's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchPart>,
    /// What programs saw through their own sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapPart>,
    /// The server's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// The objective and whether it held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// What a cache between the clients and the origin did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CachePart>,
}

impl Document {
    /// One made of a load alone, `duration_s` seconds long: no checks, nothing else. For what is judged by a load without a run, and to
    /// begin another with.
    pub fn of_load(load: Load, duration_s: f64) -> Self {
        Document {
            schema: SCHEMA.into(),
            run: Run { duration_s, ..Run::default() },
            validity: Validity::from_checks(Vec::new()),
            load: Some(load),
            path: None,
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: None,
        }
    }
}

/// What was run, where and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the run's folder.
    pub id: String,
    /// The run's folder; empty if nothing was kept.
    pub dir: String,
    /// The command that repeats it.
    pub command: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Wall clock at the run's zero, RFC 3339, UTC.
    pub started_at: String,
    /// Length of the measured phase in seconds.
    pub duration_s: f64,
    /// Length of the warm-up before it in seconds (its requests are not in the results).
    pub warmup_s: f64,
    /// Whether the measured phase was cut short (Ctrl-C).
    pub interrupted: bool,
    /// What is in the run's table of requests; absent where nothing was kept, or the table is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// The machine.
    pub host: Host,
}

/// What is in the run's table of requests, `requests.parquet`. Every figure of the document is of all requests, whatever is
/// in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Rows in the table.
    pub requests: u64,
    /// Requests of the run, its warm-up and drain included.
    pub of: u64,
    /// 1: the table has every request. Above: it is an even sample of one in so many, chosen by a hash of the request's
    /// number, since the disk could not take all.
    pub one_in: u64,
    /// When the measured phase began, on the clock of the table's moments: its requests are those intended from then on.
    #[serde(default)]
    pub measured_from_ns: u64,
}

/// The machine and how it was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Cores of load generator and path, as a list such as `1` or `2-3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cores: Option<String>,
    /// Cores of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cores: Option<String>,
    /// What else bears on the figures: wait mode, scheduling class, RPS, privilege, congestion control.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Share of all cores' time stolen by the hypervisor while the loop ran, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// Processor time of a piece of work that is always the same (twenty bytes through a pipe, one by one), done every 10 ms of the measured phase in what
    /// the server left of its cores: the median. The more, the slower these processors were. Absent where the server's cores are not known, or it left nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_ns: Option<u64>,
}

/// Whether to believe the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// Drawn from the checks.
    pub verdict: Verdict,
    /// Every check, run or not.
    pub checks: Vec<Check>,
}

/// The gate's verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every check that applies ran and held.
    Valid,
    /// A check that applies could not run, or one that only casts doubt failed.
    Suspect,
    /// A check failed: the figures are not what they claim to be.
    Invalid,
}

impl Verdict {
    /// As in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Suspect => "suspect",
            Verdict::Invalid => "invalid",
        }
    }
}

/// One validity check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Snake-case name, one per kind of check.
    pub name: String,
    /// Outcome.
    pub state: CheckState,
    /// What a failure makes of the verdict.
    pub weight: Weight,
    /// The figure, where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The limit it was held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// One sentence for a person: what was compared, and if it failed, what to do.
    pub why: String,
}

/// What a failed check makes of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Failure makes the run invalid.
    Invalid,
    /// Failure makes the run suspect.
    Suspect,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Ran and held.
    Ok,
    /// Ran and did not hold.
    Failed,
    /// Applies to the plan but could not run.
    CouldNotRun,
    /// Does not apply to the plan.
    NotApplicable,
}

impl Validity {
    /// Draws the verdict from the checks.
    pub fn from_checks(checks: Vec<Check>) -> Self {
        let verdict = checks
            .iter()
            .map(|check| match (check.state, check.weight) {
                (CheckState::Ok | CheckState::NotApplicable, _) => Verdict::Valid,
                (CheckState::CouldNotRun, _) | (CheckState::Failed, Weight::Suspect) => Verdict::Suspect,
                (CheckState::Failed, Weight::Invalid) => Verdict::Invalid,
            })
            .max()
            .unwrap_or(Verdict::Valid);
        Validity { verdict, checks }
    }
}

/// A distribution: Q in the design. Unit by the field that holds it (`_ns`). All zero when `count` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Smallest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 75th percentile.
    pub p75: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// Largest.
    pub max: u64,
}

impl Quantiles {
    /// Whether its figures can be those of one sample: percentiles that rise, and a mean between the least and the largest value. Tests hold
    /// every estimator to it.
    pub fn is_consistent(&self) -> bool {
        let Quantiles { count, mean, stddev, min, p50, p75, p90, p95, p99, p99_9, p99_99, max } = *self;
        let rises = [min, p50, p75, p90, p95, p99, p99_9, p99_99, max].is_sorted();
        let between = (min as f64..=max as f64).contains(&mean);
        rises && between && stddev >= 0.0 && (count > 0 || max == 0)
    }
}

/// A level sampled over the measured phase: L in the design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Mean of the samples.
    pub mean: f64,
    /// Median of the samples.
    pub p50: u64,
    /// Largest sample.
    pub max: u64,
}

/// How far response times may be too long because the load generator was late or stalled: upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorDelay {
    /// By how much the same field of the response time may be too high; `count`: requests that were delayed, `max`: the longest delay of one;
    /// `min` and `stddev` are 0.
    pub response_time_ns: Quantiles,
    /// Stalls of the generator's loops in the measured phase: stretches of more than 0.2 ms in which one did nothing although it meant to.
    pub stalls: u64,
    /// The longest.
    pub stall_max_ns: u64,
    /// Length of all, in the loop that stalled the most.
    pub stalled_ns: u64,
}

/// The load's own view of the measured phase: requests whose intended moment lies in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// `open` or `closed`.
    #[serde(rename = "loop")]
    pub loop_kind: String,
    /// Requests intended in the measured phase.
    pub offered_requests: u64,
    /// The same a second.
    pub offered_rate_per_s: f64,
    /// Of the offered requests, those that got a whole response, also when it came after the phase's end.
    pub completed: u64,
    /// Responses completed *within* the measured phase, a second.
    pub carried_rate_per_s: f64,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
    /// Why responses could not be read (failures `malformed` and `head_too_large`), by reason, the most frequent first;
    /// absent where all could. Over HTTP/2 no reason is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub malformed_responses: Vec<MalformedResponses>,
    /// Of the offered requests, those neither completed nor failed when the run ended.
    pub in_flight_at_end: u64,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// The plan says for every request which status is good: those of completed requests all are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub statuses_expected: bool,
    /// done - intended. Failed requests are in it, at the moment of their failure.
    pub response_time_ns: Quantiles,
    /// done - started.
    pub service_time_ns: Quantiles,
    /// started - intended.
    pub send_lag_ns: Quantiles,
    /// connected - started, of requests that opened a connection.
    pub connect_ns: Quantiles,
    /// secured - connected, of requests that opened a connection; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_handshake_ns: Option<Quantiles>,
    /// What the TLS handshakes settled; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// first byte - started.
    pub first_byte_ns: Quantiles,
    /// closed - connect called, of connections closed in the measured phase.
    pub connection_duration_ns: Quantiles,
    /// How far response times may be too long because of the load generator itself; absent where it was not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_delay: Option<GeneratorDelay>,
    /// Response bytes: heads and bodies.
    pub bytes_received: u64,
    /// Request bytes that the kernel took and the server's acknowledged.
    pub bytes_sent: u64,
    /// Times that the offered requests were sent, retries included.
    #[serde(default)]
    pub requests_sent: u64,
    /// Of the offered requests, those sent more than once (`--retry`).
    #[serde(default)]
    pub requests_retried: u64,
    /// Of the completed requests, those whose response was whole before the server had received the whole request.
    #[serde(default)]
    pub early_responses: u64,
    /// Empty lines before or behind responses, over the whole run, which belong to none and were skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stray_lines: u64,
    /// Data that no request asked for, over the whole run; absent where none came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsolicited: Option<Unsolicited>,
    /// Requests started and not done.
    pub in_flight: Level,
    /// Connections in process: connect called and not closed.
    pub connections: Level,
    /// Connections on which connect was called in the measured phase.
    pub connections_opened: u64,
    /// Requests intended and not started.
    pub backlog: Level,
    /// Connections opened before the load and held through it; absent where none were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Sessions; absent where the plan has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// By band of the client's asked RTT; absent without a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_distance: Vec<DistanceBand>,
    /// By URL, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_url: Vec<UrlPart>,
    /// The URLs that `by_url` does not list, together: of more than a hundred it lists those the plan asks for most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_url_left_out: Option<UrlsLeftOut>,
    /// By phase of the load, where it has several. A request belongs to the phase in which it was intended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_phase: Vec<PhasePart>,
    /// What was replayed; absent where the load is no replay of a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The recording that the sessions come from; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub har: Option<Har>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Data that no request asked for: before a connection's first request, or between a response and the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsolicited {
    /// Connections that brought such data, and were closed.
    pub connections: u64,
    /// Responses that had come on these connections: which request each of them answers is uncertain.
    pub responses: u64,
}

/// Responses that could not be read, all for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MalformedResponses {
    /// The rule of HTTP/1 that they break, in one word.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// What was wrong with the first of them, in words.
    pub first: String,
}

/// What the TLS handshakes of a run settled. Counts are of the whole run, its warm-up included: kept connections are
/// mostly opened there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tls {
    /// Name sent in SNI (none is, if it is an address) and looked for in the certificate.
    pub server_name: String,
    /// What certificates were held against: `system`, the file of `--cacert`, or `nothing` with `--insecure`.
    pub trust: String,
    /// Handshakes with the server's certificate and signature.
    pub handshakes_full: u64,
    /// Handshakes that took up an earlier session of the same client.
    pub handshakes_resumed: u64,
    /// Resumed over all; absent where none was finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_share: Option<f64>,
    /// Finished handshakes by version, such as `TLSv1.3`.
    pub version: BTreeMap<String, u64>,
    /// Finished handshakes by cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: BTreeMap<String, u64>,
    /// Finished handshakes by the protocol that ALPN chose; `none` where the server chose none.
    pub alpn: BTreeMap<String, u64>,
    /// The first failure of TLS in the run, in words; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// The sessions of a load, over the whole run: a session of the warm-up may end in the measured phase. `begun = ended +
/// failed + cut`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Begun.
    pub begun: u64,
    /// Of these, the ones that began in the measured phase.
    pub begun_measured: u64,
    /// `begun_measured` over the length of the measured phase.
    pub rate_per_s: f64,
    /// Came to the end of their steps.
    pub ended: u64,
    /// Were ended by a failed request.
    pub failed: u64,
    /// Were not done when the phase was over.
    pub cut: u64,
}

/// Connections opened before the load and held through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Asked for.
    pub connections: u64,
    /// Of these, the ones that were not established.
    pub failed: u64,
    /// Opened, and in the end closed, at this pace.
    pub per_second: u64,
    /// Processes of the generator, this one included, among which they are divided.
    pub processes: u32,
    /// Resident memory that all these processes came to need while the connections were opened, over their number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_bytes_each: Option<f64>,
    /// Kernel memory (slab) of this machine that came to be used meanwhile, over their number: of both ends where both are
    /// here, and of whatever else went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes_each: Option<f64>,
}

/// Clients whose asked RTT lies in `[from, to)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistanceBand {
    /// Lower edge, inclusive.
    pub rtt_ns_from: u64,
    /// Upper edge, exclusive.
    pub rtt_ns_to: u64,
    /// Clients in the band.
    pub clients: u64,
    /// Their completed requests.
    pub completed: u64,
    /// Their failed requests.
    pub failed: u64,
    /// Their response times.
    pub response_time_ns: Quantiles,
}

/// One URL's share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UrlPart {
    /// The URL.
    pub url: String,
    /// Completed requests.
    pub completed: u64,
    /// Failed requests.
    pub failed: u64,
    /// Response times.
    pub response_time_ns: Quantiles,
}

/// Several URLs together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UrlsLeftOut {
    /// How many URLs.
    pub urls: u64,
    /// Completed requests.
    pub completed: u64,
    /// Failed requests.
    pub failed: u64,
    /// Response times.
    pub response_time_ns: Quantiles,
}

/// One phase of a load that has several: the requests that were intended in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePart {
    /// Its name in the plan.
    pub name: String,
    /// When it began, in seconds from the beginning of the measured phase.
    pub from_s: f64,
    /// When it ended; earlier than planned where the run was cut short.
    pub to_s: f64,
    /// Whether one rate was offered throughout, so that means do not depend on when one looks.
    pub is_steady: bool,
    /// Requests intended in it.
    pub offered_requests: u64,
    /// The same a second.
    pub offered_rate_per_s: f64,
    /// Of the offered requests, those that got a whole response, also when it came in a later phase.
    pub completed: u64,
    /// Responses completed *within* the phase, a second, whenever they were intended.
    pub carried_rate_per_s: f64,
    /// Of the offered requests, those that failed.
    pub failed: u64,
    /// done - intended. Failed requests are in it, at the moment of their failure.
    pub response_time_ns: Quantiles,
    /// done - started.
    pub service_time_ns: Quantiles,
    /// started - intended.
    pub send_lag_ns: Quantiles,
}

/// What was replayed of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// The log's file.
    pub file: String,
    /// Lines in it.
    pub lines: u64,
    /// Lines that are replayed as requests, once a round.
    pub requests_logged: u64,
    /// Lines that are not, by reason in words. Together with `requests_logged` they are all lines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u64>,
    /// For each of these reasons the number of the first such line, counted from 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out_first: BTreeMap<String, u64>,
    /// Different requests: method and target.
    pub urls: u64,
    /// Different clients in the log.
    pub clients_logged: u64,
    /// Virtual clients that stood for them; fewer than logged where several share one.
    pub clients: u64,
    /// Length of one round in seconds: from the first request to the end of the log, scaled.
    pub length_s: f64,
    /// Times between requests were multiplied by this.
    pub time_scale: f64,
    /// How many times the log was to be replayed; absent where it went on until the run's duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Requests that the whole replay asks for; absent where `rounds` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_planned: Option<u64>,
    /// Requests with a method that has a body. Logs do not keep bodies: they were sent empty.
    pub bodies_empty: u64,
}

/// A browser's recording that became a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Har {
    /// The archive's file.
    pub file: String,
    /// Entries in it.
    pub entries: u64,
    /// Requests of a session.
    pub requests: u64,
    /// Entries that are not in the session, by reason in words. Together with `requests` they are all entries.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u64>,
    /// Host and port, as recorded, whose requests went to the plan's host.
    pub host: String,
}

/// The path's figures. The path is up from its start to its end, so packets of the warm-up are counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Name of the profile, or how it was given.
    pub profile: String,
    /// Number of virtual clients.
    pub clients: u64,
    /// RTT asked, one value a client.
    pub asked_rtt_ns: Quantiles,
    /// RTT got, one value a handshake: connect called to connection established, as the load's clock saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub got_rtt_ns: Option<Quantiles>,
    /// Got less asked of the same client, one value a handshake that lost no packet. Absolute value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_error_ns: Option<Quantiles>,
    /// Where `got_rtt_ns` comes from.
    pub got_rtt_from: String,
    /// Write less due, all packets.
    pub lateness_ns: Quantiles,
    /// The same, of packets that were not part of a volley.
    pub lateness_spread_ns: Quantiles,
    /// The same, of packets in a volley (8 or more due within 50 us).
    pub lateness_volley_ns: Quantiles,
    /// The path as packets show it from outside, where both its ends were watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_outside: Option<PathFromOutside>,
    /// From a TUN's packet being waiting to its being read; measured where stamps exist, else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_delay_ns: Option<Quantiles>,
    /// Packets accepted, both directions, as wire packets.
    pub packets: u64,
    /// Bytes accepted, both directions, IP headers included.
    pub bytes: u64,
    /// Packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Up (client to server).
    pub up: PathDirection,
    /// Down (server to client).
    pub down: PathDirection,
}

/// The path by the time stamps of packets captured at both its ends, over the measured phase. It holds what the path
/// cannot know of itself: how long packets waited before they were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathFromOutside {
    /// Packets found at both ends.
    pub matched: u64,
    /// Packets found at one end only: lost, cut into others on the way, or not told apart.
    pub unmatched: u64,
    /// One-way time from the clients' device to the server's.
    pub up_ns: Quantiles,
    /// One-way time from the server's device to the clients'.
    pub down_ns: Quantiles,
    /// One-way time less the delay asked of that client's link, both directions; earlier than asked counts as 0.
    pub lateness_ns: Quantiles,
}

/// One direction of the path. `packets = delivered + sum of drops + held`, always.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathDirection {
    /// Wire packets accepted.
    pub packets: u64,
    /// Bytes accepted.
    pub bytes: u64,
    /// Wire packets delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Wire packets held (on the way) at the end.
    pub held: u64,
    /// Wire packets dropped, by cause.
    pub drops: BTreeMap<String, u64>,
    /// Wire packets that the path made in addition, as asked. Always: packets + duplicated = delivered + dropped + held.
    #[serde(default)]
    pub duplicated: u64,
    /// Wire packets in which a bit was inverted, as asked.
    #[serde(default)]
    pub corrupted: u64,
    /// Wire packets held back so that others could overtake them, as asked.
    #[serde(default)]
    pub reordered: u64,
}

/// The server's processes over the measured phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// The command.
    pub command: String,
    /// User CPU seconds of its processes.
    pub cpu_user_s: f64,
    /// System CPU seconds of its processes.
    pub cpu_system_s: f64,
    /// Receive processing: interrupts on its cores that no process was charged for, in CPU seconds, less those that this program causes itself. Absent
    /// where packets are not received on the server's own cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_receive_s: Option<f64>,
    /// Receive processing at least and at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_receive_interval_s: Option<[f64; 2]>,
    /// User, system and receive processing over completed requests, in us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request: Option<f64>,
    /// The same at least and at most: what cannot be told apart from the work of others on the server's cores is in the interval, and how coarse the
    /// kernel's clocks are. Absent where the server's cores are not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_request_interval: Option<[f64; 2]>,
    /// Whose time the time of its cores was. Absent where /proc could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<crate::ServerCores>,
    /// Largest resident memory seen, all processes, in bytes.
    pub rss_bytes_max: u64,
    /// Time for which its CPU share held it back, in seconds; absent without `--server-cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_s: Option<f64>,
    /// Where the CPU figures come from: `cgroup` or `/proc`.
    pub source: String,
    /// Its TCP as set on the route.
    pub tcp: String,
}

/// The objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// As typed.
    pub objective: String,
    /// Whether every term held.
    pub met: bool,
    /// Each term.
    pub terms: Vec<SloTerm>,
}

/// One term of an objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SloTerm {
    /// As typed, such as `p99 < 200ms`.
    pub term: String,
    /// The figure, in `unit`.
    pub value: f64,
    /// The limit, in `unit`.
    pub limit: f64,
    /// `ns` or `ratio`.
    pub unit: String,
    /// Whether it held.
    pub met: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: CheckState, weight: Weight) -> Check {
        Check { name: "x".into(), state, weight, value: None, limit: None, unit: String::new(), why: String::new() }
    }

    #[test]
    fn the_worst_check_decides() {
        let verdict = |checks: &[(CheckState, Weight)]| {
            Validity::from_checks(checks.iter().map(|&(state, weight)| check(state, weight)).collect()).verdict
        };
        assert_eq!(verdict(&[]), Verdict::Valid);
        assert_eq!(
            verdict(&[(CheckState::Ok, Weight::Invalid), (CheckState::NotApplicable, Weight::Invalid)]),
            Verdict::Valid
        );
        assert_eq!(
            verdict(&[(CheckState::Ok, Weight::Invalid), (CheckState::CouldNotRun, Weight::Invalid)]),
            Verdict::Suspect
        );
        assert_eq!(verdict(&[(CheckState::Failed, Weight::Suspect)]), Verdict::Suspect);
        assert_eq!(
            verdict(&[(CheckState::Failed, Weight::Suspect), (CheckState::Failed, Weight::Invalid)]),
            Verdict::Invalid
        );
    }
}
