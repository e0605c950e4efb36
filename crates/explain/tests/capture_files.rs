//! What capture files have besides the packets: copies, and clocks of their own.

use explain::{Connections, clock_difference};
use units::Timestamp;
use wire::link::LinkType;
use wire::tcp::flags;

const MS: u64 = 1_000_000;
const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];

/// A TCP packet of IPv4 without payload.
fn frame(up: bool, identification: u16, sequence: u32, bits: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 40];
    bytes.extend(identification.to_be_bytes());
    bytes.extend([0x40, 0, 64, 6, 0, 0]);
    bytes.extend(if up { [CLIENT, SERVER] } else { [SERVER, CLIENT] }.concat());
    let ports: [u16; 2] = if up { [40_000, 80] } else { [80, 40_000] };
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0x50, bits, 1, 0, 0, 0, 0, 0]);
    bytes
}

fn connections(packets: &[(u64, Vec<u8>)]) -> Connections {
    let mut connections = Connections::new();
    for (at, bytes) in packets {
        connections.handle_packet(Timestamp::from_nanos(*at), LinkType::RawIp, bytes, bytes.len() as u32);
    }
    connections
}

#[test]
fn packets_captured_twice_count_once_and_retransmissions_are_no_copies() {
    let twice = [(0, frame(true, 7, 1, flags::ACK)), (MS, frame(true, 7, 1, flags::ACK))];
    assert_eq!(connections(&twice).copies(), 1);
    let again = [(0, frame(true, 7, 1, flags::ACK)), (MS, frame(true, 8, 1, flags::ACK))];
    assert_eq!(connections(&again).copies(), 0, "another identification");
    let late = [(0, frame(true, 7, 1, flags::ACK)), (6 * MS, frame(true, 7, 1, flags::ACK))];
    assert_eq!(connections(&late).copies(), 0, "6 ms later");
    let unnamed = [(0, frame(true, 0, 1, flags::ACK)), (MS, frame(true, 0, 1, flags::ACK))];
    assert_eq!(connections(&unnamed).copies(), 0, "neither identification nor timestamps");
}

/// A handshake at a distance of 20 ms, as captures at both ends have it; the server's clock is ahead by `ahead`.
fn handshake(ahead: u64) -> (Connections, Connections) {
    let syn = frame(true, 1, 1, flags::SYN);
    let syn_ack = frame(false, 0, 1, flags::SYN | flags::ACK);
    let ack = frame(true, 2, 2, flags::ACK);
    let start = 100 * MS;
    let client = [(start, syn.clone()), (start + 20 * MS, syn_ack.clone()), (start + 20 * MS, ack.clone())];
    let server = start + ahead;
    let server = [(server + 10 * MS, syn), (server + 10 * MS, syn_ack), (server + 30 * MS, ack)];
    (connections(&client), connections(&server))
}

#[test]
fn clocks_that_differ_by_more_than_the_distance_are_noticed() {
    let difference = |ahead| {
        let (client, server) = handshake(ahead);
        clock_difference(&client, &server)
    };
    assert_eq!(difference(0), None);
    assert_eq!(difference(500 * MS), Some(500_000_000));
    let (client, server) = handshake(500 * MS);
    assert_eq!(clock_difference(&server, &client), Some(-500_000_000), "seen from the other end");
    // Less than the one-way delay does not show.
    assert_eq!(difference(8 * MS), None);
}
