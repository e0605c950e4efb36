//! The kept datagrams of a run of HTTP/3, decrypted with the run's key log.

use std::path::Path;
use std::sync::Arc;

use explain::{ClientLinks, QuicCapture, QuicConnections};
use units::Timestamp;
use watch::{CapturePoint, KeyLog, Watch, WatchSpec};

use super::{client_of, for_each_packet};
use crate::error::TestbedError;
use crate::packets::{FILES, KEY_LOG_FILE, KeptFacts};

/// The connections of both ends; `None` without a key log, with a note. `links`: of each client.
pub(super) fn read(
    dir: &Path,
    facts: &KeptFacts,
    links: &[ClientLinks],
    notes: &mut Vec<String>,
) -> Result<Option<QuicConnections>, TestbedError> {
    let path = dir.join(KEY_LOG_FILE);
    let Ok(text) = std::fs::read(&path) else {
        let path = path.display();
        notes.push(format!("{path} cannot be read, so the packets of HTTP/3 cannot be decrypted; only the load generator's times are known"));
        return Ok(None);
    };
    let log =
        KeyLog::parse(&text).map_err(|error| TestbedError::Environment(format!("{}: {error}", path.display())))?;
    if log.is_empty() {
        notes.push(String::from(
            "the run kept no secrets of HTTP/3, so only the load generator's times are known; they are not reported by a \
             load in several processes or through a NAT that rebinds",
        ));
        return Ok(None);
    }
    if facts.secrets_lost > 0 {
        notes.push(String::from("the key log was full; connections opened later have the load's times alone"));
    }
    let log = Arc::new(log);
    let [client, server] = [(0, CapturePoint::AtClient), (1, CapturePoint::AtServer)]
        .map(|(end, point)| capture(&dir.join(FILES[end]), facts, end, point, &log));
    let (client, server) = (client?, server?);
    if client.is_full() || server.is_full() {
        notes.push(String::from("more than 2 million packets of HTTP/3 were kept; later responses are less sure"));
    }
    let links_of = |address: std::net::SocketAddr| links.get(client_of(address.ip())? as usize).copied();
    Ok(Some(QuicConnections::new(Some(&client), Some(&server), links_of, None)))
}

/// The decrypted packets of one end.
fn capture(
    path: &Path,
    facts: &KeptFacts,
    end: usize,
    capture_point: CapturePoint,
    log: &Arc<KeyLog>,
) -> Result<QuicCapture, TestbedError> {
    let key_log = Some(Arc::clone(log));
    let mut watch = Watch::new(WatchSpec { capture_point, key_log, quic_packets: true, ..WatchSpec::default() });
    let mut capture = QuicCapture::new();
    let (mut packets, mut connections, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let mut latest = Timestamp::ZERO;
    let mut take = |watch: &mut Watch| {
        watch.take_quic_packets(&mut packets);
        capture.add_packets(&mut packets);
        watch.take_quic_connections(&mut connections);
        capture.add_connections(&mut connections);
        watch.take_requests(&mut requests);
        requests.clear();
    };
    for_each_packet(path, facts.zero_unix_ns, facts.packets[end], |at, link, bytes, original_length| {
        watch.handle_packet(at, link, bytes, original_length);
        latest = latest.max(at);
        take(&mut watch);
    })?;
    watch.finish(latest);
    take(&mut watch);
    Ok(capture)
}
