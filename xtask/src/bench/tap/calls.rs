//! The system calls of a program, as `strace -c` counts them.

use std::collections::BTreeMap;

/// Of one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How often it was made.
    pub made: u64,
    /// Of these, the ones that failed.
    pub failed: u64,
}

/// By name.
pub type Counted = BTreeMap<String, Calls>;

/// Reads strace's table: share, seconds, microseconds a call, calls, errors if there were any, name.
pub fn read(table: &str) -> Counted {
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = lines.filter(|words| words.first().is_some_and(|share| share.parse::<f64>().is_ok()));
    lines
        .filter_map(|words| {
            let (name, failed) = match *words {
                [_, _, _, _, name] => (name, 0),
                [_, _, _, _, failed, name] => (name, failed.parse().ok()?),
                _ => return None,
            };
            let made = words[3].parse().ok()?;
            (name != "total").then(|| (name.to_owned(), Calls { made, failed }))
        })
        .collect()
}

/// What one hook costs, in nanoseconds, by what its call does.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Moves bytes, and a record is written: the direction changed.
    pub record_ns: f64,
    /// Moves bytes as the one before it did.
    pub within_ns: f64,
    /// Moves none.
    pub empty_ns: f64,
    /// Waits.
    pub poll_ns: f64,
}

/// What the hooks of these calls cost, a request, of which so many wrote a record as the runs with the tap counted them.
pub fn hooks_ns(counted: &Counted, requests: f64, records_per_request: f64, costs: Costs) -> f64 {
    let of = |names: &[&str]| {
        let calls = names.iter().filter_map(|name| counted.get(*name));
        calls.fold(Calls::default(), |all, one| Calls { made: all.made + one.made, failed: all.failed + one.failed })
    };
    let (moves, waits) = (of(MOVES), of(WAITS));
    let each = |calls: u64| calls as f64 / requests.max(1.0);
    let moved = each(moves.made.saturating_sub(moves.failed));
    let with_record = records_per_request.min(moved);
    with_record * costs.record_ns
        + (moved - with_record) * costs.within_ns
        + each(moves.failed) * costs.empty_ns
        + each(waits.made) * costs.poll_ns
}

/// Calls of these kinds that a request takes.
pub fn per_request(counted: &Counted, requests: f64) -> (f64, f64) {
    let of = |names: &[&str]| names.iter().filter_map(|name| counted.get(*name)).map(|calls| calls.made).sum::<u64>();
    (of(MOVES) as f64 / requests.max(1.0), of(WAITS) as f64 / requests.max(1.0))
}

const MOVES: &[&str] = &[
    "read", "readv", "recvfrom", "recvmsg", "recvmmsg", "write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile",
    "splice",
];
const WAITS: &[&str] = &["poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"];

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    1.200000          12    100000     20000 read
 39.00    0.780000          15     80000           write
  1.00    0.020000          20     40000           epoll_wait
  0.00    0.000001           1         1           connect
------ ----------- ----------- --------- --------- ----------------
100.00    2.000001          13    220001     20000 total
";

    #[test]
    fn the_table_of_strace_is_parsed_and_hooked_calls_are_counted() {
        let counted = read(TABLE);
        assert_eq!(counted.len(), 4, "{counted:?}");
        assert_eq!(counted["read"], Calls { made: 100_000, failed: 20_000 });
        assert_eq!(counted["connect"], Calls { made: 1, failed: 0 });
        assert_eq!(per_request(&counted, 80_000.0), (2.25, 0.5));
        let costs = Costs { record_ns: 30.0, within_ns: 15.0, empty_ns: 8.0, poll_ns: 10.0 };
        // Two calls that move bytes, a quarter of one that moves none, half a wait.
        assert!((hooks_ns(&counted, 80_000.0, 1.5, costs) - (45.0 + 7.5 + 2.0 + 5.0)).abs() < 1e-9);
        // Records of ends and beginnings are no calls.
        assert!((hooks_ns(&counted, 80_000.0, 3.0, costs) - (60.0 + 2.0 + 5.0)).abs() < 1e-9);
        assert!(read("nonsense").is_empty());
    }
}
