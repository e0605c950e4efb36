//! Experiment 2: what a server's log misses. Clients fetch the file over the leased line without a pause; at a fixed
//! interval one more client starts.

use std::fs;
use std::time::{Duration, SystemTime};

use schema::document::{Check, CheckState, Weight};
use schema::{Document, DropCause, ReproductionRow};

use super::components::{JoinedTransfers, PARTS, Transfer, join};
use super::logs;
use super::rows::{
    DIFFERENCE_MAX, DIFFERENCE_MEAN, DROPPED, LOG_MAX, LOG_MEAN, LOGS, TC_MAX, TC_MEAN, TRANSFERS, row,
    setting_of_server, with_published,
};
use super::{LoggingServer, MeasurementContext, MonitoredLink, RunRequest};
use experiment::ExperimentError;
use experiment::programs::quoted;

/// Results for one server.
#[derive(Clone, Debug)]
pub struct LogComparison {
    /// The server.
    pub server: LoggingServer,
    /// Transfers seen at all vantage points, in order of their start.
    pub transfers: Vec<Transfer>,
    /// Clients at the end.
    pub clients: u32,
    /// Interval between their starts.
    pub interval: Duration,
    /// Packets dropped by the link's full queue, of all towards the clients; 0 to 1.
    pub dropped: f64,
}

/// Transfers that started with a similar number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// `11 to 20 clients`.
    pub name: String,
    /// Number of transfers.
    pub transfers: usize,
    /// Mean Tc, in ns.
    pub connection_ns: f64,
    /// Mean time in the log, in ns.
    pub log_ns: f64,
    /// Means of [`PARTS`], in ns.
    pub parts_ns: [f64; 6],
}

impl Band {
    fn of<'a>(name: String, transfers: impl Iterator<Item = &'a Transfer> + Clone) -> Option<Band> {
        let count = transfers.clone().count();
        let mean = |of: &dyn Fn(&Transfer) -> f64| transfers.clone().map(of).sum::<f64>() / count as f64;
        (count > 0).then(|| Band {
            name,
            transfers: count,
            connection_ns: mean(&|one| one.connection_ns as f64),
            log_ns: mean(&|one| one.log_ns as f64),
            parts_ns: std::array::from_fn(|at| mean(&|one| one.parts_ns[at] as f64)),
        })
    }

    /// Tc less the log's time.
    fn difference_ns(&self) -> f64 {
        self.connection_ns - self.log_ns
    }
}

/// Transfers by the number of clients at their start, in five bands.
pub fn bands(comparison: &LogComparison) -> Vec<Band> {
    let Some(first_ns) = comparison.transfers.first().map(|transfer| transfer.began_ns) else { return Vec::new() };
    let interval_ns = units::time::saturating_nanos(comparison.interval).max(1);
    let clients_at = |transfer: &Transfer| {
        let begun = (transfer.began_ns - first_ns) / interval_ns + 1;
        begun.min(u64::from(comparison.clients)) as u32
    };
    let width = comparison.clients.div_ceil(BANDS).max(1);
    (0..BANDS)
        .filter_map(|at| {
            let (from, to) = (at * width + 1, ((at + 1) * width).min(comparison.clients));
            let name = if from == to {
                format!("{from} client{}", if from == 1 { "" } else { "s" })
            } else {
                format!("{from} to {to} clients")
            };
            let within = comparison.transfers.iter().filter(move |one| (from..=to).contains(&clients_at(one)));
            Band::of(name, within)
        })
        .collect()
}

/// Makes a run with each server.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<LogComparison>, ExperimentError> {
    let mut log_comparisons = Vec::new();
    for server in LoggingServer::ALL {
        if context.interrupted() {
            break;
        }
        log_comparisons.push(of_server(context, server)?);
    }
    Ok(log_comparisons)
}

fn of_server(context: &mut MeasurementContext<'_>, server: LoggingServer) -> Result<LogComparison, ExperimentError> {
    let (clients, interval) = context.input.load();
    let name = format!("2, {}, 1 to {clients} clients", server.name());
    let script = script(context, clients, interval);
    let dish = RunRequest { name: &name, link: MonitoredLink::Leased, server, script: &script, tap: true };
    let outcome = context.run_one(&dish)?;
    let dir = outcome.folder.unwrap_or_default();
    let taps = store::read_taps(&dir)?.collect::<Result<Vec<_>, _>>()?;
    let wires = store::read_wire_requests(&dir)?.collect::<Result<Vec<_>, _>>()?;
    let lines = logs::read(server, &context.access_log(server))?;
    let zero = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let joined = join(&taps, &wires, &lines, units::time::saturating_nanos(zero));
    judge(context, &name, &joined);
    Ok(LogComparison { server, transfers: joined.transfers, clients, interval, dropped: dropped(&outcome.document) })
}

