//! The report as a table of HTML: `ab -w`.

use std::fmt::{Display, Write};

use super::Report;
use super::times::whole_ms;
use crate::figures::plain;

/// Attributes of the user, inserted into the tags unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Attributes of `<table>` (`-x`).
    pub table: String,
    /// Attributes of `<tr>` (`-y`).
    pub row: String,
    /// Attributes of `<td>` and `<th>` (`-z`).
    pub cell: String,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes { table: String::new(), row: String::new(), cell: "bgcolor=white".into() }
    }
}

/// The report as an HTML table.
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
        // As in ab, the table has no row Receive, so that the parts do not add up to the total.
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
    if let Some(count) = report.kept_alive {
        table.pair("Keep-Alive requests:", count);
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
            table.continued(format_args!("{:.2} kb/s sent", report.kib_per_s(sent)));
            table.continued(format_args!("{:.2} kb/s total", report.kib_per_s(report.bytes_received + sent)));
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

    /// Adds a row with a further value under the label above.
    fn continued(&mut self, value: impl Display) {
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

/// Escapes text from servers and URLs, so that it is not markup.
fn escaped(text: &str) -> String {
    plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
