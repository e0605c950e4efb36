//! Cost of the analysis: packets per second over a capture generated in memory, and bytes per connection.
//!
//! `cargo run --release -p watch --example watch_cost [CONNECTIONS [ROUNDS]]`: this number of connections with five
//! keep-alive requests each, interleaved, decoded from pcap bytes and analysed on one core. Headers and timestamps as
//! sent by Linux, frames truncated to 128 bytes.

#![allow(clippy::disallowed_methods, reason = "a measurement of cost reads the clock; the library does not")]

use std::time::Instant;

use units::Timestamp;
use watch::{Watch, WatchSpec};
use wire::capture::{self, write};
use wire::link::LinkType;

const SNAPLEN: usize = 128;

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let connections = arguments.first().copied().unwrap_or(20_000) as u32;
    let rounds = arguments.get(1).copied().unwrap_or(5);
    let (file, packets) = synthetic(connections);
    println!("{connections} connections, {packets} packets, {} MB of pcap", file.len() >> 20);
    println!("{} bytes of slab per connection, and up to {} for HTTP", Watch::FLOW_BYTES, Watch::HTTP_BYTES);
    for _ in 0..rounds {
        let began = Instant::now();
        let mut decoded = 0u64;
        for packet in capture::packets(&file) {
            decoded += packet.expect("the file was just written").bytes.len() as u64;
        }
        let decoding = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let mut watch = Watch::new(WatchSpec::default());
        let (mut records, mut requests) = (Vec::new(), Vec::new());
        let (mut connections_read, mut requests_read, mut last) = (0, 0, Timestamp::ZERO);
        for packet in capture::packets(&file) {
            let packet = packet.expect("the file was just written");
            last = packet.at;
            watch.handle_packet(packet.at, LinkType::Ethernet, packet.bytes, packet.original_length);
            if records.len() + requests.len() > 0 || watch.live().counts.packets.is_multiple_of(4096) {
                watch.take_connections(&mut records);
                watch.take_requests(&mut requests);
                (connections_read, requests_read) = (connections_read + records.len(), requests_read + requests.len());
                records.clear();
                requests.clear();
            }
        }
        watch.finish(last);
        watch.take_connections(&mut records);
        watch.take_requests(&mut requests);
        (connections_read, requests_read) = (connections_read + records.len(), requests_read + requests.len());
        let elapsed_s = began.elapsed().as_secs_f64();
        println!(
            "{:.2} M packets/s ({:.0} ns each, {:.0} of it decoding {decoded} bytes), {connections_read} connections, {requests_read} requests",
            packets as f64 / elapsed_s / 1e6,
            elapsed_s / packets as f64 * 1e9,
            decoding / packets as f64 * 1e9,
        );
    }
}

/// A pcap file: all connections open, then exchange requests and responses in turn, then close.
fn synthetic(connections: u32) -> (Vec<u8>, u64) {
    let mut builder = FileBuilder { file: Vec::new(), packets: 0, at: 1_000_000_000 };
    write::pcap_header(&mut builder.file, LinkType::Ethernet, SNAPLEN as u32);
    let request = b"GET /10k.bin HTTP/1.1\r\nHost: server\r\n\r\n";
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10240\r\n\r\n";
    let mut first = head.to_vec();
    first.resize(1448, b'x');
    let rest = vec![b'x'; 10_240 + head.len() - 1448];
    let (request_bytes, response_bytes) = (request.len() as u32, 10_240 + head.len() as u32);
    for group in (0..connections).step_by(1000) {
        let group = group..connections.min(group + 1000);
        let mut all = |act: &dyn Fn(&mut FileBuilder, u32)| group.clone().for_each(|client| act(&mut builder, client));
        all(&|builder, client| builder.send(client, true, 0, 0, 0x02, b""));
        all(&|builder, client| builder.send(client, false, 0, 1, 0x12, b""));
        all(&|builder, client| builder.send(client, true, 1, 1, 0x10, b""));
        for round in 0..5 {
            let (up, down) = (1 + round * request_bytes, 1 + round * response_bytes);
            all(&|builder, client| builder.send(client, true, up, down, 0x18, request));
            all(&|builder, client| builder.send(client, false, down, up + request_bytes, 0x10, &first));
            all(&|builder, client| builder.send(client, false, down + 1448, up + request_bytes, 0x18, &rest));
            all(&|builder, client| builder.send(client, true, up + request_bytes, down + response_bytes, 0x10, b""));
        }
        let (up, down) = (1 + 5 * request_bytes, 1 + 5 * response_bytes);
        all(&|builder, client| builder.send(client, true, up, down, 0x11, b""));
        all(&|builder, client| builder.send(client, false, down, up + 1, 0x11, b""));
        all(&|builder, client| builder.send(client, true, up + 1, down + 1, 0x10, b""));
    }
    (builder.file, builder.packets)
}

struct FileBuilder {
    file: Vec<u8>,
    packets: u64,
    at: u64,
}

impl FileBuilder {
    fn send(&mut self, client: u32, is_up: bool, sequence: u32, acknowledgement: u32, flags: u8, payload: &[u8]) {
        self.at += 2_000;
        self.packets += 1;
        let ends = [(0xC613_0000 + client / 20_000, 10_000 + (client % 20_000) as u16), (0xC612_0001, 80u16)];
        let [source, destination] = if is_up { ends } else { [ends[1], ends[0]] };
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((52 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend(source.0.to_be_bytes());
        frame.extend(destination.0.to_be_bytes());
        frame.extend(source.1.to_be_bytes());
        frame.extend(destination.1.to_be_bytes());
        frame.extend(sequence.to_be_bytes());
        frame.extend(acknowledgement.to_be_bytes());
        frame.extend([0x80, flags, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
        frame.extend(((self.at / 1_000_000) as u32).to_be_bytes());
        frame.extend(((self.at / 1_000_000) as u32).to_be_bytes());
        frame.extend_from_slice(payload);
        let original = frame.len() as u32;
        frame.truncate(SNAPLEN);
        write::pcap_packet(&mut self.file, Timestamp::from_nanos(self.at), &frame, original);
    }
}
