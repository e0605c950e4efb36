//! `yamabiko explain`: what limits the responses of a capture file.
//!
//! ```text
//!   file --> packets --+--> watch: requests and their times --\
//!                      '--> explain: packets by connection ----+--> evidence --> explanation --> summary, text, JSON
//! ```

mod text;

use std::fs::File;
use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use explain::{Connections, Evidence, Explained, Explanation, Summary};
use schema::WireRequest;
use sys::clock::realtime_ns;
use sys::signal::Interrupts;
use units::Timestamp;
use units::time::saturating_nanos;
use watch::{CapturePoint, Watch, WatchSpec};
use wire::link::LinkType;

use super::bench::print;
use super::capture_file;
use crate::args::{self, At};
use crate::exit::Exit;
use crate::terminal::print_message;

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
    let main = Capture::read(&arguments.read, point, &interrupts)?;
    let other = match &arguments.read_server {
        Some(path) => Some(Capture::read(path, CapturePoint::AtServer, &interrupts)?),
        None => None,
    };
    let (client, server) = match at_client {
        true => (Some(&main.connections), other.as_ref().map(|other| &other.connections)),
        false => (None, Some(&main.connections)),
    };
    let mut responses: Vec<(WireRequest, Explained)> = Vec::new();
    let mut server_seen = false;
    for request in main.requests {
        let evidence: Option<Evidence> = explain::evidence(&request, client, server);
        if let Some(mut evidence) = evidence {
            server_seen |= evidence.server_packets.is_some();
            evidence.configured_rtt_ns = arguments.rtt.map(saturating_nanos);
            let explanation: Explanation = explain::explain(&evidence);
            responses.push((request, Explained { distance_ns: None, explanation }));
        }
    }
    let path = arguments.read.display();
    ensure!(
        !responses.is_empty(),
        "{path}: no complete HTTP/1 response with its packets; encrypted connections and HTTP/2 are not explained"
    );
    if let (Some(server), false) = (&arguments.read_server, server_seen) {
        let server = server.display();
        print_message(format_args!("note: {server}: none of the connections of {path}, which alone is explained"));
    }
    let (requests, explained): (Vec<WireRequest>, Vec<Explained>) = responses.into_iter().unzip();
    let summary = Summary::of(&explained);
    if arguments.json {
        let responses = rows(&requests, &explained);
        let document =
            serde_json::json!({ "schema": "yamabiko.explain/1", "summary": summary, "responses": responses });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&text::render(&summary, &requests, &explained))?;
    }
    Ok(Exit::Success)
}

/// Each response with its target, facts, and shares.
fn rows(requests: &[WireRequest], explained: &[Explained]) -> Vec<serde_json::Value> {
    let row = |(request, explained): (&WireRequest, &Explained)| {
        let explanation = &explained.explanation;
        serde_json::json!({
            "connection": request.connection,
            "index": request.index,
            "target": text::target(request),
            "response_time_ns": explanation.response_time_ns(),
            "shares": explanation.shares(),
            "facts": explanation.facts,
        })
    };
    requests.iter().zip(explained).map(row).collect()
}

/// What one capture file holds.
struct Capture {
    connections: Connections,
    requests: Vec<WireRequest>,
}

impl Capture {
    fn read(path: &Path, capture_point: CapturePoint, interrupts: &Interrupts) -> Result<Capture> {
        // A file that cannot be opened is wrong usage, status 1, so no io::Error is passed on.
        let mut file = File::open(path).map_err(|error| anyhow!("opening {}: {error}", path.display()))?;
        ensure!(!path.is_dir(), "{} is a folder, not a capture", path.display());
        let mut connections = Connections::new();
        // The hash seed must not be guessable by those who send the packets.
        let spec = WatchSpec {
            capture_point,
            words: true,
            duplicates: true,
            hash_seed: realtime_ns(),
            ..WatchSpec::default()
        };
        let mut watch = Watch::new(spec);
        let (mut requests, mut latest, mut unknown) = (Vec::new(), Timestamp::ZERO, None);
        let outcome = capture_file::read(&mut file, interrupts, |packet| {
            let Some(link) = LinkType::from_number(packet.link) else {
                unknown = Some(packet.link);
                return;
            };
            latest = latest.max(packet.at);
            connections.handle_packet(packet.at, link, packet.bytes, packet.original_length);
            watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
            watch.take_requests(&mut requests);
        });
        if let Some(failure) = outcome.failure {
            if watch.live().counts.packets == 0 {
                return Err(failure.context(path.display().to_string()));
            }
            print_message(format_args!("note: {}: {failure:#}", path.display()));
        }
        if outcome.interrupted {
            print_message(format_args!(
                "note: {}: interrupted; only the packets read so far are explained",
                path.display()
            ));
        }
        if outcome.drops > 0 {
            print_message(format_args!(
                "note: {}: packets lost by the capture: {}; responses around them may seem to have losses or pauses",
                path.display(),
                outcome.drops
            ));
        }
        if let Some(number) = unknown {
            print_message(format_args!(
                "note: packets with the unsupported link layer {number} (LINKTYPE) were left out"
            ));
        }
        watch.finish(latest);
        watch.take_requests(&mut requests);
        Ok(Capture { connections, requests })
    }
}
