//! Experiment 1: what the monitoring costs. A run fetches the file again and again; with the tap and without, turn and
//! turn about.
//!
//! The throughput of an amount is taken from the wire at the server's end: payload of the first so many connections, over
//! the time from the first one's SYN to the last one's second FIN, which is the client's. So starting a program and
//! loading the library are not in it, as they were not in the paper, whose layer was there already.

use std::path::Path;
use std::time::Duration;

use schema::ReproductionRow;
use schema::document::{Check, CheckState, Weight};
use store::StoreError;

use super::rows::{LOST, OVERHEAD, SPREAD, TAPPED, UNTAPPED, beside, row, setting_of_link};
use super::{Dish, FILE_BYTES, Kitchen, LoggingServer, MonitoredLink};
use experiment::ExperimentError;
use stats::median;

/// In their order.
pub const LINKS: [MonitoredLink; 2] = [MonitoredLink::Ethernet, MonitoredLink::Unlimited];

/// What one link gave.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Which.
    pub link: MonitoredLink,
    /// By amount, rising.
    pub points: Vec<OverheadPoint>,
}

/// Throughputs of one amount, in bytes a second, a figure each run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverheadPoint {
    /// Transfers that make the amount.
    pub transfers: u64,
    /// Without the tap.
    pub without: Vec<f64>,
    /// Under the tap.
    pub with: Vec<f64>,
}

impl OverheadPoint {
    /// The amount, heads not counted.
    pub fn bytes(&self) -> u64 {
        self.transfers * FILE_BYTES as u64
    }

    /// The amount in words; 100 KB is what the paper calls so.
    pub fn amount(&self) -> String {
        match self.transfers {
            gigabytes if gigabytes >= 10_000 => format!("{} GB", gigabytes / 10_000),
            megabytes if megabytes >= 10 => format!("{} MB", megabytes / 10),
            kilobytes => format!("{} KB", kilobytes * 100),
        }
    }

    /// Share of the throughput that the tap costs, of medians; NaN where one side has no run.
    pub fn lost(&self) -> f64 {
        1.0 - median(self.with.iter().copied()) / median(self.without.iter().copied())
    }

    /// Highest less lowest of the runs without the tap, over their median: what the same thing differs by from run to
    /// run. `None` of one run.
    pub fn spread(&self) -> Option<f64> {
        let (low, high) = self.without.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), &one| (l.min(one), h.max(one)));
        (self.without.len() > 1).then(|| (high - low) / median(self.without.iter().copied()))
    }
}

/// Which runs of a link are under the tap, in their order.
pub fn order(link: MonitoredLink, time: Duration) -> &'static [bool] {
    const PAIR: [bool; 2] = [false, true];
    // Twice where runs are short and noisy; the second time the other way round.
    const TURNS: [bool; 8] = [false, true, true, false, true, false, false, true];
    match link {
        _ if time < SHORT => &PAIR,
        MonitoredLink::Unlimited => &TURNS,
        _ => &TURNS[..4],
    }
}

/// Makes the runs of both links.
pub fn make(kitchen: &mut Kitchen<'_>) -> Result<Vec<Overhead>, ExperimentError> {
    let mut overheads = Vec::new();
    for link in LINKS {
        let transfers = kitchen.asked.transfers(link);
        let mut points: Vec<OverheadPoint> =
            amounts(transfers).map(|transfers| OverheadPoint { transfers, ..OverheadPoint::default() }).collect();
        let script = format!("exec {}", kitchen.curl.fetch(&kitchen.url(), transfers));
        for (at, &tap) in order(link, kitchen.asked.time).iter().enumerate() {
            if kitchen.interrupted() {
                break;
            }
            let with = if tap { "under the tap" } else { "without" };
            let name = format!("1, {}, {with}, run {}", link.name(), at + 1);
            let outcome =
                kitchen.cook(&Dish { name: &name, link, server: LoggingServer::Nginx, script: &script, tap })?;
            let dir = outcome.folder.unwrap_or_default();
            let whole = store::read_wire_requests(&dir)?.filter(|row| row.as_ref().is_ok_and(whole_response)).count();
            kitchen.expect(&name, "whole responses on the wire", Weight::Invalid, (whole as u64, transfers), WHOLE);
            if tap {
                let client = outcome.document.tap.and_then(|tap| tap.client).unwrap_or_default();
                let failed = client.failed.values().sum();
                let seen = client.exchanges.saturating_sub(failed);
                kitchen.expect(&name, "exchanges under the tap", Weight::Invalid, (seen, transfers), SEEN);
            }
            let progress = progress(&dir)?;
            for point in &mut points {
                let at = progress.get(point.transfers as usize - 1);
                let throughput = at.map(|&(bytes, ns)| bytes as f64 * 1e9 / ns.max(1) as f64);
                if tap { &mut point.with } else { &mut point.without }.extend(throughput);
            }
        }
        judge(kitchen, link, &points);
        overheads.push(Overhead { link, points });
    }
    Ok(overheads)
}

