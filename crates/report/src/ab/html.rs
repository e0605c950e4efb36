//! The report as a table of HTML: `ab -w`.

use std::fmt::{Display, Write};

use super::Report;
use super::times::whole_ms;
use crate::figures::plain;

/// Attributes put into the tags as they are: the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Of `<table>` (`-x`).
    pub table: String,
    /// Of `<tr>` (`-y`).
    pub row: String,
    /// Of `<td>` and `<th>` (`-z`).
    pub cell: String,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes { table: String::new(), row: String::new(), cell: "bgcolor=white".into() }
    }
}

/// The table.
pub fn html(report: &Report, attributes: &Attributes) -> String {
    let mut table = Table { page: format!("\n\n<table {}>\n", attributes.table), attributes };
    table.pair("Server Software:", escaped(&report.software));
    table.pair("Server Hostname:", escaped(&report.hostname));
    table.pair("Server Port:", report.port);
    table.pair("Document Path:", escaped(&report.path));
    match report.document_bytes {
        None => table.pair("Document Length:", "Variable"),
        Some(bytes) => table.pair("Document Length:", format_args!("{bytes} bytes")),
    }
    table.pair("Concurrency Level:", report.concurrency);
    table.pair("Time taken for tests:", format_args!("{:.3} seconds", report.taken.as_secs_f64()));
    table.pair("Complete requests:", report.complete);
    let failed = &report.failed;
    table.pair("Failed requests:", failed.all());
    if failed.all() > 0 {
        // ab has no Receive here, so that its parts do not add up.
        let Attributes { row, cell, .. } = attributes;
        let _ = writeln!(
            table.page,
            "<tr {row}><td colspan=4 {cell} >   (Connect: {}, Receive: {}, Length: {}, Exceptions: {})</td></tr>",
            failed.connect, failed.receive, failed.length, failed.exceptions
        );
    }
    if report.non_2xx > 0 {
        table.pair("Non-2xx responses:", report.non_2xx);
    }
    if let Some(kept) = report.kept_alive {
        table.pair("Keep-Alive requests:", kept);
    }
    table.pair("Total transferred:", format_args!("{} bytes", report.bytes_received));
    if let Some(sent) = report.bytes_sent {
        table.pair("Total body sent:", sent);
    }
    table.pair("HTML transferred:", format_args!("{} bytes", report.body_bytes));
    if let Some(rate) = report.requests_per_s() {
        table.pair("Requests per second:", format_args!("{rate:.2}"));
        let received = report.kib_per_s(report.bytes_received);
        table.pair("Transfer rate:", format_args!("{received:.2} kb/s received"));
        if let Some(sent) = report.bytes_sent {
            table.beside(format_args!("{:.2} kb/s sent", report.kib_per_s(sent)));
            table.beside(format_args!("{:.2} kb/s total", report.kib_per_s(report.bytes_received + sent)));
        }
    }
    table.times(report);
    table.page.push_str("</table>\n");
    table.page
}

struct Table<'a> {
    page: String,
    attributes: &'a Attributes,
}

impl Table<'_> {
    fn pair(&mut self, label: &str, value: impl Display) {
        let Attributes { row, cell, .. } = self.attributes;
        let _ =
            writeln!(self.page, "<tr {row}><th colspan=2 {cell}>{label}</th><td colspan=2 {cell}>{value}</td></tr>");
    }

    /// A further value of the row above.
    fn beside(&mut self, value: impl Display) {
        let Attributes { row, cell, .. } = self.attributes;
        let _ = writeln!(self.page, "<tr {row}><td colspan=2 {cell}>&nbsp;</td><td colspan=2 {cell}>{value}</td></tr>");
    }

    /// Smallest, mean and largest. (ab's row Processing is the difference of the other two; this one is measured.)
    fn times(&mut self, report: &Report) {
        let Attributes { row, cell, .. } = self.attributes;
        let rows = [
            ("Connect:", report.times.spread(|times| times.connect_ns)),
            ("Processing:", report.times.spread(super::RequestTimes::processing_ns)),
            ("Total:", report.times.spread(|times| times.total_ns)),
        ];
        if report.times.count() == 0 {
            return;
        }
        let _ = writeln!(self.page, "<tr {row}><th {cell} colspan=4>Connection Times (ms)</th></tr>");
        let _ = writeln!(
            self.page,
            "<tr {row}><th {cell}>&nbsp;</th> <th {cell}>min</th>   <th {cell}>avg</th>   <th {cell}>max</th></tr>"
        );
        for (label, spread) in rows {
            let Some(spread) = spread else { return };
            let figures = [spread.min_ns as f64, spread.mean_ns, spread.max_ns as f64].map(whole_ms);
            let cells: String = figures.iter().map(|ms| format!("<td {cell}>{ms:>5}</td>")).collect();
            let _ = writeln!(self.page, "<tr {row}><th {cell}>{label}</th>{cells}</tr>");
        }
    }
}

/// What a server or a URL brought along must not become markup.
fn escaped(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
