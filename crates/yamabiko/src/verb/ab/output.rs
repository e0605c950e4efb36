//! ab's output before its report: banner, first line, and the messages of -v.

use std::fmt::Write;

use load::Target;
use report::figures::plain;
use schema::RequestRecord;
use testbed::FirstExchange;

use crate::args::ab::Options;

/// The program's name and version, on as many lines as ab's banner.
pub fn banner(html: bool) -> String {
    let lines = [
        format!(
            "This is Yamabiko, Version {}, with the options and the layout of ApacheBench 2.3",
            env!("CARGO_PKG_VERSION")
        ),
        "Doubts about the result are reported on standard error".to_owned(),
        "Every request is stored: yamabiko report shows details".to_owned(),
    ];
    if html {
        let lines: String = lines.iter().map(|line| format!(" {line}<br>\n")).collect();
        format!("<p>\n{lines}</p>\n<p>\n")
    } else {
        lines.join("\n") + "\n\n"
    }
}

/// The line that is shown during the run. Without progress lines it is completed at the end of the run.
pub fn benchmarking(options: &Options, progress: bool) -> String {
    let host = Target::parse(&options.url).map(|target| target.host).unwrap_or_default();
    let through = options.proxy.as_ref().map(|proxy| format!("[through {proxy}] ")).unwrap_or_default();
    format!("Benchmarking {} {through}(be patient){}", plain(&host), if progress { "\n" } else { "..." })
}

/// The messages of -v: the request, the first response's head, and warnings and status codes of every response.
pub fn exchange(options: &Options, first: &FirstExchange, records: &[RequestRecord]) -> String {
    let mut text = String::new();
    if options.verbosity >= 2 {
        let end =
            first.request.windows(4).position(|window| window == b"\r\n\r\n").map_or(first.request.len(), |at| at + 4);
        let method = options.method.as_str();
        let _ = writeln!(text, "INFO: {method} header == \n---\n{}\n---", lines(&first.request[..end]));
    }
    if let (4.., Some(head)) = (options.verbosity, &first.response_head) {
        let _ = writeln!(text, "LOG: header received:\n{}", lines(head));
    }
    for status in records.iter().map(|record| record.status).filter(|&status| status != 0) {
        let _ = match options.verbosity {
            2.. if status / 100 != 2 => writeln!(text, "WARNING: Response code not 2xx ({status})"),
            3.. => writeln!(text, "LOG: Response code = {status}"),
            _ => Ok(()),
        };
    }
    text
}

/// A head, line by line, with unprintable characters escaped.
fn lines(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    text.split_inclusive('\n').map(|line| plain(line.trim_end_matches(['\r', '\n'])) + "\n").collect()
}
