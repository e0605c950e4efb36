//! The data slicer: the exchanges of any runs that match a [`Filter`], together and by group.
//!
//! Memory is limited: a group stores few values exactly and many in a histogram, and groups beyond
//! [`Slicer::GROUPS_MAX`] are merged.

use std::collections::HashMap;

use schema::tap_part::{TapGroup, TapView};
use schema::{Quantiles, TapExchange, TapOutcome, TapSide};
use stats::{Histogram, quantiles_of};

use crate::filter::{Filter, service_port};
use crate::indicators::{Lookups, Sides};

/// Grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Address of the other end.
    Peer,
    /// Port of the service.
    Port,
    /// Name of the program.
    Program,
    /// Minute of the wall clock (UTC) in which the exchange ended.
    Minute,
}

impl By {
    /// Name as typed.
    pub const fn as_str(self) -> &'static str {
        match self {
            By::Peer => "peer",
            By::Port => "port",
            By::Program => "program",
            By::Minute => "minute",
        }
    }
}

/// Key of a group. Groups sort by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupKey {
    /// Seconds since 1970 (UTC) at which the minute began.
    Minute(u64),
    /// A port.
    Port(u16),
    /// A name, or an address as text.
    Name(String),
    /// Rows without the field, such as a failed lookup without a peer.
    Unknown,
    /// Groups beyond the limit.
    Others,
}

/// Computes figures from the rows that match a filter.
#[derive(Debug)]
pub struct Slicer {
    filter: Filter,
    by: Option<By>,
    sides: Sides,
    groups: HashMap<GroupKey, Group>,
    rows: u64,
    matched: u64,
}

#[derive(Debug, Default)]
struct Group {
    connections: u64,
    attempts: u64,
    failed: u64,
    sent_bytes: u64,
    received_bytes: u64,
    setup: Values,
    response: Values,
    connection: Values,
}

impl Slicer {
    /// Maximum groups; each may take 800 kB.
    pub const GROUPS_MAX: usize = 5_000;

    /// An empty slicer. For windows see [`crate::Indicators::new`].
    pub fn new(filter: Filter, by: Option<By>, window_ns: u64) -> Self {
        Slicer { filter, by, sides: Sides::new(window_ns), groups: HashMap::new(), rows: 0, matched: 0 }
    }

    /// Adds a row of run number `run`, whose zero is `zero_ns` nanoseconds after 1970 (UTC).
    pub fn add(&mut self, run: u32, zero_ns: u64, row: &TapExchange) {
        self.rows += 1;
        let at_ns = zero_ns.saturating_add(row.ended_at().as_nanos());
        if !self.filter.matches_row(row, at_ns) {
            return;
        }
        self.matched += 1;
        self.sides.add(run, row);
        let Some(by) = self.by else { return };
        let key = key(by, row, at_ns);
        let key =
            if self.groups.len() < Self::GROUPS_MAX || self.groups.contains_key(&key) { key } else { GroupKey::Others };
        self.groups.entry(key).or_default().add(row);
    }

    /// Rows seen, and rows that matched.
    pub fn rows(&self) -> (u64, u64) {
        (self.rows, self.matched)
    }

    /// The figures of one side.
    pub fn view(&self, side: TapSide) -> Option<TapView> {
        self.sides.view(side)
    }

    /// The distributions of one side, for plots.
    pub fn sides(&self) -> &Sides {
        &self.sides
    }

    /// Lookups.
    pub fn lookups(&self) -> &Lookups {
        &self.sides.lookups
    }

    /// The groups: minutes and ports in order, names by attempts, most first; `name` formats a minute.
    pub fn groups(&self, minute: impl Fn(u64) -> String) -> Vec<TapGroup> {
        let mut groups: Vec<(&GroupKey, &Group)> = self.groups.iter().collect();
        groups.sort_by(|(a, one), (b, other)| match self.by {
            Some(By::Minute | By::Port) => a.cmp(b),
            _ => other.attempts.cmp(&one.attempts).then_with(|| a.cmp(b)),
        });
        let name = |key: &GroupKey| match key {
            GroupKey::Minute(second) => minute(*second),
            GroupKey::Port(port) => port.to_string(),
            GroupKey::Name(name) => name.clone(),
            GroupKey::Unknown => "(not known)".to_owned(),
            GroupKey::Others => "(others)".to_owned(),
        };
        groups.into_iter().map(|(key, group)| group.part(name(key))).collect()
    }
}

fn key(by: By, row: &TapExchange, at_ns: u64) -> GroupKey {
    let known = match by {
        By::Peer => row.peer.map(|peer| GroupKey::Name(peer.ip().to_canonical().to_string())),
        By::Port => service_port(row).map(GroupKey::Port),
        By::Program => row.program.as_deref().map(|name| GroupKey::Name(name.to_owned())),
        By::Minute => Some(GroupKey::Minute(at_ns / MINUTE_NS * 60)),
    };
    known.unwrap_or(GroupKey::Unknown)
}

