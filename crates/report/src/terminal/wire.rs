//! The packets at the server's end of the path while a load or a program ran.

use schema::WatchPart;
use schema::document::Level;

use super::load::distributions;
use super::page::{Ink, Page};
use crate::figures::{bytes, count, level, rate, share};
use crate::phrases::wire_quic_line;

/// Prints the packets.
pub(super) fn print(page: &mut Page, part: &WatchPart) {
    page.blank();
    let packets = format!("{} packets ({}) at the server's end", count(part.packets), bytes(part.bytes));
    if let Some(quic) = &part.quic {
        // What QUIC sends again has another number, and is encrypted.
        page.entry("wire", &packets);
        print_connections(page, part);
        page.entry("QUIC", &wire_quic_line(quic));
    } else {
        let retransmitted = match part.retransmitted {
            0 => format!("none of {}", count(part.data_packets)),
            packets => format!("{} of {} ({})", count(packets), count(part.data_packets), share(part.retransmit_share)),
        };
        page.entry("wire", &format!("{packets}, {retransmitted} data packets retransmitted"));
        print_connections(page, part);
    }
    if let Some(why) = &part.unread {
        page.entry("", &format!("requests are not compared with those of the load: {why}"));
    }
    if let Some(connections) = part.undecrypted_connections {
        let text = format!("{} connections were not decrypted, or not to their end", count(connections));
        page.entry_in("", &text, Ink::Doubtful);
    }
    if part.capture_drops > 0 || part.missing_bytes > 0 {
        let text = format!(
            "the capture lost {} packets; {} acknowledged but never captured",
            count(part.capture_drops),
            bytes(part.missing_bytes)
        );
        page.entry_in("", &text, Ink::Doubtful);
    }
}

/// Connections, and requests if any were read.
fn print_connections(page: &mut Page, part: &WatchPart) {
    let requests = match part.requests {
        0 => "no requests read".to_owned(),
        _ => format!("{} requests", rate(part.request_rate_per_s)),
    };
    page.entry("arrivals", &format!("{requests}, {} connections", rate(part.connection_rate_per_s)));
    let connections = &part.connections;
    let mut rows: Vec<(&str, Level)> =
        vec![("concurrent connections", Level { mean: connections.mean, p50: connections.p50, max: connections.max })];
    if part.requests > 0 {
        rows.extend([("sessions", part.sessions), ("requests in flight", part.in_flight)]);
    }
    let rows: Vec<Vec<String>> =
        rows.iter().map(|(name, of)| vec![(*name).to_owned(), level(of.mean), count(of.p50), count(of.max)]).collect();
    page.table(&["", "mean", "median", "max"], &rows);
    distributions(
        page,
        "",
        &[("handshake RTT", &part.handshake_rtt_ns), ("server processing time", &part.service_time_ns)],
    );
    if part.by_direction > 0 {
        let text = format!(
            "{} requests recognized by a change of direction only, since their headers or chunks lie beyond the snaplen: \
             they count as in flight until the other end sends",
            count(part.by_direction)
        );
        page.entry_in("", &text, Ink::Doubtful);
    }
    if part.incomplete > 0 {
        page.entry("", &format!("{} requests without a complete response", count(part.incomplete)));
    }
}
