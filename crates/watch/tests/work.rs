//! Hostile traffic costs work in proportion to its packets and bytes. Work is counted, not timed: see `watch::take_work`.

#[path = "support/packets.rs"]
mod support;

use support::*;
use watch::{Watch, WatchSpec, take_work};

/// Steps for traffic of a size: `size` packets or so.
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

/// Four times the traffic is at most about four times the work, and a packet or byte never costs more than so many
/// steps: the bound on holes, which each packet may have to look through twice.
#[track_caller]
fn is_linear(make: fn(&mut Talk, u32)) {
    let ((small, _), (large, cost)) = (work(make, 5_000), work(make, 20_000));
    assert!(large <= 5 * small + 20_000, "{small} steps, then {large}");
    assert!(large <= STEPS_MAX * cost, "{large} steps for {cost} packets and bytes");
}

const STEPS_MAX: u64 = 200;

/// One byte of payload `ahead` of what is next.
fn ahead(talk: &mut Talk, ahead: u32, payload: &[u8]) {
    let mut packet = talk.make(SERVER, ACK, payload);
    packet.sequence = packet.sequence.wrapping_add(ahead);
    talk.packets.push((talk.at, packet));
}

fn asked(talk: &mut Talk) {
    talk.say(CLIENT, b"GET / HTTP/1.1\r\n\r\n");
}

#[test]
fn every_second_byte_and_then_the_others() {
    is_linear(|talk, size| {
        asked(talk);
        (0..size / 2).for_each(|at| ahead(talk, 2 * at + 1, b"x"));
        (0..size / 2).for_each(|at| ahead(talk, 2 * at, b"x"));
    });
}

#[test]
fn bytes_from_the_last_to_the_first() {
    is_linear(|talk, size| {
        asked(talk);
        (0..size).rev().for_each(|at| ahead(talk, at, b"H"));
    });
}

#[test]
fn segments_that_overlap_by_all_but_a_byte() {
    is_linear(|talk, size| {
        asked(talk);
        (0..size).for_each(|at| ahead(talk, 10 + at, &[b'x'; 100]));
        (0..size).for_each(|_| ahead(talk, 0, &[b'x'; 10]));
    });
}

#[test]
fn holes_acknowledged_one_by_one() {
    is_linear(|talk, size| {
        asked(talk);
        for _ in 0..size {
            talk.server.next = talk.server.next.wrapping_add(1);
            talk.send(SERVER, ACK, b"x").send(CLIENT, ACK, b"");
        }
    });
}

#[test]
fn a_head_byte_by_byte_without_a_line() {
    is_linear(|talk, size| {
        talk.send(CLIENT, ACK, b"GET /");
        (0..size).for_each(|_| {
            talk.send(CLIENT, ACK, b"x");
        });
    });
}

#[test]
fn a_head_byte_by_byte_of_empty_lines_almost() {
    is_linear(|talk, size| {
        talk.send(CLIENT, ACK, b"GET / HTTP/1.1\r\n");
        (0..size / 2).for_each(|_| {
            talk.send(CLIENT, ACK, b"x").send(CLIENT, ACK, b"\n");
        });
    });
}

#[test]
fn a_chunk_size_and_trailers_that_do_not_end() {
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
    asked(talk);
    talk.send(SERVER, ACK, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").send(SERVER, ACK, start);
    (0..size).for_each(|_| {
        talk.send(SERVER, ACK, more);
    });
}

#[test]
fn a_flood_of_selective_acknowledgements() {
    is_linear(|talk, size| {
        asked(talk);
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
fn requests_by_the_thousand_in_each_segment() {
    is_linear(|talk, size| {
        let requests = b"GET / HTTP/1.1\r\n\r\n".repeat(100);
        for _ in 0..size / 100 {
            talk.send(CLIENT, ACK, &requests);
            talk.send(SERVER, ACK, &b"HTTP/1.1 204 x\r\n\r\n".repeat(100));
        }
    });
}

#[test]
fn a_hello_byte_by_byte() {
    is_linear(|talk, size| {
        talk.send(CLIENT, ACK, &[22, 3, 1, 64, 0, 1, 0, 60, 0]);
        (0..size).for_each(|_| {
            talk.send(CLIENT, ACK, &[3]);
        });
    });
}

/// What used to grow with the square: the first line was looked for again in all that was held.
#[test]
fn what_is_counted_does_grow_with_traffic() {
    let make: fn(&mut Talk, u32) = |talk, size| {
        talk.send(CLIENT, ACK, b"GET /");
        (0..size).for_each(|_| {
            talk.send(CLIENT, ACK, b"x");
        });
    };
    assert!(work(make, 1000).0 >= 1000, "nothing is counted: the other tests would hold of anything");
}
