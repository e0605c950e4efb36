//! Checks of the load generator's sockets against its own counts.

use schema::document::{Check, Weight};
use schema::tap_part::TapPart;

use super::BYTES_SHARE;
use crate::draft::Draft;
use crate::evidence::{ClientTotals, TapGauges};
use crate::little::{self, Sampled};
use plan::Plan;

/// Counts of the load generator over the whole run, including warm-up and drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTotals {
    /// Calls of connect.
    pub called: u64,
    /// Requests with a complete response.
    pub completed: u64,
    /// Failed requests; some of them have a response.
    pub failed: u64,
    /// Retried requests.
    pub retried: u64,
    /// Request bytes passed to the kernel.
    pub sent_bytes: u64,
    /// Response bytes read.
    pub received_bytes: u64,
}

/// Whether the load generator and the tap in its process counted the same connections, requests and bytes.
pub fn tap_agrees_with_load(part: &TapPart, plan: &Plan, tap: ClientTotals, load: LoadTotals) -> [Check; 3] {
    let called = Draft::new("tap_agrees_with_load_connections", Weight::Invalid, "connections");
    let requests = Draft::new("tap_agrees_with_load_requests", Weight::Invalid, "requests");
    let bytes = Draft::new("tap_agrees_with_load_bytes", Weight::Invalid, "bytes");
    if let Some(why) = why_incomplete(part) {
        return [called, requests, bytes].map(|check| check.could_not_run(why));
    }
    let called = called.at_most(
        tap.called.abs_diff(load.called) as f64,
        0.0,
        "difference of the connects counted by load and tap",
        &format!("the load counted {} connects, the tap {}: one of the two counts is wrong", load.called, tap.called),
    );
    if let Some(why) = why_not_comparable(plan) {
        return [called, requests.not_applicable(why), bytes.not_applicable(why)];
    }
    // A complete response of the load is one at the tap. A response at the tap is complete for the load, or of a failed
    // request.
    let only_load = load.completed.saturating_sub(tap.succeeded);
    let only_tap = tap.succeeded.saturating_sub(load.completed + load.failed + load.retried);
    let requests = requests.at_most(
        (only_load + only_tap) as f64,
        0.0,
        "requests with a response at one of load and tap that the other cannot account for",
        &format!(
            "the load counted {} complete responses and {} failed requests, the tap {} responses",
            load.completed, load.failed, tap.succeeded
        ),
    );
    let differ = tap.sent_bytes.abs_diff(load.sent_bytes) + tap.received_bytes.abs_diff(load.received_bytes);
    let all = load.sent_bytes.saturating_add(load.received_bytes);
    let bytes = bytes.at_most(
        differ as f64,
        (all as f64 * BYTES_SHARE).floor(),
        "difference of the bytes of load and tap, other than bytes that arrived during a close",
        &format!(
            "the load counted {} bytes sent and {} received, the tap {} and {}",
            load.sent_bytes, load.received_bytes, tap.sent_bytes, tap.received_bytes
        ),
    );
    [called, requests, bytes]
}

/// Little's law for connections at the programs' sockets; none without samples.
pub fn tap_little(part: &TapPart, levels: Option<&TapGauges>) -> Option<Check> {
    let levels = levels?;
    let check = Draft::new("littles_law_tap_connections", Weight::Invalid, "ratio");
    if let Some(why) = why_incomplete(part) {
        return Some(check.could_not_run(why));
    }
    if levels.phase_ns == 0 {
        return Some(check.not_applicable("the measured phase was empty"));
    }
    let sampled = Sampled { statistics: &levels.connections, samples: levels.samples };
    let from_rows = levels.connections_ns as f64 / levels.phase_ns as f64;
    Some(little::check(check, "open at the programs' sockets", sampled, from_rows))
}

/// Why the counts of the tap are incomplete.
fn why_incomplete(part: &TapPart) -> Option<&'static str> {
    if part.records_dropped > 0 {
        Some("the tap lost records (see tap_drops)")
    } else if part.connections_left_out > 0 {
        Some("connections did not fit into the tap's collector (see tap_capacity)")
    } else if part.connections_unfollowed > 0 {
        Some("connections did not fit into the tables of the tap's library (see tap_capacity)")
    } else {
        None
    }
}

