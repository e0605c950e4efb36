//! httperf as a load generator, and its report.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::ExperimentError;

/// An installed httperf.
#[derive(Clone, Debug)]
pub struct Httperf {
    program: PathBuf,
}

/// Settings of httperf: one connection per request, at a fixed rate, whatever the server does.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Name of the server.
    pub server: &'a str,
    /// The server's port.
    pub port: u16,
    /// The requested path.
    pub uri: &'a str,
    /// Connections per second.
    pub rate_per_s: f64,
    /// Number of connections.
    pub connections: u64,
    /// A reply that takes longer counts as an error.
    pub timeout: Duration,
}

/// Counts of httperf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttperfReport {
    /// Connections it opened.
    pub connections: u64,
    /// Replies of status 2xx.
    pub good: u64,
    /// Errors of all kinds, including those of its own machine (descriptors, ports).
    pub errors: u64,
}

impl Httperf {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<Httperf, ExperimentError> {
        ["/usr/bin/httperf", "/usr/local/bin/httperf"]
            .iter()
            .map(PathBuf::from)
            .find(|place| place.exists())
            .map(|program| Httperf { program })
            .ok_or(ExperimentError::Missing { program: "httperf", fix: "apt-get install httperf" })
    }

    /// A shell command that makes `call` and writes httperf's report into `output`.
    pub fn command(&self, call: &Call<'_>, output: &Path) -> String {
        format!(
            "exec {} --hog --server {} --port {} --uri {} --rate {} --num-conns {} --num-calls 1 --timeout {} \\
             >'{}' 2>&1",
            self.program.display(),
            call.server,
            call.port,
            call.uri,
            call.rate_per_s,
            call.connections,
            call.timeout.as_secs_f64(),
            output.display(),
        )
    }
}

impl HttperfReport {
    /// Parses httperf's report.
    ///
    /// # Errors
    /// [`ExperimentError::Program`] with its last line, if a figure is missing.
    pub fn read(report: &str) -> Result<HttperfReport, ExperimentError> {
        let figure = |line: &str, after: &str| -> Option<f64> {
            let line = report.lines().find(|candidate| candidate.starts_with(line))?;
            let rest = &line[line.find(after)? + after.len()..];
            rest.split(|c: char| !(c.is_ascii_digit() || c == '.')).find(|word| !word.is_empty())?.parse().ok()
        };
        let read = || {
            Some(HttperfReport {
                connections: figure("Total:", "connections ")? as u64,
                good: figure("Reply status:", "2xx=")? as u64,
                errors: figure("Errors:", "total ")? as u64,
            })
        };
        read().ok_or_else(|| ExperimentError::Program {
            program: "httperf",
            why: report.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no output").trim().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
httperf --hog --client=0/1 --server=server --port=8080 --uri=/10k.bin --rate=110 --num-conns=880 --num-calls=1
Maximum connect burst length: 1

Total: connections 880 requests 879 replies 878 test-duration 8.184 s

Connection rate: 107.5 conn/s (9.3 ms/conn, <=26 concurrent connections)
Reply status: 1xx=0 2xx=870 3xx=0 4xx=8 5xx=0

Errors: total 2 client-timo 1 socket-timo 0 connrefused 0 connreset 1
Errors: fd-unavail 0 addrunavail 0 ftab-full 0 other 0
";

    #[test]
    fn httperf_report_is_parsed() {
        let report = HttperfReport::read(REPORT).unwrap();
        assert_eq!(report, HttperfReport { connections: 880, good: 870, errors: 2 });
    }

    #[test]
    fn an_invalid_httperf_report_is_quoted() {
        let error = HttperfReport::read("httperf: warning\nhttperf.main: host unknown\n\n").unwrap_err();
        assert_eq!(error.to_string(), "httperf: httperf.main: host unknown");
        assert!(HttperfReport::read("").is_err());
    }
}