impl Group {
    fn add(&mut self, row: &TapExchange) {
        self.connections += u64::from(row.last);
        self.sent_bytes = self.sent_bytes.saturating_add(row.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(row.received_bytes);
        self.attempts += u64::from(row.outcome.is_attempt());
        self.failed += u64::from(row.outcome == TapOutcome::Failed);
        row.setup_ns.into_iter().for_each(|time| self.setup.record(time));
        row.connection_ns().into_iter().for_each(|time| self.connection.record(time));
        if row.outcome == TapOutcome::Succeeded {
            row.response_ns().into_iter().for_each(|time| self.response.record(time));
        }
    }

    fn part(&self, name: String) -> TapGroup {
        TapGroup {
            name,
            connections: self.connections,
            attempts: self.attempts,
            failed: self.failed,
            error_ratio: (self.attempts > 0).then(|| self.failed as f64 / self.attempts as f64),
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
            setup_ns: self.setup.quantiles(),
            response_ns: self.response.quantiles(),
            connection_duration_ns: self.connection.quantiles(),
        }
    }
}

/// Durations: exact while they are few, a histogram (0.1 %) when they are many.
#[derive(Debug)]
enum Values {
    Few(Vec<u64>),
    Many(Box<Histogram>),
}

impl Default for Values {
    fn default() -> Self {
        Values::Few(Vec::new())
    }
}

impl Values {
    fn record(&mut self, value: u64) {
        match self {
            Values::Few(values) if values.len() < EXACT_VALUES_MAX => values.push(value.min(Histogram::HIGHEST)),
            Values::Few(values) => {
                let mut histogram = Histogram::new();
                values.iter().for_each(|&value| histogram.record(value));
                histogram.record(value);
                *self = Values::Many(Box::new(histogram));
            }
            Values::Many(histogram) => histogram.record(value),
        }
    }

    fn quantiles(&self) -> Quantiles {
        match self {
            Values::Few(values) => quantiles_of(values),
            Values::Many(histogram) => histogram.quantiles(),
        }
    }
}

const MINUTE_NS: u64 = 60_000_000_000;
/// Number of exact values that take as much memory as a histogram.
const EXACT_VALUES_MAX: usize = 32_768;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Timestamp;

    fn row(at_s: u64, peer: &str, program: &str, outcome: TapOutcome) -> TapExchange {
        let at = Timestamp::from_nanos(at_s * 1_000_000_000);
        TapExchange {
            connection: Some(at_s),
            exchange: Some(0),
            last: true,
            peer: Some(peer.parse().unwrap()),
            program: Some(program.into()),
            opened_at: at,
            sent_first_at: Some(at),
            sent_last_at: Some(at),
            received_first_at: Some(at),
            received_last_at: Some(at),
            outcome,
            ..TapExchange::BLANK
        }
    }

    fn sliced(filter: Filter, by: By) -> Vec<(String, u64, u64)> {
        let mut slicer = Slicer::new(filter, Some(by), 10_000_000_000);
        for row in [
            row(10, "192.0.2.1:80", "curl", TapOutcome::Succeeded),
            row(20, "192.0.2.2:80", "curl", TapOutcome::Failed),
            row(70, "192.0.2.2:443", "wget", TapOutcome::Succeeded),
        ] {
            slicer.add(0, 0, &row);
        }
        let groups = slicer.groups(|second| format!("minute {}", second / 60));
        groups.into_iter().map(|group| (group.name, group.attempts, group.failed)).collect()
    }

    #[test]
    fn rows_are_grouped_by_the_requested_field() {
        let all = Filter::default;
        let named = |name: &str, attempts, failed| (name.to_owned(), attempts, failed);
        assert_eq!(sliced(all(), By::Peer), [named("192.0.2.2", 2, 1), named("192.0.2.1", 1, 0)]);
        assert_eq!(sliced(all(), By::Port), [named("80", 2, 1), named("443", 1, 0)]);
        assert_eq!(sliced(all(), By::Program), [named("curl", 2, 1), named("wget", 1, 0)]);
        assert_eq!(sliced(all(), By::Minute), [named("minute 0", 2, 1), named("minute 1", 1, 0)]);
        let since = Filter { since_ns: Some(20_000_000_000), ..all() };
        assert_eq!(sliced(since, By::Port), [named("80", 1, 1), named("443", 1, 0)]);
    }

    #[test]
    fn groups_beyond_the_limit_are_merged() {
        let mut slicer = Slicer::new(Filter::default(), Some(By::Program), 1);
        for number in 0..Slicer::GROUPS_MAX + 10 {
            slicer.add(0, 0, &row(1, "192.0.2.1:80", &format!("p{number}"), TapOutcome::Succeeded));
        }
        let groups = slicer.groups(|_| String::new());
        assert_eq!(groups.len(), Slicer::GROUPS_MAX + 1);
        assert_eq!(groups[0].name, "(others)");
        assert_eq!((groups[0].attempts, slicer.rows()), (10, (5_010, 5_010)));
    }

    #[test]
    fn quantiles_of_a_histogram_match_those_of_exact_values() {
        let mut values = Values::default();
        for value in 0..2 * EXACT_VALUES_MAX as u64 {
            values.record(value * 1_000);
        }
        let (many, exact) = (values.quantiles(), 1_000 * EXACT_VALUES_MAX as u64);
        assert_eq!(many.count, 2 * EXACT_VALUES_MAX as u64);
        assert!((many.p50 as f64 / exact as f64 - 1.0).abs() < 0.002, "{}", many.p50);
    }
}