/// Clients that start at intervals, and end with the current transfer when the time is over, or at an interrupt.
fn script(context: &MeasurementContext<'_>, clients: u32, interval: Duration) -> String {
    let stop = context.folder.join("stop");
    // The file may be a remain of an earlier run.
    let _ = fs::remove_file(&stop);
    format!(
        "stop={stop}; client() {{ until [ -e \"$stop\" ]; do {fetch} || sleep 0.5; done; }}; trap ': >\"$stop\"' INT; n=0; \
         while [ $n -lt {clients} ] && [ ! -e \"$stop\" ]; do client & n=$((n+1)); sleep {interval}; done; : >\"$stop\"; \
         wait; wait",
        stop = quoted(&stop),
        fetch = context.curl.fetch(&context.url(), 1),
        interval = interval.as_secs_f64(),
    )
}

fn judge(context: &mut MeasurementContext<'_>, name: &str, joined: &JoinedTransfers) {
    let counts = (joined.transfers.len() as u64, joined.attempts);
    context.expect(name, "transfers seen at all three vantage points", Weight::Suspect, counts, ALL_VANTAGE_POINTS);
    if joined.transfers.is_empty() {
        context.builder.check(Check {
            name: format!("{name}: transfers"),
            state: CheckState::CouldNotRun,
            weight: Weight::Invalid,
            value: Some(0.0),
            limit: None,
            unit: "transfers".into(),
            why: "no transfer was seen at all vantage points, so there is nothing to compare".into(),
        });
    }
    let is_consistent = joined.disorder_ns <= DISORDER_MAX_NS;
    context.builder.check(Check {
        name: format!("{name}: order of events"),
        state: if is_consistent { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(joined.disorder_ns as f64),
        limit: Some(DISORDER_MAX_NS as f64),
        unit: "ns".into(),
        why: if is_consistent {
            "events of tap, packet capture and log are in order, up to the resolution of the server's clock"
        } else {
            "an event is earlier than one that must precede it: check whether the wall clock was set, or whether the \
             server was delayed between reading the clock and logging"
        }
        .into(),
    });
}

/// Packets towards the clients.
fn dropped(document: &Document) -> f64 {
    let Some(path) = &document.path else { return f64::NAN };
    let full = path.down.drops.get(DropCause::QueueFull.name()).copied().unwrap_or(0);
    full as f64 / path.down.packets.max(1) as f64
}

/// Published vs. measured figures.
pub fn rows(log_comparisons: &[LogComparison]) -> Vec<ReproductionRow> {
    log_comparisons.iter().flat_map(rows_of).collect()
}

fn rows_of(comparison: &LogComparison) -> Vec<ReproductionRow> {
    let all = setting_of_server(comparison.server, None);
    let s = |ns: f64| ns / 1e9;
    let largest = |of: fn(&Transfer) -> f64| s(comparison.transfers.iter().map(of).fold(f64::NAN, f64::max));
    let Some(whole) = Band::of(String::new(), comparison.transfers.iter()) else { return Vec::new() };
    let own = match comparison.server {
        LoggingServer::Nginx => "its $request_time",
        LoggingServer::Apache => "its %D",
    };
    let mut rows = vec![
        row(LOGS, &all, TRANSFERS, "", whole.transfers as f64),
        row(LOGS, &all, TC_MEAN, "s", s(whole.connection_ns)),
        row(LOGS, &all, TC_MAX, "s", largest(|one| one.connection_ns as f64)),
        with_published(row(LOGS, &all, LOG_MEAN, "s", s(whole.log_ns)), None, own),
        row(LOGS, &all, LOG_MAX, "s", largest(|one| one.log_ns as f64)),
        with_published(row(LOGS, &all, DIFFERENCE_MEAN, "s", s(whole.difference_ns())), Some("4.5"), ""),
        with_published(
            row(LOGS, &all, DIFFERENCE_MAX, "s", largest(|one| one.difference_ns() as f64)),
            Some("up to about 28"),
            "",
        ),
    ];
    for (part, ns) in PARTS.iter().zip(whole.parts_ns) {
        rows.push(with_published(row(LOGS, &all, &of_difference(part.name), "s", s(ns)), part.published, part.about));
    }
    let note = "towards the clients, by the path's counters";
    rows.push(with_published(row(LOGS, &all, DROPPED, "%", 100.0 * comparison.dropped), None, note));
    for band in bands(comparison) {
        let setting = setting_of_server(comparison.server, Some(&band.name));
        rows.push(row(LOGS, &setting, TRANSFERS, "", band.transfers as f64));
        rows.push(row(LOGS, &setting, TC_MEAN, "s", s(band.connection_ns)));
        rows.push(row(LOGS, &setting, LOG_MEAN, "s", s(band.log_ns)));
        rows.push(row(LOGS, &setting, DIFFERENCE_MEAN, "s", s(band.difference_ns())));
        let parts = PARTS.iter().zip(band.parts_ns);
        rows.extend(parts.map(|(part, ns)| row(LOGS, &setting, &of_difference(part.name), "s", s(ns))));
    }
    rows
}

/// A component's name in the rows.
pub fn of_difference(part: &str) -> String {
    format!("of that: {part}")
}

/// Bands of the load in the rows.
const BANDS: u32 = 5;
/// A fiftieth of the shortest Tc on this link is 11 ms; a server on a busy machine reads the clock later by a few of
/// these.
const DISORDER_MAX_NS: u64 = 50_000_000;
const ALL_VANTAGE_POINTS: [&str; 2] = [
    "each transfer is in the tap's table, in the packet capture and in the server's log",
    "transfers failed, or are missing in the packet capture or in the server's log, and are not in the figures",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transparent_monitoring::rows::find;

    fn transfer(began_s: u64, tc_s: u64, log_s: u64) -> Transfer {
        let rest = (tc_s - log_s) as i64 * 1_000_000_000;
        Transfer {
            began_ns: began_s * 1_000_000_000,
            connection_ns: tc_s * 1_000_000_000,
            log_ns: log_s * 1_000_000_000,
            parts_ns: [0, 0, 0, rest - 1_000, 1_000, 0],
        }
    }

    fn comparison() -> LogComparison {
        let transfers = vec![transfer(3, 1, 1), transfer(4, 3, 1), transfer(12, 10, 4), transfer(40, 20, 8)];
        LogComparison {
            server: LoggingServer::Nginx,
            transfers,
            clients: 10,
            interval: Duration::from_secs(1),
            dropped: 0.25,
        }
    }

    #[test]
    fn transfers_are_grouped_by_number_of_clients() {
        let bands = bands(&comparison());
        let names: Vec<_> = bands.iter().map(|band| (band.name.as_str(), band.transfers)).collect();
        assert_eq!(
            names,
            [("1 to 2 clients", 2), ("9 to 10 clients", 2)],
            "after the last start all clients are \
                                                                            counted"
        );
        assert_eq!((bands[0].connection_ns, bands[0].log_ns), (2e9, 1e9));
        assert_eq!(bands[1].parts_ns[3], 9e9 - 1e3);
        let alone = LogComparison { clients: 1, ..comparison() };
        assert_eq!(super::bands(&alone)[0].name, "1 client");
        assert!(super::bands(&LogComparison { transfers: Vec::new(), ..comparison() }).is_empty());
    }

    #[test]
    fn rows_have_published_and_measured_seconds() {
        let rows = rows(&[comparison()]);
        assert_eq!(find(&rows, "nginx", TC_MEAN), Some(8.5));
        assert_eq!(find(&rows, "nginx", LOG_MEAN), Some(3.5));
        assert_eq!(
            (find(&rows, "nginx", DIFFERENCE_MEAN), find(&rows, "nginx", DIFFERENCE_MAX)),
            (Some(5.0), Some(12.0))
        );
        assert_eq!(find(&rows, "nginx", DROPPED), Some(25.0));
        let of = |quantity: &str| rows.iter().find(|row| row.quantity == quantity).unwrap().published.as_deref();
        assert_eq!((of(DIFFERENCE_MEAN), of(DIFFERENCE_MAX)), (Some("4.5"), Some("up to about 28")));
        let parts: f64 = PARTS.iter().filter_map(|part| find(&rows, "nginx", &of_difference(part.name))).sum();
        assert!((parts - 5.0).abs() < 1e-9, "the components add up to the difference: {parts}");
        assert_eq!(find(&rows, "nginx, 9 to 10 clients", DIFFERENCE_MEAN), Some(9.0));
        assert!(super::rows(&[LogComparison { transfers: Vec::new(), ..comparison() }]).is_empty());
    }
}
