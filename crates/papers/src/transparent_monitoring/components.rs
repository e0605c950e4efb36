//! One transfer from three vantage points, divided at the begin and end of the server's log.
//!
//! ```text
//!   client (tap)    connect ── open ── sent ························ last byte received ─ close
//!   wire (server's end)                  └─ request ┐          ┌ last byte ─┘
//!   server's log                                    begin ─ end
//!                   | set-up | request | waiting |  (log)  | buffer | link |            | close |
//! ```
//!
//! Events are in this order, so Tc is the log's time plus the six components, exactly. Three sources share one time
//! base: the tap uses the run's clock, capture timestamps are converted to it, and the log's wall clock was read at the
//! run's zero. A negative component shows by how much the clocks disagree, and [`JoinedTransfers::disorder_ns`] is the
//! worst: a server that reads the clock once per turn of its loop can log the end before the last packet left.

use std::collections::HashMap;

use schema::{TapExchange, TapOutcome, TapSide, WireRequest};

use super::logs::LogLine;

/// A component of the time that the log misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeComponent {
    /// Name in the rows and the legend.
    pub name: &'static str,
    /// From which event to which, by vantage point.
    pub about: &'static str,
    /// The paper's text on it.
    pub published: Option<&'static str>,
}

/// The components in order of time.
pub const PARTS: [TimeComponent; 6] = [
    TimeComponent {
        name: "set-up",
        about: "connect called to connected, by the tap",
        published: Some("set-up and close take at least 3 RTTs"),
    },
    TimeComponent {
        name: "request in transit",
        about: "connected, by the tap, to request at the server's end, on the wire",
        published: None,
    },
    TimeComponent {
        name: "waiting at the server",
        about: "request at the server's end, on the wire, to begin in the log: not yet read by the server",
        published: None,
    },
    TimeComponent {
        name: "server's socket buffer",
        about: "end in the log to last byte leaving the server, on the wire: in the kernel, not yet on the link",
        published: Some("the OS buffers the response"),
    },
    TimeComponent {
        name: "link",
        about: "last byte leaving the server, on the wire, to last byte received, by the tap: the link's queue, and \
                retransmissions",
        published: None,
    },
    TimeComponent { name: "close", about: "last byte received to close called, by the tap", published: None },
];

/// A transfer seen at all three vantage points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Time of the connect call, in ns of the run's clock.
    pub began_ns: u64,
    /// Tc, in ns.
    pub connection_ns: u64,
    /// Processing time in the log, in ns.
    pub log_ns: u64,
    /// [`PARTS`], in ns; with the log's time they add up to Tc.
    pub parts_ns: [i64; 6],
}

impl Transfer {
    /// Tc less the log's time, in ns.
    pub fn difference_ns(&self) -> i64 {
        self.parts_ns.iter().sum()
    }
}

/// All transfers of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedTransfers {
    /// Transfers seen at all three vantage points, in order of their start.
    pub transfers: Vec<Transfer>,
    /// Ended attempts of the client, by the tap, failed ones included.
    pub attempts: u64,
    /// The most negative component, in ns.
    pub disorder_ns: u64,
}

