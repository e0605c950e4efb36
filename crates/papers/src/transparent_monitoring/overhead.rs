//! Experiment 1: cost of the monitoring. A run fetches the file repeatedly; runs with the tap and without are
//! interleaved.
//!
//! The throughput of an amount is measured on the wire at the server's end: payload of the first connections, over the
//! time from the first SYN to the last client FIN. So starting a program and loading the library are not included, as
//! in the paper, whose layer was already loaded.

use std::path::Path;
use std::time::Duration;

use schema::ReproductionRow;
use schema::document::{Check, CheckState, Weight};
use store::StoreError;

use super::rows::{OVERHEAD, TAP_COST, VARIATION, WITH_TAP, WITHOUT_TAP, row, setting_of_link, with_published};
use super::{FILE_BYTES, LoggingServer, MeasurementContext, MonitoredLink, RunRequest};
use experiment::ExperimentError;
use stats::median;

/// The links in the order of measurement.
pub const LINKS: [MonitoredLink; 2] = [MonitoredLink::Ethernet, MonitoredLink::Unlimited];

/// Results for one link.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// The link.
    pub link: MonitoredLink,
    /// By amount, ascending.
    pub points: Vec<OverheadPoint>,
}

/// Throughputs for one amount, in bytes per second, one per run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverheadPoint {
    /// Transfers of the amount.
    pub transfers: u64,
    /// Without the tap.
    pub without: Vec<f64>,
    /// With the tap.
    pub with: Vec<f64>,
}

impl OverheadPoint {
    /// The amount in bytes, without heads.
    pub fn bytes(&self) -> u64 {
        self.transfers * FILE_BYTES as u64
    }

    /// The amount as text; the paper's unit is 100 KB.
    pub fn amount(&self) -> String {
        match self.transfers {
            gigabytes if gigabytes >= 10_000 => format!("{} GB", gigabytes / 10_000),
            megabytes if megabytes >= 10 => format!("{} MB", megabytes / 10),
            kilobytes => format!("{} KB", kilobytes * 100),
        }
    }

    /// Relative throughput cost of the tap, of medians; NaN if one side has no run.
    pub fn lost(&self) -> f64 {
        1.0 - median(self.with.iter().copied()) / median(self.without.iter().copied())
    }

    /// Range of the runs without the tap over their median: variation between equal runs. `None` of one run.
    pub fn spread(&self) -> Option<f64> {
        let (low, high) = self.without.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), &one| (l.min(one), h.max(one)));
        (self.without.len() > 1).then(|| (high - low) / median(self.without.iter().copied()))
    }
}

/// Which runs of a link have the tap, in order.
pub fn order(link: MonitoredLink, time: Duration) -> &'static [bool] {
    const PAIR: [bool; 2] = [false, true];
    // Twice where runs are short and noisy, the second time in reverse order.
    const TURNS: [bool; 8] = [false, true, true, false, true, false, false, true];
    match link {
        _ if time < SINGLE_PAIR_TIME_MAX => &PAIR,
        MonitoredLink::Unlimited => &TURNS,
        _ => &TURNS[..4],
    }
}

/// Makes the runs of both links.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<Overhead>, ExperimentError> {
    let mut overheads = Vec::new();
    for link in LINKS {
        let transfers = context.input.transfers(link);
        let mut points: Vec<OverheadPoint> =
            amounts(transfers).map(|transfers| OverheadPoint { transfers, ..OverheadPoint::default() }).collect();
        let script = format!("exec {}", context.curl.fetch(&context.url(), transfers));
        for (at, &tap) in order(link, context.input.time).iter().enumerate() {
            if context.interrupted() {
                break;
            }
            let with = if tap { "with tap" } else { "without" };
            let name = format!("1, {}, {with}, run {}", link.name(), at + 1);
            let outcome = context.run_one(&RunRequest {
                name: &name,
                link,
                server: LoggingServer::Nginx,
                script: &script,
                tap,
            })?;
            let dir = outcome.folder.unwrap_or_default();
            let whole = store::read_wire_requests(&dir)?.filter(|row| row.as_ref().is_ok_and(whole_response)).count();
            context.expect(
                &name,
                "complete responses on the wire",
                Weight::Invalid,
                (whole as u64, transfers),
                COMPLETE_TRANSFERS,
            );
            if tap {
                let client = outcome.document.tap.and_then(|tap| tap.client).unwrap_or_default();
                let failed = client.failed.values().sum();
                let seen = client.exchanges.saturating_sub(failed);
                context.expect(
                    &name,
                    "exchanges seen by the tap",
                    Weight::Invalid,
                    (seen, transfers),
                    SUCCESSFUL_TRANSFERS,
                );
            }
            let progress = progress(&dir)?;
            for point in &mut points {
                let at = progress.get(point.transfers as usize - 1);
                let throughput = at.map(|&(bytes, ns)| bytes as f64 * 1e9 / ns.max(1) as f64);
                if tap { &mut point.with } else { &mut point.without }.extend(throughput);
            }
        }
        judge(context, link, &points);
        overheads.push(Overhead { link, points });
    }
    Ok(overheads)
}

