//! What servers write into their access logs, by formats of ours.

use std::path::Path;

use super::LoggingServer;
use experiment::ExperimentError;

/// nginx: moment of the line, time since the request's first bytes were read, the client's port, status. Both times in
/// steps of a millisecond and by a clock that it reads once a turn of its loop.
pub const NGINX_FORMAT: &str = "$msec $request_time $remote_port $status";
/// Apache: moment at which the request was read, time to serve it, the client's port, status. Microseconds.
pub const APACHE_FORMAT: &str = "%{begin:usec}t %D %{remote}p %>s";

/// One request, as the server's log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The client's port.
    pub port: u16,
    /// HTTP's status.
    pub status: u16,
    /// Nanoseconds since 1970 at which the server began to count.
    pub began_unix_ns: u64,
    /// The processing time, in ns.
    pub time_ns: u64,
}

/// Reads the log that `server` wrote by our format. One that is not there is empty: nothing was asked of it.
///
/// # Errors
/// It cannot be read; a line is not by the format.
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
                why: format!("a line of its access log that is not understood: {line}"),
            })
        })
        .collect()
}

fn parse(server: LoggingServer, line: &str) -> Option<LogLine> {
    let mut words = line.split_ascii_whitespace();
    let (moment, time, port, status) = (words.next()?, words.next()?, words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let (port, status) = (port.parse().ok()?, status.parse().ok()?);
    let (began_unix_ns, time_ns) = match server {
        LoggingServer::Nginx => {
            let time = milliseconds(time)?;
            (milliseconds(moment)?.checked_sub(time)?.checked_mul(1_000_000)?, time.checked_mul(1_000_000)?)
        }
        LoggingServer::Apache => {
            let us = |word: &str| word.parse::<u64>().ok()?.checked_mul(1_000);
            (us(moment)?, us(time)?)
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
    fn both_logs_say_when_they_began_to_count_and_for_how_long() {
        let nginx = parse(LoggingServer::Nginx, "1700000012.345 12.300 40000 200").unwrap();
        let apache = parse(LoggingServer::Apache, "1700000000045000 12300000 40000 200").unwrap();
        assert_eq!(nginx, apache);
        assert_eq!((nginx.port, nginx.status, nginx.time_ns), (40_000, 200, 12_300_000_000));
        assert_eq!(nginx.began_unix_ns, 1_700_000_000_045_000_000);
    }

    #[test]
    fn a_line_of_another_format_is_refused() {
        for line in ["", "1700000012.345 - 40000 200", "1.5 0.500 1 200", "1.500 2.500 1 200", "1.500 0.500 1 200 more"]
        {
            assert_eq!(parse(LoggingServer::Nginx, line), None, "{line}");
        }
        assert_eq!(parse(LoggingServer::Apache, "1700000000.1 12 40000 200"), None);
        assert_eq!(parse(LoggingServer::Apache, "1 2 99999 200"), None);
    }
}
