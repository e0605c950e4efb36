//! The way through a run of load: simulated packets as frames, joined with the load's record of the request.

use explain::{
    ClientLinks, Connections, CpuInterval, Evidence, LinkFacts, Protocol, RunInputs, RunJoin, TcpSample, TcpSamples,
};
use schema::{Direction, RequestRecord};
use units::Timestamp;
use wire::link::LinkType;

use crate::captures::{CLIENT_PORT, RAW, frame};
use crate::cases::Inputs;
use crate::examine;
use crate::sim::{Recording, SAMPLE_INTERVAL};
use crate::world::World;

/// The evidence that a run with this response keeps.
pub fn evidence(world: &World, recording: &Recording) -> Evidence {
    let captured = |packets: &[explain::Packet]| {
        let mut packets: Vec<&explain::Packet> = packets.iter().collect();
        packets.sort_by_key(|packet| packet.at);
        let request = packets.iter().find(|packet| packet.direction == Direction::Up && packet.length > 0);
        let first = request.map_or(0, |packet| packet.sequence);
        let link = LinkType::from_number(RAW).expect("it is known");
        let mut connections = Connections::new();
        for packet in packets {
            let bytes = frame(packet, recording, first, world.size);
            connections.handle_packet(packet.at, link, &bytes, bytes.len() as u32);
        }
        connections
    };
    let (client, server) = (captured(&recording.client), captured(&recording.server));
    let links = [links(world)];
    let samples = TcpSamples::from([((0, CLIENT_PORT), changes(&recording.samples))]);
    let waits: Vec<CpuInterval> = recording.cpu.iter().map(as_read).collect();
    let inputs = RunInputs {
        client: Some(&client),
        server: Some(&server),
        is_sample: false,
        capture_lost_packets: false,
        client_of: &|address| (address == std::net::IpAddr::from([10, 0, 0, 1])).then_some(0),
        links: &links,
        rtts_ns: &[world.rtt],
        protocol: if world.is_http2() { Protocol::Http2 } else { Protocol::Http1 },
        quic: None,
        http2_windows: [world.stream_window.or(world.connection_window).unwrap_or(1 << 30); 2],
        http2_frames: None,
        server_tcp: Some(&samples),
        server_cpu: Some(&waits),
    };
    let request = record(world, recording);
    let mut join = RunJoin::new();
    if request.connected_at.is_none() {
        // The request before opened the connection.
        let syn = recording.client.iter().map(|packet| packet.at).min();
        let opener = RequestRecord {
            started_at: syn,
            connected_at: Some(request.scheduled_at),
            done_at: request.scheduled_at,
            ..request
        };
        join.note(&opener);
    }
    if world.connection_wait > 0 {
        // It was busy until just before.
        let done_at = request.started_at.expect("it started");
        join.note(&RequestRecord { done_at, started_at: Some(request.scheduled_at), ..request });
    }
    join.note(&request);
    join.join(&inputs);
    join.evidence(&request, &inputs)
}

/// Of successive equal samples the first and the last, as a run keeps them.
fn changes(samples: &[TcpSample]) -> Vec<TcpSample> {
    let is_same = |one: &TcpSample, other: &TcpSample| TcpSample { at: other.at, ..*one } == *other;
    let is_kept = |place: &usize| {
        let inner = place.checked_sub(1).zip(samples.get(place + 1));
        inner.is_none_or(|(before, next)| {
            !is_same(&samples[before], &samples[*place]) || !is_same(&samples[*place], next)
        })
    };
    (0..samples.len()).filter(is_kept).map(|place| samples[place]).collect()
}

/// A wait as readings every [`SAMPLE_INTERVAL`] show it: it ends at the reading after its end.
fn as_read(wait: &CpuInterval) -> CpuInterval {
    let to = wait.to.as_nanos().next_multiple_of(SAMPLE_INTERVAL);
    let from = to - (wait.to.as_nanos() - wait.from.as_nanos());
    CpuInterval { from: Timestamp::from_nanos(from), to: Timestamp::from_nanos(to), ..*wait }
}

fn record(world: &World, recording: &Recording) -> RequestRecord {
    let load = &recording.load;
    RequestRecord {
        connection: Some(7),
        stream: world.is_http2().then_some(1),
        scheduled_at: load.scheduled_at,
        started_at: load.started_at,
        connected_at: load.connected_at,
        secured_at: load.secured_at,
        sent_at: load.sent_at,
        first_byte_at: load.first_byte_at,
        done_at: load.done_at,
        bytes_received: world.size,
        attempts: 1,
        ..RequestRecord::BLANK
    }
}

fn links(world: &World) -> ClientLinks {
    let up = LinkFacts { delay_ns: world.rtt / 2, ..LinkFacts::default() };
    let down = LinkFacts {
        bit_per_s: world.rate,
        shared_bit_per_s: (world.shared_queue > 0).then_some(1_000_000_000_000),
        reorders: world.reordering > 0.0,
        ..up
    };
    ClientLinks { up, down }
}

#[test]
fn a_run_of_load_names_the_limit_with_what_it_keeps() {
    let marks = examine(Inputs::Run, true);
    crate::assert_row_on_page(Inputs::Run, &marks);
    assert!(marks.right_share() >= 0.95, "{marks:?}");
    assert!(marks.confident_error_share() <= 0.02, "{marks:?}");
    assert!((marks.unknown_time as f64) < 0.05 * marks.time as f64, "{marks:?}");
    let quiet = examine(Inputs::Run, false);
    assert!(quiet.right_share() >= 0.95, "{quiet:?}");
    assert!(quiet.confident_error_share() <= 0.02, "{quiet:?}");
}

#[test]
fn the_window_scale_of_a_new_connection_is_read_from_its_handshake() {
    let world = World { new_connection: true, receive_buffer: 16 << 10, ..World::plain(60, 300_000) };
    let explanation = explain::explain(&evidence(&world, &crate::sim::simulate(&world)));
    let dominant = explanation.dominant().map(|dominant| dominant.limit);
    assert_eq!(dominant, Some(explain::Limit::Of(explain::Cause::ReceiveWindow)), "{:?}", explanation.shares());
}
