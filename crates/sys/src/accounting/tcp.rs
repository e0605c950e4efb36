//! Counters of TCP and IP in the kernel: errors that no program sees.

use std::collections::BTreeMap;

use super::read;
use crate::error::Result;

/// The counters of one network namespace, named `<protocol>.<counter>` as in the kernel: `Tcp.RetransSegs`,
/// `Tcp.InCsumErrors`, `TcpExt.ListenOverflows`, `TcpExt.ListenDrops`, `TcpExt.TCPTimeWaitOverflow` .. They count from
/// the creation of the namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters(BTreeMap<String, i64>);

impl TcpCounters {
    /// Reads the counters of the calling thread's namespace: call it inside [`crate::namespace::NetNamespace::run`].
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn read() -> Result<TcpCounters> {
        let mut counters = TcpCounters::default();
        counters.add(&read("/proc/thread-self/net/snmp")?);
        counters.add(&read("/proc/thread-self/net/netstat")?);
        Ok(counters)
    }

    /// One counter; zero if this kernel does not have it.
    pub fn count(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Differences since `earlier`, without unchanged counters.
    pub fn since(&self, earlier: &TcpCounters) -> TcpCounters {
        let changed = self.0.iter().map(|(name, count)| (name.clone(), count - earlier.count(name)));
        TcpCounters(changed.filter(|(_, change)| *change != 0).collect())
    }

    /// Each counter with its name, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }

    /// Pairs of lines: `Tcp: name name ..`, `Tcp: figure figure ..`.
    fn add(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let (Some((protocol, names)), Some((_, figures))) = (pair[0].split_once(':'), pair[1].split_once(':'))
            else {
                continue;
            };
            for (name, figure) in names.split_whitespace().zip(figures.split_whitespace()) {
                if let Ok(figure) = figure.parse() {
                    self.0.insert(format!("{protocol}.{name}"), figure);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_counters_are_parsed_from_pairs_of_lines() {
        let mut counters = TcpCounters::default();
        counters.add("Tcp: RtoMin MaxConn\nTcp: 200 -1\nTcpExt: ListenDrops\nTcpExt: 7\n");
        assert_eq!(counters.count("Tcp.MaxConn"), -1);
        assert_eq!(counters.count("TcpExt.ListenDrops"), 7);
        assert_eq!(counters.count("TcpExt.Unknown"), 0);
        let mut later = counters.clone();
        later.add("TcpExt: ListenDrops\nTcpExt: 9\n");
        assert_eq!(later.since(&counters).iter().collect::<Vec<_>>(), [("TcpExt.ListenDrops", 2)]);
    }

    #[test]
    fn kernel_has_the_tcp_counters_of_the_validity_checks() {
        let counters = TcpCounters::read().unwrap();
        for name in [
            "Tcp.RetransSegs",
            "Tcp.InCsumErrors",
            "TcpExt.ListenOverflows",
            "TcpExt.ListenDrops",
            "TcpExt.TCPTimeWaitOverflow",
        ] {
            assert!(counters.0.contains_key(name), "{name}");
        }
    }
}
