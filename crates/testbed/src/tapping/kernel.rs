//! The kernel's own count of TCP connections in a network namespace, for comparison with the hooks.
//!
//! A socket that a program creates by direct system calls, or through io_uring, bypasses the hooks, and a program that
//! exists for less than a second may not be listed. The kernel counts its connections all the same (/proc/PID/net/snmp,
//! `ActiveOpens` and `PassiveOpens` of `Tcp`), for all processes of the namespace together.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use validity::evidence::{KernelOpens, Opens};

/// A namespace's counters, and their values at the start.
#[derive(Debug)]
pub(super) struct Counters {
    /// The open file keeps the namespace in existence after its processes have ended.
    file: File,
    begin: Opens,
    is_own: bool,
}

impl Counters {
    /// Counters of the namespace of process `pid`; without one, of this process. `is_own`: the namespace was created
    /// for the run.
    pub fn begin(pid: Option<i32>, is_own: bool) -> Option<Counters> {
        let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
        let file = File::open(format!("/proc/{process}/net/snmp")).ok()?;
        // In a namespace created for the run, all connections belong to the run, also earlier ones.
        let begin = if is_own { Opens::default() } else { read(&file)? };
        Some(Counters { file, begin, is_own })
    }

    /// Connections counted since the start.
    pub fn end(&self) -> Option<KernelOpens> {
        let now = read(&self.file)?;
        let opens = Opens {
            active: now.active.saturating_sub(self.begin.active),
            passive: now.passive.saturating_sub(self.begin.passive),
        };
        Some(KernelOpens { opens, is_own: self.is_own })
    }
}

fn read(file: &File) -> Option<Opens> {
    let mut bytes = vec![0; 16 * 1024];
    let length = file.read_at(&mut bytes, 0).ok()?;
    parse(std::str::from_utf8(&bytes[..length]).ok()?)
}

/// Parses the counters of TCP. The file has two lines per protocol: names, and values in the same order.
fn parse(text: &str) -> Option<Opens> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let value = |name: &str| {
        let at = names.split(' ').position(|other| other == name)?;
        values.split(' ').nth(at)?.parse().ok()
    };
    Some(Opens { active: value("ActiveOpens")?, passive: value("PassiveOpens")? })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Ip: A B\nIp: 1 2\nTcp: RtoMin MaxConn ActiveOpens PassiveOpens\nTcp: 200 -1 17 4\nUdp: A\nUdp: 1\n";
        assert_eq!(parse(text), Some(Opens { active: 17, passive: 4 }));
        assert_eq!(parse("Tcp: ActiveOpens\nTcp: 1\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_connection_within_this_machine_is_counted_at_both_ends() {
        let counters = Counters::begin(None, false).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let counted = counters.end().unwrap();
        assert!(counted.opens.active >= 1 && counted.opens.passive >= 1 && !counted.is_own, "{counted:?}");
    }
}
