//! Capture files: the requests that `watch` finds in them, with the packets of their connections.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail, ensure};
use explain::{Connections, Evidence, Explained, Explanation, QuicCapture, QuicConnections};
use schema::{QuicConnectionRecord, QuicPacket, ShareRow, WireRequest};
use sys::clock::realtime_ns;
use sys::signal::Interrupts;
use units::Timestamp;
use units::printable;
use units::time::saturating_nanos;
use watch::{CapturePoint, KeyLog, Watch, WatchSpec};
use wire::link::LinkType;

use super::Label;
use crate::args::{self, At};
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::capture_file;

/// Reads the captures and explains every response in them.
pub fn run(arguments: &args::Explain) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let at_client = match (arguments.at, &arguments.read_server) {
        (At::Client, _) => true,
        (At::Server, None) => false,
        (At::Server, Some(_)) => bail!("--at server with --read-server: --read is then of the client; leave --at out"),
        (At::Between, _) => bail!("--at between: a capture between the ends is not explained; capture at one of them"),
    };
    let point = if at_client { CapturePoint::AtClient } else { CapturePoint::AtServer };
    let Some(read) = &arguments.read else { bail!("--read: a capture file is expected") };
    let mut notes = Vec::new();
    let key_log = arguments.keylog.as_deref().map(crate::verb::watch::read_key_log).transpose()?;
    let key_log = key_log.as_ref();
    let main = Capture::read(read, (point, true), key_log, &interrupts, &mut notes)?;
    let other = match &arguments.read_server {
        Some(path) => Some(Capture::read(path, (CapturePoint::AtServer, false), key_log, &interrupts, &mut notes)?),
        None => None,
    };
    let (client, server) = match at_client {
        true => (Some(&main.connections), other.as_ref().map(|other| &other.connections)),
        false => (None, Some(&main.connections)),
    };
    let difference = client.zip(server).and_then(|(client, server)| explain::clock_difference(client, server));
    if let (Some(difference), Some(file)) = (difference, &arguments.read_server) {
        let by = units::figures::duration(difference.unsigned_abs());
        let (side, shift) = if difference > 0 { ("ahead of", "-") } else { ("behind", "") };
        let seconds = difference.unsigned_abs() as f64 / 1e9;
        note(
            &mut notes,
            format!(
                "{}: its clock is about {by} {side} that of {}, which alone is explained; align it first: \
                 editcap -t {shift}{seconds:.6} IN OUT",
                file.display(),
                read.display()
            ),
        );
    }
    let server = server.filter(|_| difference.is_none());
    let full_at = main.connections.full_at().into_iter();
    let full_at = full_at.chain(other.as_ref().and_then(|other| other.connections.full_at())).min();
    let mut responses: Vec<(WireRequest, Explained)> = Vec::new();
    let mut server_seen = false;
    let configured_rtt_ns = arguments.bench.path.rtt.map(saturating_nanos);
    let captured = other.as_ref().map(|other| &other.quic);
    let (quic_client, quic_server) = if at_client { (Some(&main.quic), captured) } else { (None, Some(&main.quic)) };
    let quic = QuicConnections::new(quic_client, quic_server, |_| None, configured_rtt_ns);
    let evidence_for = |request: &WireRequest| match request.http_version {
        3 => explain::quic_evidence(request, &quic),
        _ => explain::evidence(request, client, server),
    };
    for request in main.requests {
        // Later ones have not all their packets.
        if full_at.is_some_and(|full| request.response_last_at.is_none_or(|last| last >= full)) {
            continue;
        }
        let evidence: Option<Evidence> = evidence_for(&request);
        if let Some(mut evidence) = evidence {
            server_seen |= evidence.server_packets.is_some();
            server_seen |= evidence.quic.as_ref().is_some_and(|quic| quic.is_captured_at_server());
            evidence.capture_lost_packets |= main.drops + other.as_ref().map_or(0, |other| other.drops) > 0;
            evidence.configured_rtt_ns = configured_rtt_ns;
            let explanation: Explanation = explain::explain(&evidence);
            responses.push((request, Explained { distance_ns: None, explanation }));
        }
    }
    let path = read.display();
    ensure!(
        !responses.is_empty(),
        "{path}: no complete response of HTTP/1, or of HTTP/3 that --keylog decrypts, with its packets; HTTP/2 and TLS \
         over TCP are not explained"
    );
    if let (Some(server), false, None) = (&arguments.read_server, server_seen, difference) {
        let server = server.display();
        note(&mut notes, format!("{server}: none of the connections of {path}, which alone is explained"));
    }
    let (requests, explained): (Vec<WireRequest>, Vec<Explained>) = responses.into_iter().unzip();
    let labels: Vec<Label> = (0..).zip(requests.iter().zip(&explained)).map(label).collect();
    let evidence_of = |place: usize| evidence_for(requests.get(place)?);
    let title = format!("What limits {path}");
    let mut explained = super::Explained::new(title, labels, explained, evidence_of);
    explained.notes = notes;
    explained.print(arguments)?;
    Ok(Exit::Success)
}

/// Prints a note, since reading may take long or fail later, and adds it to those of the document and the page.
fn note(notes: &mut Vec<String>, text: String) {
    print_message(format_args!("note: {text}"));
    notes.push(text);
}

