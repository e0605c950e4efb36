//! The load generator's part of the document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Level, Quantiles};

/// Generator delay: upper bounds on what a late or stalled load generator added to response times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GeneratorDelay {
    /// Upper bound on the error of the same field of the response time; `count`: delayed requests, `max`: the longest
    /// delay; `min` and `stddev` are 0.
    pub response_time_ns: Quantiles,
    /// Stalls of the generator's loops in the measured phase: times of more than 0.2 ms in which a loop did nothing
    /// although it had work.
    pub stalls: u64,
    /// The longest.
    pub stall_max_ns: u64,
    /// Length of all, in the loop that stalled the most.
    pub stalled_ns: u64,
    /// The send lag, of requests that did not wait for a connection, less the machine's part of it: the time by which the
    /// machine woke or resumed the request's loop late.
    #[serde(default)]
    pub send_lag_own_ns: Quantiles,
    /// Total time by which the machine woke or resumed a waiting loop late, each time by more than 10 us: of all loops,
    /// in the measured phase.
    #[serde(default)]
    pub late_wakeups_ns: u64,
    /// Time for which the loops were ready to run and had no core, in the measured phase; absent if the kernel does not
    /// measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_wait_ns: Option<u64>,
}

/// Results of the load generator in the measured phase: requests whose scheduled time lies in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// `open` or `closed`.
    #[serde(rename = "loop")]
    pub loop_kind: String,
    /// Requests scheduled in the measured phase.
    pub offered_requests: u64,
    /// Offered requests per second.
    pub offered_rate_per_s: f64,
    /// Offered requests with a complete response, including responses after the end of the phase.
    pub completed: u64,
    /// Responses completed *within* the measured phase, a second.
    pub achieved_rate_per_s: f64,
    /// Failures by cause.
    pub failed: BTreeMap<String, u64>,
    /// Why responses could not be read (failures `malformed` and `head_too_large`), by reason, the most frequent first;
    /// absent where all could. Over HTTP/2 no reason is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub malformed_responses: Vec<MalformedResponses>,
    /// Offered requests neither completed nor failed when the run ended.
    pub in_flight_at_end: u64,
    /// Responses by status code.
    pub status: BTreeMap<String, u64>,
    /// Whether the plan names good statuses for every request: then all completed requests have one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub statuses_expected: bool,
    /// done - scheduled. Failed requests are included, until their failure.
    pub response_time_ns: Quantiles,
    /// done - started.
    pub service_time_ns: Quantiles,
    /// started - scheduled.
    pub send_lag_ns: Quantiles,
    /// connected - started, of requests that opened a connection.
    pub connect_ns: Quantiles,
    /// secured - connected, of requests that opened a connection; absent without such requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_handshake_ns: Option<Quantiles>,
    /// Results of the TLS handshakes; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
    /// QUIC connections; absent without HTTP/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic: Option<Quic>,
    /// first byte - started.
    pub first_byte_ns: Quantiles,
    /// closed - connect called, of connections closed in the measured phase.
    pub connection_duration_ns: Quantiles,
    /// Generator delay: upper bounds on what the load generator added to response times; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_delay: Option<GeneratorDelay>,
    /// Response bytes: heads and bodies.
    pub bytes_received: u64,
    /// Request bytes that the server's kernel acknowledged.
    pub bytes_sent: u64,
    /// Times that the offered requests were sent, retries included.
    #[serde(default)]
    pub requests_sent: u64,
    /// Offered requests that were sent more than once (`--retry`).
    #[serde(default)]
    pub requests_retried: u64,
    /// Completed requests whose response was complete before the server had received the whole request.
    #[serde(default)]
    pub early_responses: u64,
    /// Empty lines between responses, over the whole run; they are skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stray_lines: u64,
    /// Unrequested data, over the whole run; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsolicited: Option<Unsolicited>,
    /// Requests started and not done.
    pub in_flight: Level,
    /// Concurrent connections: connect called and not closed.
    pub connections: Level,
    /// Connections on which connect was called in the measured phase.
    pub connections_opened: u64,
    /// Requests scheduled and not started.
    pub backlog: Level,
    /// Idle open connections (`--open-connections`); absent without the option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_connections: Option<OpenConnections>,
    /// Sessions; absent if the plan has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Sessions>,
    /// Results by band of the client's configured RTT; absent without a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_distance: Vec<DistanceBand>,
    /// Results by URL, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_url: Vec<UrlPart>,
    /// The URLs that `by_url` does not list, together: of more than a hundred it lists those that the plan requests
    /// most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_url_left_out: Option<UrlsLeftOut>,
    /// Results by phase of the load, if it has several. A request belongs to the phase of its scheduled time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_phase: Vec<PhasePart>,
    /// The replayed log; absent if the load is not a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
    /// The recording that defines the sessions; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub har: Option<Har>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Unrequested data: before a connection's first request, or between a response and the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsolicited {
    /// Connections that brought such data, and were closed.
    pub connections: u64,
    /// Responses that had come on these connections: which request each of them belongs to is uncertain.
    pub responses: u64,
}

