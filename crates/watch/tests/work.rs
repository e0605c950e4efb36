//! Hostile traffic costs work in proportion to its packets and bytes. Work is counted, not timed: see
//! `watch::take_work`.

#[path = "support/packets.rs"]
mod support;

use support::*;
use watch::{Watch, WatchSpec, take_work};

/// Steps for traffic of about `size` packets.
fn work(make: fn(&mut Talk, u32), size: u32) -> (u64, u64) {
    let mut talk = Talk::new();
    talk.open();
    make(&mut talk, size);
    let cost: u64 = talk.packets.iter().map(|(_, packet)| 1 + packet.payload.len() as u64).sum();
    let mut watch = Watch::new(WatchSpec::default());
    take_work();
    talk.feed(&mut watch, 65_536);
    finish(watch, millis(talk.at));
    (take_work(), cost)
}

/// Four times the traffic is at most about four times the work, and a packet or byte never costs more than a fixed
/// number of steps: the limit of holes, which each packet may scan twice.
#[track_caller]
fn is_linear(make: fn(&mut Talk, u32)) {
    let ((small, _), (large, cost)) = (work(make, 5_000), work(make, 20_000));
    assert!(large <= 5 * small + 20_000, "{small} steps, then {large}");
    assert!(large <= STEPS_MAX * cost, "{large} steps for {cost} packets and bytes");
}

const STEPS_MAX: u64 = 200;

/// One byte of payload `ahead` of the next.
fn ahead(talk: &mut Talk, ahead: u32, payload: &[u8]) {
    let mut packet = talk.make(SERVER, ACK, payload);
    packet.sequence = packet.sequence.wrapping_add(ahead);
    talk.packets.push((talk.at, packet));
}

fn request(talk: &mut Talk) {
    talk.send_data(CLIENT, b"GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn work_is_linear_for_alternating_bytes() {
    is_linear(|talk, size| {
        request(talk);
        (0..size / 2).for_each(|at| ahead(talk, 2 * at + 1, b"x"));
        (0..size / 2).for_each(|at| ahead(talk, 2 * at, b"x"));
    });
}

#[test]
fn work_is_linear_for_bytes_in_reverse_order() {
    is_linear(|talk, size| {
        request(talk);
        (0..size).rev().for_each(|at| ahead(talk, at, b"H"));
    });
}

#[test]
fn work_is_linear_for_overlapping_segments() {
    is_linear(|talk, size| {
        request(talk);
        (0..size).for_each(|at| ahead(talk, 10 + at, &[b'x'; 100]));
        (0..size).for_each(|_| ahead(talk, 0, &[b'x'; 10]));
    });
}

#[test]
fn work_is_linear_for_holes_acknowledged_one_by_one() {
    is_linear(|talk, size| {
        request(talk);
        for _ in 0..size {
            talk.server.next = talk.server.next.wrapping_add(1);
            talk.send(SERVER, ACK, b"x").send(CLIENT, ACK, b"");
        }
    });
}

#[test]
fn work_is_linear_for_a_head_without_line_end() {
    is_linear(|talk, size| {
        talk.send(CLIENT, ACK, b"GET /");
        (0..size).for_each(|_| {
            talk.send(CLIENT, ACK, b"x");
        });
    });
}

#[test]
fn work_is_linear_for_a_head_of_almost_empty_lines() {
    is_linear(|talk, size| {
        talk.send(CLIENT, ACK, b"GET / HTTP/1.1\r\n");
        (0..size / 2).for_each(|_| {
            talk.send(CLIENT, ACK, b"x").send(CLIENT, ACK, b"\n");
        });
    });
}

#[test]
fn work_is_linear_for_endless_chunk_sizes_and_trailers() {
    for start in ["0", "5;", "0\r\nT: "] {
        let make: fn(&mut Talk, u32) = match start {
            "0" => |talk, size| chunked(talk, b"", b"0", size),
            "5;" => |talk, size| chunked(talk, b"5;", b"x", size),
            _ => |talk, size| chunked(talk, b"0\r\n", b"T", size),
        };
        is_linear(make);
    }
}

fn chunked(talk: &mut Talk, start: &[u8], more: &[u8], size: u32) {
    request(talk);
    talk.send(SERVER, ACK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").send(SERVER, ACK, start);
    (0..size).for_each(|_| {
        talk.send(SERVER, ACK, more);
    });
}

#[test]
fn work_is_linear_for_many_selective_acknowledgements() {
    is_linear(|talk, size| {
        request(talk);
        ahead(talk, 1, b"x");
        for at in 0..size {
            let mut packet = talk.make(CLIENT, ACK, b"");
            packet.options = vec![1, 1, 5, 34];
            packet.options.extend((0..8).flat_map(|edge| (at + 3 * edge).to_be_bytes()));
            talk.packets.push((talk.at, packet));
        }
    });
}

#[test]
fn work_is_linear_for_many_requests_per_segment() {
    is_linear(|talk, size| {
        let requests = b"GET / HTTP/1.1\r\n\r\n".repeat(100);
        for _ in 0..size / 100 {
            talk.send(CLIENT, ACK, &requests);
            talk.send(SERVER, ACK, &b"HTTP/1.1 204 x\r\n\r\n".repeat(100));
        }
    });
}

#[test]
fn work_is_linear_for_a_hello_byte_by_byte() {
    is_linear(|talk, size| {
        talk.send(CLIENT, ACK, &[22, 3, 1, 64, 0, 1, 0, 60, 0]);
        (0..size).for_each(|_| {
            talk.send(CLIENT, ACK, &[3]);
        });
    });
}

/// Work that used to grow with the square: the first line was searched again in all held bytes.
#[test]
fn counted_work_grows_with_traffic() {
    let make: fn(&mut Talk, u32) = |talk, size| {
        talk.send(CLIENT, ACK, b"GET /");
        (0..size).for_each(|_| {
            talk.send(CLIENT, ACK, b"x");
        });
    };
    assert!(work(make, 1000).0 >= 1000, "no work is counted, so the other tests would pass for any input");
}
