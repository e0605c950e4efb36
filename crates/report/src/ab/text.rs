//! The report as plain text: ab's standard output.

use std::fmt::Write;

use super::Report;
use super::times::{RequestTimes, Spread, whole_ms};
use crate::figures::plain;

/// The rows of the percentile table.
const PERCENTS: [u32; 9] = [50, 66, 75, 80, 90, 95, 98, 99, 100];

/// Optional parts of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The percentile table (omitted with `-d`).
    pub percentiles: bool,
    /// Standard deviations and medians (omitted with `-S`).
    pub deviations: bool,
}

/// A time of a request, in nanoseconds.
type TimeOf = fn(&RequestTimes) -> u64;

/// The rows of the table of times.
const ROWS: [(&str, TimeOf); 4] = [
    ("Connect:", |times| times.connect_ns),
    ("Processing:", RequestTimes::processing_ns),
    ("Waiting:", |times| times.waiting_ns),
    ("Total:", |times| times.total_ns),
];

/// The report, including the two empty lines at its start.
pub fn text(report: &Report, shown: Shown) -> String {
    let mut page = String::from("\n\n");
    server(&mut page, report);
    counts(&mut page, report);
    rates(&mut page, report);
    if report.times.count() > 0 {
        times(&mut page, report, shown.deviations);
        if shown.percentiles && report.times.count() > 1 {
            percentiles(&mut page, report);
        }
    }
    page
}

/// Appends a line: a label padded to ab's column, and a value.
fn line(page: &mut String, label: &str, value: impl std::fmt::Display) {
    let _ = writeln!(page, "{label:<24}{value}");
}

fn server(page: &mut String, report: &Report) {
    line(page, "Server Software:", plain(&report.software));
    line(page, "Server Hostname:", plain(&report.hostname));
    line(page, "Server Port:", report.port);
    if let Some(tls) = &report.tls {
        line(page, "SSL/TLS Protocol:", plain(&tls.protocol));
        if let Some(name) = &tls.server_name {
            line(page, "TLS Server Name:", plain(name));
        }
    }
    page.push('\n');
    line(page, "Document Path:", plain(&report.path));
    match report.document_bytes {
        None => line(page, "Document Length:", "Variable"),
        Some(bytes) => line(page, "Document Length:", format_args!("{bytes} bytes")),
    }
    page.push('\n');
}

fn counts(page: &mut String, report: &Report) {
    line(page, "Concurrency Level:", report.concurrency);
    line(page, "Time taken for tests:", format_args!("{:.3} seconds", report.taken.as_secs_f64()));
    line(page, "Complete requests:", report.complete);
    let failed = &report.failed;
    line(page, "Failed requests:", failed.all());
    if failed.all() > 0 {
        let _ = writeln!(
            page,
            "   (Connect: {}, Receive: {}, Length: {}, Exceptions: {})",
            failed.connect, failed.receive, failed.length, failed.exceptions
        );
    }
    if report.write_errors > 0 {
        line(page, "Write errors:", report.write_errors);
    }
    if report.non_2xx > 0 {
        line(page, "Non-2xx responses:", report.non_2xx);
    }
    if let Some(count) = report.kept_alive {
        line(page, "Keep-Alive requests:", count);
    }
    line(page, "Total transferred:", format_args!("{} bytes", report.bytes_received));
    if let Some(sent) = report.bytes_sent {
        line(page, "Total body sent:", sent);
    }
    line(page, "HTML transferred:", format_args!("{} bytes", report.body_bytes));
}

fn rates(page: &mut String, report: &Report) {
    let Some(rate) = report.requests_per_s() else { return };
    let apart_ms = 1000.0 / rate;
    line(page, "Requests per second:", format_args!("{rate:.2} [#/sec] (mean)"));
    line(page, "Time per request:", format_args!("{:.3} [ms] (mean)", f64::from(report.concurrency) * apart_ms));
    line(page, "Time per request:", format_args!("{apart_ms:.3} [ms] (mean, across all concurrent requests)"));
    let received = report.kib_per_s(report.bytes_received);
    line(page, "Transfer rate:", format_args!("{received:.2} [Kbytes/sec] received"));
    if let Some(sent) = report.bytes_sent {
        line(page, "", format_args!("{:.2} kb/s sent", report.kib_per_s(sent)));
        line(page, "", format_args!("{:.2} kb/s total", report.kib_per_s(report.bytes_received + sent)));
    }
}

fn times(page: &mut String, report: &Report, deviations: bool) {
    page.push_str("\nConnection Times (ms)\n");
    page.push_str(if deviations {
        "              min  mean[+/-sd] median   max\n"
    } else {
        "              min   avg   max\n"
    });
    for (label, of) in ROWS {
        let Some(Spread { min_ns, mean_ns, stddev_ns, median_ns, max_ns }) = report.times.spread(of) else { return };
        let (min, mean, max) = (whole_ms(min_ns as f64), whole_ms(mean_ns), whole_ms(max_ns as f64));
        let _ = if deviations {
            let (deviation, median) = (stddev_ns / 1e6, whole_ms(median_ns));
            writeln!(page, "{label:<12}{min:>5} {mean:>4} {deviation:>5.1} {median:>6} {max:>7}")
        } else {
            writeln!(page, "{label:<12}{min:>5} {mean:>5}{max:>5}")
        };
    }
}

fn percentiles(page: &mut String, report: &Report) {
    page.push_str("\nPercentage of the requests served within a certain time (ms)\n");
    for percent in PERCENTS {
        let Some(ns) = report.times.percentile_ns(percent) else { return };
        let longest = if percent == 100 { " (longest request)" } else { "" };
        let _ = writeln!(page, "{percent:>4}%  {:>5}{longest}", whole_ms(ns as f64));
    }
}
