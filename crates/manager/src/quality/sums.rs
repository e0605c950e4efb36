//! Sums over rows: figures that can be added. Each counts as in `tap` (docs/concepts/tap.md).

use std::collections::BTreeMap;

use schema::TapOutcome;

use super::time_histogram::TimeHistogram;
use schema::TapRow;

/// Sums of rows, without windows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sums {
    /// Exchanges that ended, and failed connection attempts.
    pub attempts: u64,
    /// Failed attempts.
    pub failed: u64,
    /// Attempts, each counted 1 / share: an estimate if connections were sampled.
    pub attempts_estimated: f64,
    /// Sent bytes of all rows.
    pub sent_bytes: u64,
    /// Received bytes of all rows.
    pub received_bytes: u64,
    /// Sent bytes, each counted 1 / share.
    pub sent_estimated: f64,
    /// Received bytes, each counted 1 / share.
    pub received_estimated: f64,
    /// Time from first to last received byte, summed over the exchanges that took time for it.
    pub receive_ns: u64,
    /// Bytes received by these.
    pub receive_bytes: u64,
    /// Connections that ended.
    pub connections: u64,
    /// Connections that were never established.
    pub connections_failed: u64,
    /// Failed name lookups without a connection. No attempts.
    pub lookups_failed: u64,
    /// Failed attempts by cause; at most [`CAUSES_MAX`] and [`OTHER_CAUSE`].
    pub causes: BTreeMap<String, u64>,
    /// Response times of successful exchanges.
    pub response: TimeHistogram,
}

/// A row counts for a million at most.
const SHARE_MIN: f64 = 1e-6;
/// Separate causes in one span of one series.
pub const CAUSES_MAX: usize = 30;
/// Name of all other causes, as in OpenTelemetry.
pub const OTHER_CAUSE: &str = "_OTHER";

impl Sums {
    /// Adds a row; `share` is the share of sampled connections, above 0 and at most 1.
    pub fn add(&mut self, row: &TapRow, share: f64) {
        if row.connection.is_none() {
            self.lookups_failed += u64::from(row.outcome == TapOutcome::Failed.as_str());
            return;
        }
        // Protects the index: an infinite weight would make sums that it rejects.
        let weight = if share > 0.0 { 1.0 / share.clamp(SHARE_MIN, 1.0) } else { 1.0 };
        let failed = row.outcome == TapOutcome::Failed.as_str();
        let succeeded = row.outcome == TapOutcome::Succeeded.as_str();
        if row.last {
            self.connections += 1;
            self.connections_failed += u64::from(row.exchange.is_none() && failed);
        }
        self.sent_bytes = self.sent_bytes.saturating_add(row.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(row.received_bytes);
        self.sent_estimated += row.sent_bytes as f64 * weight;
        self.received_estimated += row.received_bytes as f64 * weight;
        if !(failed || succeeded) {
            return;
        }
        self.attempts += 1;
        self.attempts_estimated += weight;
        if failed {
            self.failed += 1;
            self.cause(row.error.as_deref().unwrap_or("unknown"), 1);
        }
        if row.exchange.is_none() {
            return;
        }
        if let Some(ns) = between(row.received_first_at_ns, row.received_last_at_ns).filter(|ns| *ns > 0) {
            self.receive_ns = self.receive_ns.saturating_add(ns);
            self.receive_bytes = self.receive_bytes.saturating_add(row.received_bytes);
        }
        if let Some(ns) = response_ns(row) {
            self.response.record(ns);
        }
    }

    /// Adds the sums of `other`.
    pub fn merge(&mut self, other: &Sums) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.attempts, other.attempts);
        add(&mut self.failed, other.failed);
        add(&mut self.sent_bytes, other.sent_bytes);
        add(&mut self.received_bytes, other.received_bytes);
        add(&mut self.receive_ns, other.receive_ns);
        add(&mut self.receive_bytes, other.receive_bytes);
        add(&mut self.connections, other.connections);
        add(&mut self.connections_failed, other.connections_failed);
        add(&mut self.lookups_failed, other.lookups_failed);
        self.attempts_estimated += other.attempts_estimated;
        self.sent_estimated += other.sent_estimated;
        self.received_estimated += other.received_estimated;
        other.causes.iter().for_each(|(cause, count)| self.cause(cause, *count));
        self.response.merge(&other.response);
    }

    fn cause(&mut self, name: &str, count: u64) {
        if let Some(known) = self.causes.get_mut(name) {
            *known = known.saturating_add(count);
            return;
        }
        // The entry of other causes does not count for the limit.
        let separate_causes = self.causes.len() - usize::from(self.causes.contains_key(OTHER_CAUSE));
        let name = if separate_causes < CAUSES_MAX { name } else { OTHER_CAUSE };
        *self.causes.entry(name.to_owned()).or_insert(0) += count;
    }
}

/// First byte of the request to last byte of the response, of a successful exchange:
/// [`schema::TapExchange::response_ns`].
pub fn response_ns(row: &TapRow) -> Option<u64> {
    if row.outcome != TapOutcome::Succeeded.as_str() || row.exchange.is_none() || row.connection.is_none() {
        return None;
    }
    if row.is_clients() {
        between(row.sent_first_at_ns, row.received_last_at_ns)
    } else {
        between(row.received_first_at_ns, row.sent_last_at_ns)
    }
}

fn between(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    Some(to?.saturating_sub(from?))
}