/// Responses that could not be read, all for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MalformedResponses {
    /// The rule of HTTP/1 that they break, in one word.
    pub reason: String,
    /// Number of occurrences.
    pub count: u64,
    /// Description of the first one.
    pub first: String,
}

/// Results of a run's TLS handshakes. Counts are of the whole run including the warm-up, because persistent connections
/// are mostly opened in the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tls {
    /// Name sent in SNI (none is, if it is an address) and looked for in the certificate.
    pub server_name: String,
    /// Trust anchors for certificates: `system`, the file of `--cacert`, or `nothing` with `--insecure`.
    pub trust: String,
    /// Handshakes with the server's certificate and signature.
    pub handshakes_full: u64,
    /// Handshakes that resumed an earlier session of the same client.
    pub handshakes_resumed: u64,
    /// Share of resumed handshakes; absent without finished handshakes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_share: Option<f64>,
    /// Finished handshakes by version, such as `TLSv1.3`.
    pub version: BTreeMap<String, u64>,
    /// Finished handshakes by cipher suite, such as `TLS_AES_256_GCM_SHA384`.
    pub cipher_suite: BTreeMap<String, u64>,
    /// Finished handshakes by the protocol that ALPN chose; `none` if the server chose none.
    pub alpn: BTreeMap<String, u64>,
    /// The first TLS failure of the run, as text; absent without failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// QUIC connections of a run with HTTP/3, over the whole run including the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quic {
    /// Bytes of one stream that the server may send ahead.
    pub stream_window_bytes: u64,
    /// Bytes of all streams of a connection that the server may send ahead.
    pub connection_window_bytes: u64,
    /// Congestion control of the load: `cubic`, `bbr` or `newreno`.
    pub congestion_control: String,
    /// RTT that is assumed before the first measurement.
    pub initial_rtt_ns: u64,
    /// Bytes that the load sends before the first acknowledgement.
    #[serde(default)]
    pub initial_window_bytes: u64,
    /// Without a packet for this long a connection ends.
    pub idle_timeout_ns: u64,
    /// Idle connections send a packet each time this has passed; absent without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_alive_ns: Option<u64>,
    /// The load marks its packets as ECN-capable.
    #[serde(default)]
    pub ecn: bool,
    /// The kernel divides and joins datagrams (UDP_SEGMENT, UDP_GRO) where it can.
    #[serde(default)]
    pub offload: bool,
    /// The load shows the RTT by the spin bit, on 7 of 8 connections.
    #[serde(default)]
    pub spin_bit: bool,
    /// Finished handshakes.
    pub handshakes: u64,
    /// Retry packets: the server validated the client's address before the handshake.
    pub retries: u64,
    /// Connections that offered early data (0-RTT).
    pub early_data_offered: u64,
    /// Connections whose early data the server accepted.
    pub early_data_accepted: u64,
    /// UDP datagrams sent.
    pub datagrams_sent: u64,
    /// UDP datagrams received.
    pub datagrams_received: u64,
    /// Bytes of the datagrams sent, without headers of UDP and IP.
    pub bytes_sent: u64,
    /// Bytes of the datagrams received, without headers of UDP and IP.
    pub bytes_received: u64,
    /// Packets of the load that were declared lost.
    pub lost_packets: u64,
    /// Moves of connections to another port of their client, as configured; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// Moves that were not made, because the handshake was not finished or the server forbids them; absent if no move
    /// was configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations_refused: Option<u64>,
    /// Datagrams that the load's sockets dropped because their receive buffers were full: the generator's fault.
    pub receive_drops: u64,
    /// The first failure of a connection, as text; absent without failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<String>,
}

