//! The system calls of a program, as `strace -c` counts them.

use std::collections::BTreeMap;

/// Counts of one system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of calls.
    pub made: u64,
    /// Number of failed calls.
    pub failed: u64,
}

/// Counts by the name of the system call.
pub type CallCounts = BTreeMap<String, Calls>;

/// Parses strace's table: share, seconds, microseconds per call, calls, optional errors, name.
pub fn read(table: &str) -> CallCounts {
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

/// Cost of one hook in nanoseconds, by what its call does.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// The call moves bytes and changes the direction, so the hook writes a record.
    pub record_ns: f64,
    /// The call moves bytes in the same direction as the one before.
    pub within_ns: f64,
    /// The call moves no bytes.
    pub empty_ns: f64,
    /// The call waits.
    pub poll_ns: f64,
}

/// Cost of the hooks of these calls per request; `records_per_request` comes from runs with the tap.
pub fn hooks_ns(counted: &CallCounts, requests: f64, records_per_request: f64, costs: Costs) -> f64 {
    let of = |names: &[&str]| {
        let calls = names.iter().filter_map(|name| counted.get(*name));
        calls.fold(Calls::default(), |all, one| Calls { made: all.made + one.made, failed: all.failed + one.failed })
    };
    let (moves, waits) = (of(MOVING_CALLS), of(WAITING_CALLS));
    let each = |calls: u64| calls as f64 / requests.max(1.0);
    let moving = each(moves.made.saturating_sub(moves.failed));
    let with_record = records_per_request.min(moving);
    with_record * costs.record_ns
        + (moving - with_record) * costs.within_ns
        + each(moves.failed) * costs.empty_ns
        + each(waits.made) * costs.poll_ns
}

/// Number of moving and of waiting calls per request.
pub fn per_request(counted: &CallCounts, requests: f64) -> (f64, f64) {
    let of = |names: &[&str]| names.iter().filter_map(|name| counted.get(*name)).map(|calls| calls.made).sum::<u64>();
    (of(MOVING_CALLS) as f64 / requests.max(1.0), of(WAITING_CALLS) as f64 / requests.max(1.0))
}

const MOVING_CALLS: &[&str] = &[
    "read", "readv", "recvfrom", "recvmsg", "recvmmsg", "write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile",
    "splice",
];
const WAITING_CALLS: &[&str] = &["poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2"];

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
        // Per request: two calls that move bytes, 0.25 that move none, 0.5 that wait.
        assert!((hooks_ns(&counted, 80_000.0, 1.5, costs) - (45.0 + 7.5 + 2.0 + 5.0)).abs() < 1e-9);
        // Records of connects and closes do not count as calls.
        assert!((hooks_ns(&counted, 80_000.0, 3.0, costs) - (60.0 + 2.0 + 5.0)).abs() < 1e-9);
        assert!(read("nonsense").is_empty());
    }
}