/// Whether the largest amount's runs without the tap are alike enough for a cost to be told.
fn judge(kitchen: &mut Kitchen<'_>, link: MonitoredLink, points: &[OverheadPoint]) {
    // One run each was asked for, or an interrupt left no more.
    let Some(spread) = points.last().and_then(OverheadPoint::spread).filter(|spread| spread.is_finite()) else {
        return;
    };
    let alike = spread <= SPREAD_MAX;
    kitchen.sheet.check(Check {
        name: format!("1, {}: spread of the runs without", link.name()),
        state: if alike { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(100.0 * spread),
        limit: Some(100.0 * SPREAD_MAX),
        unit: "%".into(),
        why: if alike {
            "runs without the tap differ by less than the cost that the paper had"
        } else {
            "runs without the tap differ by more than the cost that the paper had, so that the cost here cannot be told: \
             something else was busy on this machine"
        }
        .into(),
    });
}

fn whole_response(request: &schema::WireRequest) -> bool {
    request.complete && request.status == Some(200) && request.response_bytes > FILE_BYTES as u64
}

/// Numbers of transfers at which a run is looked at: powers of ten, and its end.
fn amounts(transfers: u64) -> impl Iterator<Item = u64> {
    (0..).map(|power| 10_u64.pow(power)).take_while(move |&at| at < transfers).chain([transfers])
}

/// Payload from the server and nanoseconds since the first SYN, after each connection that was closed, in the order of
/// their SYNs.
fn progress(dir: &Path) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut connections = Vec::new();
    for row in store::read_connections(dir)? {
        let row = row?;
        connections.extend(
            row.syn_at
                .zip(row.closed_at)
                .map(|(syn, closed)| (syn.as_nanos(), closed.as_nanos(), row.down.unique_bytes)),
        );
    }
    Ok(summed(connections))
}

/// `connections`: SYN, end, bytes; in any order.
fn summed(mut connections: Vec<(u64, u64, u64)>) -> Vec<(u64, u64)> {
    connections.sort_unstable();
    let first = connections.first().map_or(0, |(syn, ..)| *syn);
    connections
        .iter()
        .scan(0, |sum, (_, closed, bytes)| {
            *sum += bytes;
            Some((*sum, closed.saturating_sub(first)))
        })
        .collect()
}

/// Paper beside here.
pub fn rows(overheads: &[Overhead]) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    for overhead in overheads {
        for point in &overhead.points {
            let setting = setting_of_link(overhead.link, &point.amount());
            let mb_per_s = |runs: &[f64]| median(runs.iter().copied()) / 1e6;
            rows.push(row(OVERHEAD, &setting, UNTAPPED, "MB/s", mb_per_s(&point.without)));
            rows.push(row(OVERHEAD, &setting, TAPPED, "MB/s", mb_per_s(&point.with)));
            // The paper has this link only.
            let paper =
                (overhead.link == MonitoredLink::Ethernet).then_some("at most about 10, growing with the amount");
            let note = "curve only; runs with and without in turn, medians";
            rows.push(beside(row(OVERHEAD, &setting, LOST, "%", 100.0 * point.lost()), paper, note));
            if let Some(spread) = point.spread() {
                let note = "a cost below this is not told from none";
                rows.push(beside(row(OVERHEAD, &setting, SPREAD, "%", 100.0 * spread), None, note));
            }
        }
    }
    rows
}

/// The paper's cost.
const SPREAD_MAX: f64 = 0.1;
/// Below this length of the whole one pair of runs must do.
const SHORT: Duration = Duration::from_secs(30);
const WHOLE: [&str; 2] = [
    "every transfer was seen whole on the wire",
    "transfers are missing on the wire or not whole: throughputs are of other amounts than they say",
];
const SEEN: [&str; 2] = [
    "the tap saw every transfer succeed",
    "the tap did not see every transfer succeed: it is not proved that it was there all the time",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_looked_at_in_powers_of_ten_and_at_its_end() {
        assert_eq!(amounts(1).collect::<Vec<_>>(), [1]);
        assert_eq!(amounts(30).collect::<Vec<_>>(), [1, 10, 30]);
        assert_eq!(amounts(100).collect::<Vec<_>>(), [1, 10, 100]);
        let words = [1, 3, 10, 30, 1000, 10_000]
            .map(|transfers| OverheadPoint { transfers, ..OverheadPoint::default() }.amount());
        assert_eq!(words, ["100 KB", "300 KB", "1 MB", "3 MB", "100 MB", "1 GB"]);
    }

    #[test]
    fn amounts_add_up_from_the_first_syn_on() {
        assert_eq!(summed(vec![(500, 900, 7), (100, 400, 5)]), [(5, 300), (12, 800)]);
        assert!(summed(Vec::new()).is_empty());
    }

    #[test]
    fn the_cost_is_of_medians_and_stands_beside_what_runs_differ_by() {
        let point = OverheadPoint { transfers: 10, without: vec![98.0, 100.0, 102.0], with: vec![99.0, 97.0, 60.0] };
        assert!((point.lost() - 0.03).abs() < 1e-9, "{}", point.lost());
        assert!((point.spread().unwrap() - 0.04).abs() < 1e-9);
        let of = |link| rows(&[Overhead { link, points: vec![point.clone()] }]);
        let lost = of(MonitoredLink::Ethernet).into_iter().find(|row| row.quantity == LOST).unwrap();
        assert_eq!(lost.setting, "10 Mbit/s, 1 MB");
        assert!(lost.published.unwrap().starts_with("at most about 10") && (lost.measured.unwrap() - 3.0).abs() < 1e-9);
        assert!(of(MonitoredLink::Unlimited).iter().all(|row| row.published.is_none()));
        let alone = OverheadPoint { transfers: 1, without: vec![1.0], with: Vec::new() };
        assert!(alone.spread().is_none() && alone.lost().is_nan());
        assert!(
            rows(&[Overhead { link: MonitoredLink::Ethernet, points: vec![alone] }])
                .iter()
                .all(|row| row.quantity != SPREAD)
        );
    }
}
