//! The wire's part of a run: what passed the server's end while a load or a program ran.

use schema::WatchPart;
use schema::document::Level;

use super::load::distributions;
use super::page::{Ink, Page};
use crate::figures::{bytes, count, level, rate, share};

pub(super) fn print(page: &mut Page, part: &WatchPart) {
    page.blank();
    page.entry(
        "wire",
        &format!(
            "{} packets ({}) at the server's end, {} of {} with payload sent again ({})",
            count(part.packets),
            bytes(part.bytes),
            count(part.retransmitted),
            count(part.data_packets),
            share(part.retransmit_share)
        ),
    );
    page.entry(
        "arrivals",
        &format!("{} requests, {} connections", rate(part.request_rate_per_s), rate(part.connection_rate_per_s)),
    );
    let connections = &part.connections;
    let rows: [(&str, Level); 3] = [
        ("connections in process", Level { mean: connections.mean, p50: connections.p50, max: connections.max }),
        ("sessions", part.sessions),
        ("requests in flight", part.in_flight),
    ];
    let rows: Vec<Vec<String>> =
        rows.iter().map(|(name, of)| vec![(*name).to_owned(), level(of.mean), count(of.p50), count(of.max)]).collect();
    page.table(&["", "mean", "median", "max"], &rows);
    distributions(page, "", &[("handshake RTT", &part.handshake_rtt_ns), ("server's time", &part.service_time_ns)]);
    if part.by_direction > 0 {
        let text = format!(
            "{} requests told apart by change of direction, since their heads or chunks lie beyond the snap length: in \
             flight counts them until the other side speaks again",
            count(part.by_direction)
        );
        page.entry_in("", &text, Ink::Doubtful);
    }
    if part.incomplete > 0 {
        page.entry("", &format!("{} requests not answered whole", count(part.incomplete)));
    }
    if part.capture_drops > 0 || part.missing_bytes > 0 {
        let text = format!(
            "the capture lost {} packets; {} acknowledged but never seen",
            count(part.capture_drops),
            bytes(part.missing_bytes)
        );
        page.entry_in("", &text, Ink::Doubtful);
    }
}
