//! TCP's and IP's own counters: what went wrong in the kernel where no program sees it.

use std::collections::BTreeMap;

use super::read;
use crate::error::Result;

/// The counters of one network namespace, named `<protocol>.<counter>` as the kernel names them: `Tcp.RetransSegs`,
/// `Tcp.InCsumErrors`, `TcpExt.ListenOverflows`, `TcpExt.ListenDrops`, `TcpExt.TCPTimeWaitOverflow` .. They count from
/// the namespace's birth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters(BTreeMap<String, i64>);

impl TcpCounters {
    /// Those of the calling thread's namespace: read it inside [`crate::namespace::NetNamespace::run`].
    ///
    /// # Errors
    /// /proc is not mounted.
    pub fn read() -> Result<TcpCounters> {
        let mut counters = TcpCounters::default();
        counters.add(&read("/proc/thread-self/net/snmp")?);
        counters.add(&read("/proc/thread-self/net/netstat")?);
        Ok(counters)
    }

    /// One counter; zero when this kernel does not have it.
    pub fn count(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// What each counted since `earlier`, those that did not change left out.
    pub fn since(&self, earlier: &TcpCounters) -> TcpCounters {
        let changed = self.0.iter().map(|(name, count)| (name.clone(), count - earlier.count(name)));
        TcpCounters(changed.filter(|(_, change)| *change != 0).collect())
    }

    /// Each counter with its name, in the order of the names.
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
    fn pairs_of_lines() {
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
    fn this_kernel_has_the_counters_we_judge_by() {
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