#[cfg(test)]
mod tests {
    use schema::{TapError, TapExchange, TapSide};
    use units::Timestamp;

    use super::*;
    use schema::TapAddress;

    fn sums(rows: &[TapExchange], share: f64) -> Sums {
        let mut sums = Sums::default();
        rows.iter().for_each(|row| sums.add(&TapRow::of(row, &|ip| TapAddress::Plain(ip)), share));
        sums
    }

    fn exchange(side: TapSide, outcome: TapOutcome) -> TapExchange {
        let at = |ms: u64| Some(Timestamp::from_nanos(ms * 1_000_000));
        let (first, second) = ((at(1), at(2)), (at(5), at(25)));
        let (sent, received) = if side == TapSide::Client { (first, second) } else { (second, first) };
        TapExchange {
            connection: Some(7),
            exchange: Some(0),
            side,
            sent_first_at: sent.0,
            sent_last_at: sent.1,
            received_first_at: received.0,
            received_last_at: received.1,
            sent_bytes: 100,
            received_bytes: 2000,
            outcome,
            error: (outcome == TapOutcome::Failed).then_some(TapError::Errno(104)),
            ..TapExchange::BLANK
        }
    }

    /// The indicators of `tap` for the same rows.
    #[test]
    fn quality_figures_match_those_of_tap() {
        let mut rows: Vec<TapExchange> =
            TapOutcome::ALL.into_iter().map(|outcome| exchange(TapSide::Client, outcome)).collect();
        rows.push(TapExchange { exchange: None, last: true, ..exchange(TapSide::Client, TapOutcome::Failed) });
        rows.push(TapExchange { last: true, ..exchange(TapSide::Client, TapOutcome::Succeeded) });
        rows.push(TapExchange { exchange: None, last: true, ..exchange(TapSide::Client, TapOutcome::Unused) });
        let mut tap = tap::indicators::Indicators::new(tap::indicators::Indicators::WINDOW_NS);
        rows.iter().for_each(|row| tap.add(0, row));
        let (view, sums_of_rows) = (tap.view(), sums(&rows, 1.0));
        assert_eq!((sums_of_rows.attempts, sums_of_rows.failed), (view.attempts, view.failed.values().sum()));
        assert_eq!(sums_of_rows.causes, view.failed);
        assert_eq!(
            (sums_of_rows.connections, sums_of_rows.connections_failed),
            (view.connections, view.connections_failed)
        );
        assert_eq!(
            (sums_of_rows.sent_bytes, sums_of_rows.received_bytes),
            (view.sent_bytes_total, view.received_bytes_total)
        );
        assert_eq!(
            (sums_of_rows.response.count(), sums_of_rows.response.max_ns()),
            (view.response_ns.count, Some(view.response_ns.max))
        );
        assert_eq!(sums_of_rows.attempts_estimated, view.attempts as f64);
    }

    #[test]
    fn server_response_time_counts_from_the_first_byte_of_the_request() {
        let sums_of_rows = sums(&[exchange(TapSide::Server, TapOutcome::Succeeded)], 1.0);
        assert_eq!(sums_of_rows.response.max_ns(), Some(24_000_000));
        assert_eq!((sums_of_rows.receive_ns, sums_of_rows.receive_bytes), (1_000_000, 2000));
    }

    #[test]
    fn sampled_rows_are_scaled_by_their_share() {
        let sums_of_rows = sums(&vec![exchange(TapSide::Client, TapOutcome::Succeeded); 3], 0.25);
        assert_eq!((sums_of_rows.attempts, sums_of_rows.attempts_estimated), (3, 12.0));
        assert_eq!((sums_of_rows.received_bytes, sums_of_rows.received_estimated), (6000, 24_000.0));
    }

    #[test]
    fn sums_stay_finite_for_every_share() {
        for share in [1e-310, 0.0, -1.0, f64::NAN, f64::INFINITY, 2.0] {
            let row = TapExchange { sent_bytes: 0, ..exchange(TapSide::Client, TapOutcome::Succeeded) };
            let sums_of_rows = sums(&[row], share);
            assert!(
                (1.0..=1e6).contains(&sums_of_rows.attempts_estimated) && sums_of_rows.sent_estimated == 0.0,
                "{share}: {sums_of_rows:?}"
            );
            assert!(sums_of_rows.received_estimated.is_finite());
        }
    }

    #[test]
    fn a_name_lookup_without_a_connection_is_not_an_attempt() {
        let lookup = TapExchange { connection: None, exchange: None, ..exchange(TapSide::Client, TapOutcome::Failed) };
        let sums_of_rows = sums(&[lookup], 1.0);
        assert_eq!((sums_of_rows.lookups_failed, sums_of_rows.attempts, sums_of_rows.sent_bytes), (1, 0, 0));
    }

    #[test]
    fn the_number_of_failure_causes_is_limited() {
        let mut sums_of_rows = Sums::default();
        let row = TapRow::of(&exchange(TapSide::Client, TapOutcome::Failed), &|ip| TapAddress::Plain(ip));
        for at in 0..100 {
            sums_of_rows.add(&TapRow { error: Some(format!("errno_{at}")), ..row.clone() }, 1.0);
        }
        assert_eq!((sums_of_rows.causes.len(), sums_of_rows.causes[OTHER_CAUSE]), (CAUSES_MAX + 1, 70));
        assert_eq!(sums_of_rows.causes.values().sum::<u64>(), sums_of_rows.failed);
    }
}
