//! The path's part of a document, from its counters.

use std::collections::BTreeMap;

use path::{ClientPath, Counters};
use schema::document::{self, PathDirection};
use schema::{Direction, DropCause};
use sys::netlink::LinkStats;

use crate::drive::path_io::PathIo;
use crate::handshakes::Handshakes;
use validity::evidence::UnintendedDrops;

/// The path's part. `handshakes`: handshakes of the load, if there was one.
pub fn document(
    profile: String,
    clients: &[ClientPath],
    path: &PathIo,
    handshakes: Option<&Handshakes>,
) -> document::Path {
    let rtts_ns: Vec<u64> = clients.iter().map(ClientPath::rtt_ns).collect();
    let network = path.network();
    let [up, down] = Direction::BOTH.map(|direction| self::direction(network.counters(direction)));
    let mut drops = up.drops.clone();
    for (cause, count) in &down.drops {
        *drops.entry(cause.clone()).or_default() += count;
    }
    let timing_errors = path.timing_errors();
    let measured = handshakes.filter(|handshakes| !handshakes.rtts().is_empty());
    document::Path {
        profile,
        clients: clients.len() as u64,
        configured_rtt_ns: stats::quantiles_of(&rtts_ns),
        measured_rtt_ns: measured.map(|handshakes| handshakes.rtts().quantiles()),
        rtt_error_ns: measured
            .filter(|handshakes| !handshakes.error().is_empty())
            .map(|handshakes| handshakes.error().quantiles()),
        measured_rtt_source: if measured.is_some() { "handshakes, by the load's clock" } else { "" }.into(),
        timing_error_ns: timing_errors.all.quantiles(),
        timing_error_isolated_ns: timing_errors.isolated.quantiles(),
        timing_error_burst_ns: timing_errors.bursts.quantiles(),
        timing_error_own_ns: timing_errors.own.quantiles(),
        late_wakeups_ns: units::time::saturating_nanos(timing_errors.late_wakeups),
        run_queue_wait_ns: path.run_queue_wait().map(units::time::saturating_nanos),
        packet_capture: None,
        packets: up.packets + down.packets,
        bytes: up.bytes + down.bytes,
        drops,
        up,
        down,
    }
}

/// Packets that did not fit into a device, or into the path's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Writes that the kernel refused.
    pub writes: u64,
    /// Packets for which the path had no memory.
    pub overflowed: u64,
}

impl Refused {
    /// Counts of a path that has ended.
    pub fn by(path: &PathIo) -> Self {
        Refused { writes: path.refused_writes(), overflowed: overflowed(path) }
    }
}

/// Packets that the devices dropped between two readings, or that the kernel refused.
pub fn mistaken_drops(
    before: Option<[LinkStats; 2]>,
    after: Option<[LinkStats; 2]>,
    refused: Refused,
    steered: bool,
) -> Option<UnintendedDrops> {
    let (before, after) = (before?, after?);
    // With receive steering, packets are queued for the server's cores, and dropped if these are too busy.
    let not_received = if steered { after[1].rx_dropped.saturating_sub(before[1].rx_dropped) } else { 0 };
    let mut counts = vec![(refused.writes, "refused by the kernel when written".to_owned())];
    for ((before, after), device) in before.iter().zip(&after).zip(["the clients' device", "the server's device"]) {
        for (was, is, what) in [
            (before.tx_dropped, after.tx_dropped, "dropped on the way to the path (its queue was full)"),
            (before.rx_dropped, after.rx_dropped, "dropped by the receiving kernel"),
            (before.tx_errors, after.tx_errors, "failed on the way to the path"),
            (before.rx_errors, after.rx_errors, "malformed for the receiving kernel"),
        ] {
            counts.push((is.saturating_sub(was), format!("{what} at {device}")));
        }
    }
    counts.push((refused.overflowed, "dropped by the path for lack of memory".into()));
    if steered {
        counts.retain(|(_, place)| place != "dropped by the receiving kernel at the server's device");
    }
    counts.retain(|&(count, _)| count > 0);
    Some(UnintendedDrops {
        packets: counts.iter().map(|(count, _)| count).sum(),
        places: counts.iter().map(|(count, place)| format!("{count} {place}")).collect::<Vec<_>>().join(", "),
        not_received,
    })
}

fn direction(counters: &Counters) -> PathDirection {
    PathDirection {
        packets: counters.accepted,
        bytes: counters.accepted_bytes,
        delivered: counters.delivered,
        delivered_bytes: counters.delivered_bytes,
        in_transit: counters.in_transit,
        drops: DropCause::ALL
            .iter()
            .map(|&cause| (cause.name().to_owned(), counters.drops[cause.index()]))
            .filter(|&(_, count)| count > 0)
            .collect::<BTreeMap<_, _>>(),
        duplicated: counters.duplicated,
        corrupted: counters.corrupted,
        reordered: counters.reordered,
    }
}

fn overflowed(path: &PathIo) -> u64 {
    Direction::BOTH.iter().map(|&direction| path.network().counters(direction).overflowed).sum()
}