/// The sessions of a load, over the whole run: a session of the warm-up may end in the measured phase. `begun = ended +
/// failed + cut`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// Begun.
    pub begun: u64,
    /// Sessions that began in the measured phase.
    pub begun_measured: u64,
    /// `begun_measured` over the length of the measured phase.
    pub rate_per_s: f64,
    /// Sessions that completed all steps.
    pub ended: u64,
    /// Were ended by a failed request.
    pub failed: u64,
    /// Were not done when the phase was over.
    pub cut: u64,
}

/// Idle open connections: opened before the load and kept open through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenConnections {
    /// Configured number.
    pub connections: u64,
    /// Idle open connections that were not established.
    pub failed: u64,
    /// Rate at which they were opened and, at the end, closed.
    pub per_second: u64,
    /// Processes of the generator, this one included, among which they are divided.
    pub processes: u32,
    /// Growth of the resident memory of all these processes while the connections were opened, per connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator_bytes_each: Option<f64>,
    /// Growth of this machine's kernel memory (slab) meanwhile, per connection: with the server's end where the server
    /// runs on this machine, and with other activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes_each: Option<f64>,
}

/// Clients whose configured RTT lies in `[from, to)`.
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
    /// Number of URLs.
    pub urls: u64,
    /// Completed requests.
    pub completed: u64,
    /// Failed requests.
    pub failed: u64,
    /// Response times.
    pub response_time_ns: Quantiles,
}

/// One phase of a load that has several: the requests that were scheduled in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhasePart {
    /// Name of the phase in the plan.
    pub name: String,
    /// Start of the phase, in seconds from the start of the measured phase.
    pub from_s: f64,
    /// End; earlier than planned if the run ended early.
    pub to_s: f64,
    /// Whether one rate was offered throughout, so that means do not depend on the time of measuring.
    pub is_steady: bool,
    /// Requests scheduled in it.
    pub offered_requests: u64,
    /// Offered requests per second.
    pub offered_rate_per_s: f64,
    /// Offered requests with a complete response, including responses in a later phase.
    pub completed: u64,
    /// Responses completed *within* the phase, a second, whenever their requests were scheduled.
    pub achieved_rate_per_s: f64,
    /// Offered requests that failed.
    pub failed: u64,
    /// done - scheduled. Failed requests are included, until their failure.
    pub response_time_ns: Quantiles,
    /// done - started.
    pub service_time_ns: Quantiles,
    /// started - scheduled.
    pub send_lag_ns: Quantiles,
}

/// Replay of a log.
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
    /// Virtual clients that replay them; fewer than logged if several share one.
    pub clients: u64,
    /// Length of one round in seconds: from the first request to the end of the log, scaled.
    pub length_s: f64,
    /// Times between requests were multiplied by this.
    pub time_scale: f64,
    /// Configured number of rounds; absent if the replay ends with the run's duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// Requests of the whole replay; absent if `rounds` is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_planned: Option<u64>,
    /// Requests with a method that has a body. Logs have no bodies: these requests were sent with an empty body.
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