/// Joins the records by client port and time of the connection. `zero_unix_ns` is the wall clock at the run's zero.
pub fn join(taps: &[TapExchange], wires: &[WireRequest], lines: &[LogLine], zero_unix_ns: u64) -> JoinedTransfers {
    let mut on_wire: HashMap<u16, Vec<&WireRequest>> = HashMap::new();
    for wire in wires.iter().filter(|wire| wire.complete && wire.status == Some(200)) {
        on_wire.entry(wire.client.port()).or_default().push(wire);
    }
    let mut in_log: HashMap<u16, Vec<&LogLine>> = HashMap::new();
    for line in lines.iter().filter(|line| line.status == 200) {
        in_log.entry(line.port).or_default().push(line);
    }
    let mut joined = JoinedTransfers::default();
    for tap in taps.iter().filter(|tap| tap.side == TapSide::Client && tap.outcome.is_attempt()) {
        joined.attempts += 1;
        let transfer = || {
            if tap.outcome != TapOutcome::Succeeded || tap.exchange != Some(0) || !tap.last {
                return None;
            }
            let (opened, closed) = (tap.opened_at.as_nanos(), tap.closed_at?.as_nanos());
            let port = tap.local?.port();
            let began = |line: &LogLine| i128::from(line.began_unix_ns) - i128::from(zero_unix_ns);
            let span = opened..=closed;
            let wide = i128::from(opened) - CLOCK_TOLERANCE_NS..=i128::from(closed) + CLOCK_TOLERANCE_NS;
            let wire = on_wire
                .get(&port)?
                .iter()
                .find(|wire| wire.request_first_at.is_some_and(|first| span.contains(&first.as_nanos())))?;
            let line = in_log.get(&port)?.iter().find(|line| wide.contains(&began(line)))?;
            let log_began = i64::try_from(began(line)).ok()?;
            let events: [i64; 8] = [
                signed(opened),
                signed(opened.saturating_add(tap.setup_ns?)),
                signed(wire.request_last_at?.as_nanos()),
                log_began,
                log_began.saturating_add(signed(line.time_ns)),
                signed(wire.response_last_at?.as_nanos()),
                signed(tap.received_last_at?.as_nanos()),
                signed(closed),
            ];
            let gap = |at: usize| events[at + 1] - events[at];
            Some(Transfer {
                began_ns: opened,
                connection_ns: closed.saturating_sub(opened),
                log_ns: line.time_ns,
                parts_ns: [gap(0), gap(1), gap(2), gap(4), gap(5), gap(6)],
            })
        };
        joined.transfers.extend(transfer());
    }
    joined.transfers.sort_by_key(|transfer| transfer.began_ns);
    let worst = joined.transfers.iter().flat_map(|transfer| transfer.parts_ns).min().unwrap_or(0);
    joined.disorder_ns = worst.min(0).unsigned_abs();
    joined
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// Clock error of a server that is tolerated when joining; no other connection can have had the port within it.
const CLOCK_TOLERANCE_NS: i128 = 500_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Timestamp;

    const ZERO: u64 = 1_700_000_000_000_000_000;

    fn at(ms: u64) -> Option<Timestamp> {
        Some(Timestamp::from_nanos(ms * 1_000_000))
    }

    fn tap(port: u16, from: u64) -> TapExchange {
        TapExchange {
            connection: Some(0),
            exchange: Some(0),
            last: true,
            local: Some(([198, 19, 0, 1], port).into()),
            opened_at: Timestamp::from_nanos(from * 1_000_000),
            setup_ns: Some(10_000_000),
            received_last_at: at(from + 900),
            closed_at: at(from + 901),
            ..TapExchange::BLANK
        }
    }

    fn wire(port: u16, from: u64) -> WireRequest {
        WireRequest {
            connection: 0,
            client: ([198, 19, 0, 1], port).into(),
            server: ([198, 18, 0, 1], 8080).into(),
            index: 0,
            request_first_at: at(from + 15),
            request_last_at: at(from + 15),
            response_first_at: at(from + 20),
            response_last_at: at(from + 700),
            method: None,
            host: None,
            path: None,
            minor_version: None,
            http_version: 1,
            stream: None,
            referer: None,
            user_agent: None,
            status: Some(200),
            request_bytes: 80,
            response_bytes: 102_600,
            framing: schema::Framing::Exact,
            complete: true,
        }
    }

    fn line(port: u16, from: u64) -> LogLine {
        LogLine { port, status: 200, began_unix_ns: ZERO + (from + 18) * 1_000_000, time_ns: 300_000_000 }
    }

    #[test]
    fn log_time_and_components_add_up_to_tc() {
        // A reused port: each transfer has its own records.
        let taps = [tap(40_000, 5_000), tap(40_000, 100)];
        let joined =
            join(&taps, &[wire(40_000, 100), wire(40_000, 5_000)], &[line(40_000, 5_000), line(40_000, 100)], ZERO);
        assert_eq!((joined.transfers.len(), joined.attempts, joined.disorder_ns), (2, 2, 0));
        let first = &joined.transfers[0];
        assert_eq!(first.began_ns, 100_000_000);
        assert_eq!(first.parts_ns.map(|ns| ns / 1_000_000), [10, 5, 3, 382, 200, 1]);
        for transfer in &joined.transfers {
            assert_eq!(signed(transfer.connection_ns), signed(transfer.log_ns) + transfer.difference_ns());
        }
    }

    #[test]
    fn transfer_missing_at_a_vantage_point_is_counted_and_excluded() {
        let joined =
            join(&[tap(1, 0), tap(2, 0), tap(3, 0)], &[wire(1, 0), wire(3, 0)], &[line(1, 0), line(2, 0)], ZERO);
        assert_eq!((joined.transfers.len(), joined.attempts), (1, 3));
        // A log line of another hour belongs to no transfer.
        assert!(join(&[tap(1, 0)], &[wire(1, 0)], &[line(1, 3_600_000)], ZERO).transfers.is_empty());
        let failed = TapExchange { outcome: TapOutcome::Failed, ..tap(1, 0) };
        let joined = join(&[failed], &[wire(1, 0)], &[line(1, 0)], ZERO);
        assert_eq!((joined.transfers.len(), joined.attempts), (0, 1));
        let cut = TapExchange { outcome: TapOutcome::Cut, ..tap(1, 0) };
        assert_eq!(join(&[cut], &[wire(1, 0)], &[line(1, 0)], ZERO).attempts, 0);
    }

    #[test]
    fn clock_disagreement_is_reported() {
        let mut early = line(1, 0);
        early.began_unix_ns -= 9_000_000;
        let joined = join(&[tap(1, 0)], &[wire(1, 0)], &[early], ZERO);
        assert_eq!(joined.disorder_ns, 6_000_000, "the log begins 6 ms before the request was complete");
        let transfer = &joined.transfers[0];
        assert_eq!(signed(transfer.connection_ns), signed(transfer.log_ns) + transfer.difference_ns());
    }
}
