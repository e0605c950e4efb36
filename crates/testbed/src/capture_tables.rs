//! Records of the packet capture on the recorder's side: tables, distributions, Little's law from records, and the
//! agreement with the load.
//!
//! The capture thread only reads and analyses; everything that may wait for a disk is here.

use std::net::IpAddr;
use std::sync::Arc;

use path::AddressPlan;
use schema::{WatchProgress, WatchQuic, WatchSecond};
use store::{ConnectionsWriter, QuicConnectionsWriter, RunFolder, WatchSeriesWriter, WireRequestsWriter};
use units::Timestamp;

use crate::agreement::Agreement;
use crate::drive::progress::Progress;
use crate::watching::WireBatch;
use validity::evidence::WireFigures;

/// Receives the capture's records.
pub struct CaptureTables {
    tables: Option<Tables>,
    progress: Arc<Progress>,
    measured_from: Timestamp,
    /// Configured RTT of each client.
    configured_rtts_ns: Vec<u64>,
    agreement: Option<Agreement>,
    figures: WireFigures,
    error: Option<String>,
}

struct Tables {
    connections: ConnectionsWriter,
    /// With HTTP/3.
    quic_connections: Option<QuicConnectionsWriter>,
    requests: WireRequestsWriter,
    series: WatchSeriesWriter,
}

impl CaptureTables {
    /// Tables in `folder`, if there is one. `configured_rtts_ns`: each client's configured RTT.
    pub fn new(
        folder: Option<&RunFolder>,
        progress: Arc<Progress>,
        measured_from: Timestamp,
        configured_rtts_ns: Vec<u64>,
        agreement: Option<Agreement>,
    ) -> Self {
        CaptureTables {
            tables: folder.map(|folder| Tables {
                connections: folder.connections(),
                quic_connections: None,
                requests: folder.wire_requests(),
                series: folder.watch_series(),
            }),
            progress,
            measured_from,
            configured_rtts_ns,
            agreement,
            figures: WireFigures::default(),
            error: None,
        }
    }

    /// Adds the table of QUIC connections in `folder`, and counts them.
    pub fn with_quic(mut self, folder: Option<&RunFolder>) -> Self {
        if let (Some(tables), Some(folder)) = (&mut self.tables, folder) {
            tables.quic_connections = Some(folder.quic_connections());
        }
        self.figures.quic = Some(WatchQuic::default());
        self
    }

    /// The load's side of the agreement.
    pub fn agreement(&mut self) -> Option<&mut Agreement> {
        self.agreement.as_mut()
    }

    /// The figures so far.
    pub fn figures(&self) -> &WireFigures {
        &self.figures
    }

    /// Start of the measured phase.
    pub fn measured_from(&self) -> Timestamp {
        self.measured_from
    }

    /// Live figures of the capture on `device`.
    pub fn snapshot(&self, device: &str) -> WatchProgress {
        let seconds = &self.figures.seconds;
        let sum = |of: fn(&WatchSecond) -> u64| seconds.iter().map(of).sum::<u64>();
        let handshakes = &self.figures.handshake_rtt;
        WatchProgress {
            source: device.to_owned(),
            packets: sum(|second| second.packets),
            capture_drops: sum(|second| second.capture_drops),
            connections: seconds.last().map_or(0, |second| second.connections),
            in_flight: seconds.last().map_or(0, |second| second.in_flight),
            requests: sum(|second| second.requests),
            responses: sum(|second| second.responses),
            handshake_rtt_ns: (!handshakes.is_empty()).then(|| handshakes.quantiles()),
        }
    }

    /// Adds a batch.
    pub fn add_batch(&mut self, mut batch: WireBatch) {
        // If a count or Ctrl-C ends the measured phase, `progress` has its end before any record that ends later
        // arrives.
        let phase = (self.measured_from, self.progress.measured_end());
        for request in &batch.requests {
            self.figures.add_request(request, phase);
            if let (Some(agreement), Some(client)) = (&mut self.agreement, client_index(request.client.ip())) {
                agreement.wire_request(client, request);
            }
        }
        for connection in &mut batch.connections {
            connection.client_index = client_index(connection.client.ip()).filter(|&client| self.is_client(client));
            self.figures.add_connection(connection, phase, &self.configured_rtts_ns);
            if let Some(agreement) = &mut self.agreement {
                agreement.wire_connection(connection);
            }
        }
        for connection in &batch.quic_connections {
            let client = client_index(connection.client.ip()).filter(|&client| self.is_client(client));
            self.figures.add_quic_connection(connection, client, phase, &self.configured_rtts_ns);
            if let Some(agreement) = &mut self.agreement {
                agreement.wire_quic_connection();
            }
        }
        self.figures.add_seconds(&batch.seconds, phase);
        let Some(tables) = &mut self.tables else { return };
        let quic = tables.quic_connections.as_mut().map_or(Ok(()), |table| table.push(&batch.quic_connections));
        let written = quic
            .and_then(|()| tables.connections.push(&batch.connections))
            .and_then(|()| tables.requests.push(&batch.requests))
            .and_then(|()| tables.series.push(&batch.seconds));
        self.note(written);
    }