/// Why the load's requests and bytes differ from those of its sockets.
fn why_not_comparable(plan: &Plan) -> Option<&'static str> {
    match &plan.load {
        load if load.http == plan::HttpVersion::Http3 => Some("QUIC uses UDP, which the tap does not follow"),
        load if load.secure() => Some("the load counts bytes inside TLS, the tap bytes outside"),
        load if load.http == plan::HttpVersion::Http2 => {
            Some("streams of HTTP/2 are interleaved, so the tap does not see exchanges")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use load::GaugeStatistics;
    use schema::CheckState;

    use super::*;

    const LOAD: LoadTotals =
        LoadTotals { called: 64, completed: 900, failed: 10, retried: 1, sent_bytes: 80_000, received_bytes: 900_000 };
    const TAP: ClientTotals = ClientTotals { called: 64, succeeded: 905, sent_bytes: 80_000, received_bytes: 900_000 };

    fn minimal(url: &str) -> Plan {
        Plan::from_toml(&format!("[load]\nurl = \"{url}\"\nrequests = 1\n"), "test").unwrap()
    }

    fn failed(tap: ClientTotals) -> [bool; 3] {
        let plan = minimal("http://127.0.0.1:1/");
        tap_agrees_with_load(&TapPart::default(), &plan, tap, LOAD).map(|check| check.state == CheckState::Failed)
    }

    #[test]
    fn load_and_tap_must_count_the_same() {
        assert_eq!(failed(TAP), [false; 3]);
        assert_eq!(failed(ClientTotals { called: 63, ..TAP }), [true, false, false]);
        assert_eq!(failed(ClientTotals { succeeded: 899, ..TAP }), [false, true, false]);
        assert_eq!(failed(ClientTotals { succeeded: 900, ..TAP }), [false; 3]);
        assert_eq!(failed(ClientTotals { succeeded: 911, ..TAP }), [false; 3]);
        assert_eq!(failed(ClientTotals { succeeded: 912, ..TAP }), [false, true, false]);
        assert_eq!(failed(ClientTotals { sent_bytes: 80_980, ..TAP }), [false; 3], "within 0.1 %");
        assert_eq!(failed(ClientTotals { sent_bytes: 80_981, ..TAP }), [false, false, true]);
        assert_eq!(failed(ClientTotals { received_bytes: 0, ..TAP }), [false, false, true]);
    }

    #[test]
    fn incomplete_taps_tls_and_http2_are_not_compared_with_the_load() {
        let states = |part: &TapPart, url: &str| {
            tap_agrees_with_load(part, &minimal(url), ClientTotals::default(), LOAD).map(|check| check.state)
        };
        let lost = TapPart { records_dropped: 1, ..TapPart::default() };
        assert_eq!(states(&lost, "http://127.0.0.1:1/"), [CheckState::CouldNotRun; 3]);
        let unfollowed = TapPart { connections_unfollowed: 400, ..TapPart::default() };
        assert_eq!(
            states(&unfollowed, "http://127.0.0.1:1/"),
            [CheckState::CouldNotRun; 3],
            "an incomplete tap is no contradiction"
        );
        assert_eq!(
            states(&TapPart::default(), "https://127.0.0.1:1/"),
            [CheckState::Failed, CheckState::NotApplicable, CheckState::NotApplicable]
        );
    }

    #[test]
    fn littles_law_at_sockets_holds_within_two_percent() {
        let levels = |mean: f64| TapGauges {
            connections: GaugeStatistics { level: schema::Level { mean, p50: 64, max: 64 }, standard_error: 0.01 },
            samples: 1_000_000,
            connections_ns: 640_000_000_000,
            phase_ns: 10_000_000_000,
        };
        let state = |levels: &TapGauges| tap_little(&TapPart::default(), Some(levels)).unwrap().state;
        assert_eq!(state(&levels(64.0)), CheckState::Ok);
        assert_eq!(state(&levels(65.2)), CheckState::Ok);
        assert_eq!(state(&levels(65.5)), CheckState::Failed);
        assert_eq!(state(&TapGauges::default()), CheckState::NotApplicable);
        assert_eq!(tap_little(&TapPart::default(), None), None);
        let lost = TapPart { connections_left_out: 1, ..TapPart::default() };
        assert_eq!(tap_little(&lost, Some(&levels(64.0))).unwrap().state, CheckState::CouldNotRun);
        let unfollowed = TapPart { connections_unfollowed: 1, ..TapPart::default() };
        assert_eq!(tap_little(&unfollowed, Some(&levels(70.0))).unwrap().state, CheckState::CouldNotRun);
    }
}
