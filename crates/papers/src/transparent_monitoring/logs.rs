//! Access logs of the servers, in formats defined here.

use std::path::Path;

use super::LoggingServer;
use experiment::ExperimentError;

/// nginx: time of the line, time since the first bytes of the request, the client's port, status. Both times in
/// milliseconds, from a clock that nginx reads once per turn of its loop.
pub const NGINX_FORMAT: &str = "$msec $request_time $remote_port $status";
/// Apache: time at which the request was read, time to serve it, the client's port, status. Microseconds.
pub const APACHE_FORMAT: &str = "%{begin:usec}t %D %{remote}p %>s";

/// One request in the server's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The client's port.
    pub port: u16,
    /// HTTP status.
    pub status: u16,
    /// Start of processing, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// Processing time, in ns.
    pub time_ns: u64,
}

/// Reads the log that `server` wrote in our format. A missing file counts as empty: there were no requests.
///
/// # Errors
/// The file cannot be read, or a line has another format.
pub fn read(server: LoggingServer, log: &Path) -> Result<Vec<LogLine>, ExperimentError> {
    let text = match std::fs::read_to_string(log) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(ExperimentError::file(log)(error)),
    };
    text.lines()
        .map(|line| {
            parse(server, line).ok_or_else(|| ExperimentError::Program {
                program: server.name(),
                why: format!("unexpected line in its access log: {line}"),
            })
        })
        .collect()
}

fn parse(server: LoggingServer, line: &str) -> Option<LogLine> {
    let mut words = line.split_ascii_whitespace();
    let (timestamp, time, port, status) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let (port, status) = (port.parse().ok()?, status.parse().ok()?);
    let (began_unix_ns, time_ns) = match server {
        LoggingServer::Nginx => {
            let time = milliseconds(time)?;
            (milliseconds(timestamp)?.checked_sub(time)?.checked_mul(1_000_000)?, time.checked_mul(1_000_000)?)
        }
        LoggingServer::Apache => {
            let us = |word: &str| word.parse::<u64>().ok()?.checked_mul(1_000);
            (us(timestamp)?, us(time)?)
        }
    };
    Some(LogLine { port, status, began_unix_ns, time_ns })
}

/// `12.345`, exactly.
fn milliseconds(seconds: &str) -> Option<u64> {
    let (whole, thousandths) = seconds.split_once('.')?;
    if thousandths.len() != 3 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(thousandths.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_logs_give_start_and_processing_time() {
        let nginx = parse(LoggingServer::Nginx, "1700000012.345 12.300 40000 200").unwrap();
        let apache = parse(LoggingServer::Apache, "1700000000045000 12300000 40000 200").unwrap();
        assert_eq!(nginx, apache);
        assert_eq!((nginx.port, nginx.status, nginx.time_ns), (40_000, 200, 12_300_000_000));
        assert_eq!(nginx.began_unix_ns, 1_700_000_000_045_000_000);
    }

    #[test]
    fn log_line_of_another_format_is_refused() {
        for line in ["", "1700000012.345 - 40000 200", "1.5 0.500 1 200", "1.500 2.500 1 200", "1.500 0.500 1 200 more"]
        {
            assert_eq!(parse(LoggingServer::Nginx, line), None, "{line}");
        }
        assert_eq!(parse(LoggingServer::Apache, "1700000000.1 12 40000 200"), None);
        assert_eq!(parse(LoggingServer::Apache, "1 2 99999 200"), None);
    }
}
