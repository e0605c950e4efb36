//! Checks of the load's own sockets against what the load generator says it did.

use schema::document::{Check, Weight};
use schema::tap_part::TapPart;

use super::BYTES_SHARE;
use crate::draft::Draft;
use crate::evidence::{ClientTotals, TapLevels};
use crate::little::{self, Sampled};
use plan::Plan;

/// What the load counted over the whole run, warm-up and drain included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadTotals {
    /// Connections on which connect was called.
    pub called: u64,
    /// Requests that got a whole response.
    pub completed: u64,
    /// Requests that failed: some of them had an answer all the same.
    pub failed: u64,
    /// Requests that were sent a second time.
    pub retried: u64,
    /// Request bytes handed to the kernel.
    pub sent_bytes: u64,
    /// Response bytes read.
    pub received_bytes: u64,
}

/// Whether the load and the tap in its process saw the same connections, requests and bytes.
pub fn tap_agrees_with_load(part: &TapPart, plan: &Plan, tap: ClientTotals, load: LoadTotals) -> [Check; 3] {
    let called = Draft::new("tap_agrees_with_load_connections", Weight::Invalid, "connections");
    let requests = Draft::new("tap_agrees_with_load_requests", Weight::Invalid, "requests");
    let bytes = Draft::new("tap_agrees_with_load_bytes", Weight::Invalid, "bytes");
    if let Some(why) = missing(part) {
        return [called, requests, bytes].map(|check| check.could_not_run(why));
    }
    let called = called.at_most(
        tap.called.abs_diff(load.called) as f64,
        0.0,
        "connects that load and tap counted: the same number",
        &format!(
            "the load says that it called connect {} times, its sockets say {} times: one of the two counts wrongly",
            load.called, tap.called
        ),
    );
    if let Some(why) = unlike(plan) {
        return [called, requests.not_applicable(why), bytes.not_applicable(why)];
    }
    // Whole for the load, so answered at the tap. Answered at the tap, so whole for the load, or failed for what was in it.
    let only_load = load.completed.saturating_sub(tap.succeeded);
    let only_tap = tap.succeeded.saturating_sub(load.completed + load.failed + load.retried);
    let requests = requests.at_most(
        (only_load + only_tap) as f64,
        0.0,
        "requests that one of load and tap saw answered and the other cannot account for",
        &format!(
            "{} requests got whole responses and {} failed for the load, while {} were answered at its sockets",
            load.completed, load.failed, tap.succeeded
        ),
    );
    let differ = tap.sent_bytes.abs_diff(load.sent_bytes) + tap.received_bytes.abs_diff(load.received_bytes);
    let all = load.sent_bytes.saturating_add(load.received_bytes);
    let bytes = bytes.at_most(
        differ as f64,
        (all as f64 * BYTES_SHARE).floor(),
        "bytes sent and received, of load and tap: the same but for what came when a connection was being closed",
        &format!(
            "the load says that it sent {} and received {} bytes, its sockets moved {} and {}",
            load.sent_bytes, load.received_bytes, tap.sent_bytes, tap.received_bytes
        ),
    );
    [called, requests, bytes]
}

/// Little's law for connections, at the programs' sockets; nothing where it was not sampled.
pub fn tap_little(part: &TapPart, levels: Option<&TapLevels>) -> Option<Check> {
    let levels = levels?;
    let check = Draft::new("littles_law_tap_connections", Weight::Invalid, "ratio");
    if let Some(why) = missing(part) {
        return Some(check.could_not_run(why));
    }
    if levels.phase_ns == 0 {
        return Some(check.not_applicable("the measured phase was empty"));
    }
    let sampled = Sampled { statistics: &levels.connections, samples: levels.samples };
    let from_rows = levels.connections_ns as f64 / levels.phase_ns as f64;
    Some(little::check(check, "in process at the programs' sockets", sampled, from_rows))
}

/// Why the tap's counts are not whole.
fn missing(part: &TapPart) -> Option<&'static str> {
    if part.records_dropped > 0 {
        Some("the tap lost records, as tap_drops says")
    } else if part.connections_left_out > 0 {
        Some("connections found no room in the tap's collector, as tap_capacity says")
    } else if part.connections_unfollowed > 0 {
        Some("connections found no room in the tables of the tap's library, as tap_capacity says")
    } else {
        None
    }
}

/// Why the load's requests and bytes are not those of its sockets.
fn unlike(plan: &Plan) -> Option<&'static str> {
    match &plan.load {
        load if load.secure() => Some("the load counts what is inside TLS, its sockets what is outside"),
        load if load.http == plan::HttpVersion::Http2 => {
            Some("streams of HTTP/2 are interleaved, and no exchanges of its sockets")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use load::LevelStatistics;
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
    fn load_and_sockets_are_held_against_each_other() {
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
    fn what_is_not_whole_or_not_alike_is_not_compared() {
        let states = |part: &TapPart, url: &str| {
            tap_agrees_with_load(part, &minimal(url), ClientTotals::default(), LOAD).map(|check| check.state)
        };
        let lost = TapPart { records_dropped: 1, ..TapPart::default() };
        assert_eq!(states(&lost, "http://127.0.0.1:1/"), [CheckState::CouldNotRun; 3]);
        let unfollowed = TapPart { connections_unfollowed: 400, ..TapPart::default() };
        assert_eq!(states(&unfollowed, "http://127.0.0.1:1/"), [CheckState::CouldNotRun; 3], "nobody is accused");
        assert_eq!(
            states(&TapPart::default(), "https://127.0.0.1:1/"),
            [CheckState::Failed, CheckState::NotApplicable, CheckState::NotApplicable]
        );
    }

    #[test]
    fn littles_law_holds_within_two_percent() {
        let levels = |mean: f64| TapLevels {
            connections: LevelStatistics { level: schema::Level { mean, p50: 64, max: 64 }, standard_error: 0.01 },
            samples: 1_000_000,
            connections_ns: 640_000_000_000,
            phase_ns: 10_000_000_000,
        };
        let state = |levels: &TapLevels| tap_little(&TapPart::default(), Some(levels)).unwrap().state;
        assert_eq!(state(&levels(64.0)), CheckState::Ok);
        assert_eq!(state(&levels(65.2)), CheckState::Ok);
        assert_eq!(state(&levels(65.5)), CheckState::Failed);
        assert_eq!(state(&TapLevels::default()), CheckState::NotApplicable);
        assert_eq!(tap_little(&TapPart::default(), None), None);
        let lost = TapPart { connections_left_out: 1, ..TapPart::default() };
        assert_eq!(tap_little(&lost, Some(&levels(64.0))).unwrap().state, CheckState::CouldNotRun);
        let unfollowed = TapPart { connections_unfollowed: 1, ..TapPart::default() };
        assert_eq!(tap_little(&unfollowed, Some(&levels(70.0))).unwrap().state, CheckState::CouldNotRun);
    }
}
