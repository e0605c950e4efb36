//! ab's two output files: every request (`-g`), and the distribution (`-e`).

use std::fmt::Write;
use std::time::Duration;

use super::Report;
use super::times::whole_ms;

/// One line a request, shortest first, tab-separated: start (UTC, and as seconds since 1970), connect, processing,
/// total and waiting time in ms.
pub fn gnuplot(report: &Report) -> String {
    let mut file = String::from("starttime\tseconds\tctime\tdtime\tttime\twait\n");
    for times in report.times.iter() {
        let started = report.zero_at + Duration::from_nanos(times.started_at_ns);
        let seconds = started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let [connect, processing, total, waiting] =
            [times.connect_ns, times.processing_ns(), times.total_ns, times.waiting_ns].map(|ns| whole_ms(ns as f64));
        let _ = writeln!(file, "{}\t{seconds}\t{connect}\t{processing}\t{total}\t{waiting}", store::ctime(started));
    }
    file
}

/// One line for each percent from 0 to 100: the time within which that share of requests was served, in ms to the
/// microsecond.
pub fn percentages(report: &Report) -> String {
    let mut file = String::from("Percentage served,Time in ms\n");
    for percent in 0..=100 {
        let Some(ns) = report.times.nearest_percentile_ns(percent) else { break };
        let _ = writeln!(file, "{percent},{:.3}", ns as f64 / 1e6);
    }
    file
}