/// Whether the runs of the largest amount without the tap vary little enough to detect a cost.
fn judge(context: &mut MeasurementContext<'_>, link: MonitoredLink, points: &[OverheadPoint]) {
    // A single run was requested, or an interrupt ended the runs.
    let Some(spread) = points.last().and_then(OverheadPoint::spread).filter(|spread| spread.is_finite()) else {
        return;
    };
    let alike = spread <= VARIATION_MAX;
    context.builder.check(Check {
        name: format!("1, {}: variation of runs without tap", link.name()),
        state: if alike { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(100.0 * spread),
        limit: Some(100.0 * VARIATION_MAX),
        unit: "%".into(),
        why: if alike {
            "runs without the tap vary by less than the published cost"
        } else {
            "runs without the tap vary by more than the published cost, so the cost here is undecided: another \
             program used this machine"
        }
        .into(),
    });
}

fn whole_response(request: &schema::WireRequest) -> bool {
    request.complete && request.status == Some(200) && request.response_bytes > FILE_BYTES as u64
}

/// Numbers of transfers at which a run is evaluated: powers of ten, and its end.
fn amounts(transfers: u64) -> impl Iterator<Item = u64> {
    (0..).map(|power| 10_u64.pow(power)).take_while(move |&at| at < transfers).chain([transfers])
}

/// Payload from the server and nanoseconds since the first SYN, after each closed connection, in order of their SYNs.
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

/// Published vs. measured figures.
pub fn rows(overheads: &[Overhead]) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    for overhead in overheads {
        for point in &overhead.points {
            let setting = setting_of_link(overhead.link, &point.amount());
            let mb_per_s = |runs: &[f64]| median(runs.iter().copied()) / 1e6;
            rows.push(row(OVERHEAD, &setting, WITHOUT_TAP, "MB/s", mb_per_s(&point.without)));
            rows.push(row(OVERHEAD, &setting, WITH_TAP, "MB/s", mb_per_s(&point.with)));
            // The paper has this link only.
            let paper =
                (overhead.link == MonitoredLink::Ethernet).then_some("at most about 10, growing with the amount");
            let note = "curve only; interleaved runs with and without, medians";
            rows.push(with_published(row(OVERHEAD, &setting, TAP_COST, "%", 100.0 * point.lost()), paper, note));
            if let Some(spread) = point.spread() {
                let note = "a lower cost is not distinguishable from none";
                rows.push(with_published(row(OVERHEAD, &setting, VARIATION, "%", 100.0 * spread), None, note));
            }
        }
    }
    rows
}

/// The published cost.
const VARIATION_MAX: f64 = 0.1;
/// Total duration below which each link has one pair of runs.
const SINGLE_PAIR_TIME_MAX: Duration = Duration::from_secs(30);
const COMPLETE_TRANSFERS: [&str; 2] = [
    "every transfer was seen complete on the wire",
    "transfers are missing or incomplete on the wire: throughputs are of other amounts than stated",
];
const SUCCESSFUL_TRANSFERS: [&str; 2] = [
    "the tap saw every transfer succeed",
    "the tap did not see every transfer succeed: it may not have been loaded all the time",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_evaluated_at_powers_of_ten_and_at_its_end() {
        assert_eq!(amounts(1).collect::<Vec<_>>(), [1]);
        assert_eq!(amounts(30).collect::<Vec<_>>(), [1, 10, 30]);
        assert_eq!(amounts(100).collect::<Vec<_>>(), [1, 10, 100]);
        let words = [1, 3, 10, 30, 1000, 10_000]
            .map(|transfers| OverheadPoint { transfers, ..OverheadPoint::default() }.amount());
        assert_eq!(words, ["100 KB", "300 KB", "1 MB", "3 MB", "100 MB", "1 GB"]);
    }

    #[test]
    fn amounts_are_cumulative_from_the_first_syn() {
        assert_eq!(summed(vec![(500, 900, 7), (100, 400, 5)]), [(5, 300), (12, 800)]);
        assert!(summed(Vec::new()).is_empty());
    }

    #[test]
    fn tap_cost_is_of_medians_with_the_variation_of_runs() {
        let point = OverheadPoint { transfers: 10, without: vec![98.0, 100.0, 102.0], with: vec![99.0, 97.0, 60.0] };
        assert!((point.lost() - 0.03).abs() < 1e-9, "{}", point.lost());
        assert!((point.spread().unwrap() - 0.04).abs() < 1e-9);
        let of = |link| rows(&[Overhead { link, points: vec![point.clone()] }]);
        let lost = of(MonitoredLink::Ethernet).into_iter().find(|row| row.quantity == TAP_COST).unwrap();
        assert_eq!(lost.setting, "10 Mbit/s, 1 MB");
        assert!(lost.published.unwrap().starts_with("at most about 10") && (lost.measured.unwrap() - 3.0).abs() < 1e-9);
        assert!(of(MonitoredLink::Unlimited).iter().all(|row| row.published.is_none()));
        let alone = OverheadPoint { transfers: 1, without: vec![1.0], with: Vec::new() };
        assert!(alone.spread().is_none() && alone.lost().is_nan());
        assert!(
            rows(&[Overhead { link: MonitoredLink::Ethernet, points: vec![alone] }])
                .iter()
                .all(|row| row.quantity != VARIATION)
        );
    }
}
