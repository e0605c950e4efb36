//! The way through a capture file: simulated packets as frames, requests found by `watch`, evidence of each.

use explain::{Cause, Connections, Explanation, Limit, Packet, evidence, explain};
use schema::Direction;
use units::Timestamp;
use watch::{CapturePoint, Watch, WatchSpec};
use wire::link::LinkType;
use wire::tcp::flags;

use crate::sim::{REQUEST_BYTES, Recording, simulate};
use crate::world::{MS, World};

/// How a world differs, and what limits it then.
type Change = (fn(&mut World), Limit);

/// The shift of both ends' windows.
const SCALE: u8 = 7;
/// The client's port.
pub const CLIENT_PORT: u16 = 40_000;
/// LINKTYPE_RAW: IP without a link header.
pub const RAW: u16 = 101;

/// A packet as bytes of IPv4 and TCP; HTTP/1 by the bytes' places on their streams.
pub fn frame(packet: &Packet, recording: &Recording, request_first: u32, size: u64) -> Vec<u8> {
    let up = packet.direction == Direction::Up;
    let is_syn = packet.flags & flags::SYN != 0;
    let mut options = Vec::new();
    if is_syn {
        options.extend([1, 3, 3, SCALE]);
    } else if !packet.sack.is_empty() {
        options.extend([1, 1, 5, 2 + 8 * packet.sack.len() as u8]);
        let edges = packet.sack.iter().flat_map(|(first, end)| [*first, *end]);
        options.extend(edges.flat_map(u32::to_be_bytes));
    }
    let window = packet.window.unwrap_or(0) >> if is_syn { 0 } else { SCALE };
    let window = u16::try_from(window).unwrap_or(u16::MAX);
    let message = if up { request() } else { response_head(size) };
    let message_first = if up { request_first } else { recording.response_first as u32 };
    let offset = packet.sequence.wrapping_sub(message_first) as usize;
    let payload = (offset..offset + packet.length as usize).map(|at| message.get(at).copied().unwrap_or(b'x'));
    let mut tcp = Vec::new();
    let ports: [u16; 2] = if up { [CLIENT_PORT, 80] } else { [80, CLIENT_PORT] };
    ports.iter().for_each(|port| tcp.extend(port.to_be_bytes()));
    tcp.extend(packet.sequence.to_be_bytes());
    tcp.extend(packet.acknowledgement.to_be_bytes());
    tcp.extend([((20 + options.len()) / 4 * 16) as u8, packet.flags]);
    tcp.extend(window.to_be_bytes());
    tcp.extend([0, 0, 0, 0]);
    tcp.extend(options);
    tcp.extend(payload);
    let mut bytes = vec![0x45, 0];
    bytes.extend(u16::try_from(20 + tcp.len()).expect("captures merge at most 18 KB").to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    let hosts = if up { [1, 2] } else { [2, 1] };
    hosts.iter().for_each(|host| bytes.extend([10, 0, 0, *host]));
    bytes.extend(tcp);
    bytes
}

fn request() -> Vec<u8> {
    let start = "GET / HTTP/1.1\r\nHost: server\r\nX: ";
    let filler = "x".repeat(REQUEST_BYTES as usize - start.len() - 4);
    format!("{start}{filler}\r\n\r\n").into_bytes()
}

/// The head of a response whose head and body together are `size` bytes.
fn response_head(size: u64) -> Vec<u8> {
    let head = |length: u64| format!("HTTP/1.1 200 OK\r\nContent-Length: {length:08}\r\n\r\n");
    head(size - head(0).len() as u64).into_bytes()
}

/// The connections of a capture, and the analysis that found its requests.
fn read(packets: &[Packet], recording: &Recording, size: u64, point: CapturePoint) -> (Connections, Watch) {
    let mut connections = Connections::new();
    let mut watch = Watch::new(WatchSpec { capture_point: point, words: true, ..WatchSpec::default() });
    let link = LinkType::from_number(RAW).expect("it is known");
    let mut packets: Vec<&Packet> = packets.iter().collect();
    packets.sort_by_key(|packet| packet.at);
    let request = packets.iter().find(|packet| packet.direction == Direction::Up && packet.length > 0);
    let request_first = request.expect("there is a request").sequence;
    for packet in packets {
        let bytes = frame(packet, recording, request_first, size);
        connections.handle_packet(packet.at, link, &bytes, bytes.len() as u32);
        watch.handle_packet(packet.at, link, &bytes, bytes.len() as u32);
    }
    watch.finish(Timestamp::from_nanos(1_000_000 * MS));
    (connections, watch)
}

/// Explained by captures of these ends.
fn explained(world: &World, [client, server]: [bool; 2]) -> Explanation {
    let recording = simulate(world);
    let at_client = read(&recording.client, &recording, world.size, CapturePoint::AtClient);
    let at_server = read(&recording.server, &recording, world.size, CapturePoint::AtServer);
    let (mut requests, mut watch) = (Vec::new(), if client { at_client.1 } else { at_server.1 });
    watch.take_requests(&mut requests);
    assert_eq!(requests.len(), 1, "{requests:?}");
    let evidence = evidence(&requests[0], client.then_some(&at_client.0), server.then_some(&at_server.0));
    explain(&evidence.expect("the response was seen"))
}

#[test]
fn captures_of_both_ends_name_the_limit() {
    let world = |change: fn(&mut World)| {
        let mut world = World::plain(60, 300_000);
        (world.noise, world.new_connection) = (true, true);
        change(&mut world);
        world
    };
    let worlds: [Change; 6] = [
        (|world| world.initial_window = Some(2), Limit::Of(Cause::CongestionWindow)),
        (|world| world.receive_buffer = 16 << 10, Limit::Of(Cause::ReceiveWindow)),
        (|world| world.processing = 500 * MS, Limit::Of(Cause::ServerProcessing)),
        (|world| world.pause = 2_000 * MS, Limit::Of(Cause::ServerPause)),
        (|world| world.rate = Some(1_000_000), Limit::Of(Cause::BottleneckRate)),
        (|world| world.lose_last = true, Limit::Loss),
    ];
    for (change, limit) in worlds {
        let world = world(change);
        let explanation = explained(&world, [true, true]);
        let dominant = explanation.dominant().map(|dominant| dominant.limit);
        assert_eq!(dominant, Some(limit), "{:?}", explanation.shares());
        let truth = simulate(&world).response_time();
        assert!(explanation.response_time_ns().abs_diff(truth) < 5 * MS, "{truth} {:?}", explanation.shares());
    }
}

#[test]
fn a_capture_begins_with_the_handshake_that_was_for_the_request() {
    let mut world = World::plain(60, 10_000);
    world.new_connection = true;
    let explanation = explained(&world, [true, false]);
    assert!(explanation.time_of(Cause::TcpHandshake).abs_diff(60 * MS) < MS, "{:?}", explanation.shares());
    assert!(explanation.response_time_ns().abs_diff(120 * MS) < 2 * MS, "{}", explanation.response_time_ns());
    world.new_connection = false;
    let explanation = explained(&world, [true, false]);
    assert_eq!(explanation.time_of(Cause::TcpHandshake), 0);
    assert!(explanation.response_time_ns().abs_diff(60 * MS) < 2 * MS, "{}", explanation.response_time_ns());
}

/// The last byte's first transmission is not its arrival.
#[test]
fn a_capture_of_the_server_has_the_recovery_of_a_lost_last_packet() {
    for size in [20_000, 300_000] {
        let mut world = World::plain(60, size);
        (world.new_connection, world.lose_last) = (true, true);
        let explanation = explained(&world, [false, true]);
        let truth = simulate(&world).response_time() - 60 * MS;
        let estimated = explanation.response_time_ns();
        assert!(estimated.abs_diff(truth) < 10 * MS, "{estimated} {truth} {:?}", explanation.shares());
        let lost = explanation.time_of(Cause::TailLoss) + explanation.time_of(Cause::RetransmissionTimeout);
        assert!(lost > 50 * MS, "{:?}", explanation.shares());
    }
}

#[test]
fn a_capture_of_the_server_estimates_the_times_at_the_client() {
    let mut world = World::plain(100, 300_000);
    (world.new_connection, world.receive_buffer) = (true, 16 << 10);
    let explanation = explained(&world, [false, true]);
    let truth = simulate(&world).response_time() - 100 * MS;
    assert!(explanation.response_time_ns().abs_diff(truth) < 10 * MS, "{} {truth}", explanation.response_time_ns());
    assert_eq!(explanation.dominant().map(|dominant| dominant.limit), Some(Limit::Of(Cause::ReceiveWindow)));
}