    /// Closes the tables' parts: a crash can lose only later records.
    pub fn close_parts(&mut self) {
        let Some(tables) = &mut self.tables else { return };
        let quic = tables.quic_connections.as_mut().map_or(Ok(()), QuicConnectionsWriter::close_part);
        let closed = quic
            .and_then(|()| tables.connections.close_part())
            .and_then(|()| tables.requests.close_part())
            .and_then(|()| tables.series.close_part());
        self.note(closed);
    }

    /// Completes the tables; returns the figures, and the first write error.
    pub fn finish(mut self) -> (WireFigures, Option<String>) {
        if let Some(tables) = self.tables.take() {
            let quic = tables.quic_connections.map_or(Ok(()), |table| table.finish().map(drop));
            let finished = quic
                .and_then(|()| tables.connections.finish())
                .and_then(|_| tables.requests.finish())
                .and_then(|_| tables.series.finish())
                .map(drop);
            self.note(finished);
        }
        self.figures.agreed = self.agreement.map(Agreement::finish);
        (self.figures, self.error)
    }

    fn is_client(&self, client: u32) -> bool {
        self.configured_rtts_ns.is_empty() || (client as usize) < self.configured_rtts_ns.len()
    }

    fn note(&mut self, outcome: store::Result<()>) {
        if let Err(error) = outcome {
            self.error.get_or_insert_with(|| error.to_string());
        }
    }
}

/// Index of the client with this address.
pub fn client_index(address: IpAddr) -> Option<u32> {
    ALL_CLIENTS.index(address)
}

/// The addresses of all possible clients.
const ALL_CLIENTS: AddressPlan =
    AddressPlan { first_client: AddressPlan::FIRST_CLIENT, clients: AddressPlan::CLIENTS_MAX };

#[cfg(test)]
mod tests {
    use schema::{ConnectionRecord, ConnectionState, RecordEnd, Sent};

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn connection(client: &str, syn: u64, closed: Option<u64>) -> ConnectionRecord {
        ConnectionRecord {
            connection: 0,
            client: client.parse().unwrap(),
            client_index: None,
            server: "198.18.0.1:80".parse().unwrap(),
            roles_seen: true,
            syn_at: Some(at(syn)),
            syn_ack_at: Some(at(syn)),
            ack_at: Some(at(syn + 49)),
            handshake_rtt_ns: Some(49_000_000),
            server_rtt_ns: None,
            first_at: at(syn),
            last_at: at(closed.unwrap_or(syn)),
            open_until: at(closed.unwrap_or(syn)),
            first_data_at: None,
            last_data_at: None,
            closed_at: closed.map(at),
            state: ConnectionState::SF,
            end: if closed.is_some() { RecordEnd::Closed } else { RecordEnd::CaptureEnd },
            up: Sent { unique_bytes: 5, ..Sent::default() },
            down: Sent { unique_bytes: 5, missing_bytes: 2, ..Sent::default() },
            fragments: 0,
            requests: 0,
            server_name: None,
        }
    }

    /// A phase from 1 s to 2 s, with clients that are 48 ms away.
    fn capture_tables() -> CaptureTables {
        let progress = Arc::new(Progress::default());
        progress.set_measured_end(at(2000));
        CaptureTables::new(None, progress, at(1000), vec![48_000_000; 10], None)
    }

    #[test]
    fn captured_connections_get_their_client_and_are_counted() {
        let mut tables = capture_tables();
        let connections = vec![
            connection("198.19.0.8:5000", 1200, Some(1300)),
            // Open at the end of the capture: counted to the end of the phase.
            connection("198.19.0.9:5000", 500, None),
            // Not a client of this run.
            connection("198.19.0.200:5000", 1200, Some(1300)),
        ];
        tables.add_batch(WireBatch { connections, ..WireBatch::default() });
        let (figures, _) = tables.finish();
        assert_eq!((figures.connections_opened, figures.not_http, figures.missing_bytes), (2, 3, 6));
        assert_eq!(figures.connections_ns, 1_200_000_000);
        assert_eq!(figures.handshake_rtt.len(), 2, "the handshake of the second connection was before the phase");
        assert_eq!(figures.handshake_error.len(), 1);
        assert!(figures.handshake_error.max().abs_diff(1_000_000) < 1000);
        assert_eq!(client_index("198.19.0.1".parse().unwrap()), Some(0));
        assert_eq!(client_index("198.18.0.1".parse().unwrap()), None);
        assert_eq!(client_index("::1".parse().unwrap()), None);
    }
}