/// Method and target of a request, as far as they were captured. `number`: of the response.
fn label((number, (request, explained)): (u64, (&WireRequest, &Explained))) -> Label {
    let word = |bytes: &Option<std::sync::Arc<[u8]>>| {
        bytes.as_ref().map_or(String::from("?"), |bytes| printable(&String::from_utf8_lossy(bytes)).to_string())
    };
    let text = format!("{} {}", word(&request.method), word(&request.path));
    let mut json = serde_json::Map::new();
    json.insert("connection".into(), request.connection.into());
    json.insert("index".into(), request.index.into());
    json.insert("http_version".into(), request.http_version.into());
    json.insert("target".into(), text.clone().into());
    let began_ns = explained.explanation.intervals.first().map_or(0, |part| part.from_ns);
    let row = ShareRow {
        sequence: number,
        connection: Some(request.connection),
        scheduled_at: Timestamp::from_nanos(began_ns),
        ..ShareRow::BLANK
    };
    Label { text, json, row }
}

/// What one capture file holds.
struct Capture {
    connections: Connections,
    /// Decrypted packets of QUIC, if there is a key log.
    quic: QuicCapture,
    requests: Vec<WireRequest>,
    /// Packets that the capture lost.
    drops: u64,
}

impl Capture {
    /// Reads a file that was captured at an end; its requests are taken if `has_requests`. Adds what is missing to
    /// `notes`.
    fn read(
        path: &Path,
        (capture_point, has_requests): (CapturePoint, bool),
        key_log: Option<&Arc<KeyLog>>,
        interrupts: &Interrupts,
        notes: &mut Vec<String>,
    ) -> Result<Capture> {
        // A file that cannot be opened is wrong usage, status 1, so no io::Error is passed on.
        let mut file = File::open(path).map_err(|error| {
            anyhow!("cannot open the capture file {}: {error} (-r is a rate only with a URL)", path.display())
        })?;
        ensure!(!path.is_dir(), "{} is a folder, not a capture", path.display());
        let mut connections = Connections::new();
        // The hash seed must not be guessable by those who send the packets.
        let spec = |key_log: Option<Arc<KeyLog>>| WatchSpec {
            capture_point,
            words: true,
            duplicates: true,
            // Of concurrent streams those of QUIC alone are explained, which has its own analysis.
            later_protocols: key_log.is_some(),
            quic_packets: key_log.is_some(),
            key_log,
            hash_seed: realtime_ns(),
            ..WatchSpec::default()
        };
        let mut watch = has_requests.then(|| Watch::new(spec(None)));
        let mut quic_watch = key_log.map(|log| Watch::new(spec(Some(Arc::clone(log)))));
        let mut quic = Quic::default();
        let (mut requests, mut latest, mut unknown, mut packets) = (Vec::new(), Timestamp::ZERO, None, 0_u64);
        let outcome = capture_file::read(&mut file, interrupts, |packet| {
            let Some(link) = LinkType::from_number(packet.link) else {
                unknown = Some(packet.link);
                return;
            };
            latest = latest.max(packet.at);
            packets += 1;
            connections.handle_packet(packet.at, link, packet.bytes, packet.original_length);
            if let Some(watch) = &mut watch {
                watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
                watch.take_requests(&mut requests);
            }
            if let Some(watch) = &mut quic_watch {
                watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
                quic.take(watch);
            }
        });
        if let Some(failure) = outcome.failure {
            if packets == 0 {
                return Err(failure.context(path.display().to_string()));
            }
            note(notes, format!("{}: {failure:#}", path.display()));
        }
        if outcome.interrupted {
            note(notes, format!("{}: interrupted; only the packets read so far are explained", path.display()));
        }
        if outcome.drops > 0 {
            note(
                notes,
                format!(
                    "{}: packets lost by the capture: {}; responses around them may seem to have losses \
                     or pauses, and what rests on packets is less sure",
                    path.display(),
                    outcome.drops
                ),
            );
        }
        if let Some(number) = unknown {
            note(notes, format!("packets with the unsupported link layer {number} (LINKTYPE) were left out"));
        }
        if connections.full_at().is_some() {
            note(
                notes,
                format!(
                    "{}: more than 10 million TCP packets; only responses before that are explained; split the file: \
                     editcap -c 5000000 IN OUT",
                    path.display()
                ),
            );
        }
        if connections.copies() > 0 {
            note(
                notes,
                format!("{}: {} packets were captured twice and count once", path.display(), connections.copies()),
            );
        }
        if let Some(watch) = &mut watch {
            watch.finish(latest);
            watch.take_requests(&mut requests);
        }
        if let Some(watch) = &mut quic_watch {
            watch.finish(latest);
            quic.take(watch);
            if has_requests {
                requests.append(&mut quic.requests);
            }
            if quic.capture.is_empty() {
                note(notes, format!("{}: no packet of QUIC was decrypted with --keylog", path.display()));
            }
            if quic.capture.is_full() {
                note(
                    notes,
                    format!("{}: more than 2 million packets of QUIC; later ones are left out", path.display()),
                );
            }
        }
        Ok(Capture { connections, quic: quic.capture, requests, drops: outcome.drops })
    }
}

/// What the analysis of QUIC has found so far.
#[derive(Default)]
struct Quic {
    capture: QuicCapture,
    packets: Vec<QuicPacket>,
    connections: Vec<QuicConnectionRecord>,
    requests: Vec<WireRequest>,
}

impl Quic {
    fn take(&mut self, watch: &mut Watch) {
        watch.take_quic_packets(&mut self.packets);
        self.capture.add_packets(&mut self.packets);
        watch.take_quic_connections(&mut self.connections);
        self.capture.add_connections(&mut self.connections);
        let before = self.requests.len();
        watch.take_requests(&mut self.requests);
        let new = self.requests.split_off(before);
        self.requests.extend(new.into_iter().filter(|request| request.http_version == 3));
    }
}
