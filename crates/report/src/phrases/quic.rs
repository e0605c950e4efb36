//! QUIC connections in one line: as the load counts them, and as the packet capture does.

use schema::WatchQuic;
use schema::document::Quic;

use super::by_frequency;
use crate::figures;

/// QUIC connections in packets, in one line: versions, Retry, version negotiation, migrations.
pub(crate) fn wire_quic_line(quic: &WatchQuic) -> String {
    let versions = by_frequency(&quic.versions).into_iter();
    let mut words: Vec<String> =
        versions.map(|(version, n)| format!("{} connections of version {version}", figures::count(n))).collect();
    if words.is_empty() {
        words.push("no connection opened".into());
    }
    let counts = [
        (quic.retries, "Retry packets"),
        (quic.version_negotiations, "Version Negotiation packets"),
        (quic.migrations, "changes of a client's address or port"),
        (quic.undecrypted_packets, "packets not decrypted"),
    ];
    words.extend(counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", figures::count(n))));
    words.join(", ")
}

/// QUIC: handshakes, Retry, early data, windows, lost packets.
pub fn quic_line(quic: &Quic) -> String {
    let mut words = vec![format!("{} handshakes", figures::count(quic.handshakes))];
    if quic.retries > 0 {
        words.push(format!("{} of them after Retry", figures::count(quic.retries)));
    }
    if quic.early_data_offered > 0 {
        let (accepted, offered) = (quic.early_data_accepted, quic.early_data_offered);
        words.push(format!("early data accepted on {} of {}", figures::count(accepted), figures::count(offered)));
    }
    let [stream, connection] =
        [quic.stream_window_bytes, quic.connection_window_bytes].map(|bytes| units::Bytes(bytes).to_string());
    words.push(format!("windows {stream} a stream and {connection}, {}", quic.congestion_control));
    words.push(format!("{} of its packets lost", figures::count(quic.lost_packets)));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quic_line_has_handshakes_early_data_windows_and_losses() {
        let quic = Quic {
            handshakes: 1200,
            stream_window_bytes: 6 << 20,
            connection_window_bytes: 15 << 20,
            congestion_control: "cubic".into(),
            lost_packets: 3,
            ..Quic::default()
        };
        assert_eq!(quic_line(&quic), "1,200 handshakes, windows 6MiB a stream and 15MiB, cubic, 3 of its packets lost");
        let early = Quic { retries: 2, early_data_offered: 10, early_data_accepted: 9, ..quic };
        assert!(quic_line(&early).contains("2 of them after Retry, early data accepted on 9 of 10"));
    }

    #[test]
    fn captured_connections_have_versions_and_what_is_not_usual() {
        let quic = WatchQuic { versions: [("1".to_owned(), 12)].into(), retries: 2, ..WatchQuic::default() };
        assert_eq!(wire_quic_line(&quic), "12 connections of version 1, 2 Retry packets");
        assert_eq!(wire_quic_line(&WatchQuic::default()), "no connection opened");
    }
}
