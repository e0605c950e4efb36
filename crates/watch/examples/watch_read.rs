//! Prints the analysis of a capture file: one line per connection, one per request.
//!
//! `cargo run -p watch --example watch_read FILE`: for comparison with other programs by hand.

use std::sync::Arc;

use units::Timestamp;
use watch::{Watch, WatchSpec};
use wire::capture;
use wire::link::LinkType;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("give a pcap or pcapng file")?;
    let bytes = std::fs::read(&file)?;
    let mut watch = Watch::new(WatchSpec::default());
    let (mut last, mut failure) = (Timestamp::ZERO, None);
    for packet in capture::packets(&bytes) {
        match packet {
            Ok(packet) => {
                last = packet.at;
                let link = LinkType::from_number(packet.link).ok_or("the link layer is not supported")?;
                watch.handle_packet(packet.at, link, packet.bytes, packet.original_length);
            }
            Err(error) => failure = Some(error),
        }
    }
    watch.finish(last);
    let (mut connections, mut requests) = (Vec::new(), Vec::new());
    watch.take_connections(&mut connections);
    watch.take_requests(&mut requests);
    connections.sort_by_key(|record| record.connection);
    for record in &connections {
        println!(
            "{} {} > {} {} packets {}/{} bytes {}/{} unique {}/{} again {}/{} apart {}/{} zero {}/{} missing {}/{} \
             {:.6} s {:.6} s rtt {:?} us requests {} {}",
            record.connection,
            record.client,
            record.server,
            record.state.as_str(),
            record.up.packets,
            record.down.packets,
            record.up.payload_bytes,
            record.down.payload_bytes,
            record.up.unique_bytes,
            record.down.unique_bytes,
            record.up.retransmitted_packets,
            record.down.retransmitted_packets,
            record.up.out_of_order_packets,
            record.down.out_of_order_packets,
            record.up.zero_windows,
            record.down.zero_windows,
            record.up.missing_bytes,
            record.down.missing_bytes,
            record.first_to_last_ns() as f64 / 1e9,
            record.duration_ns() as f64 / 1e9,
            record.handshake_rtt_ns.map(|rtt| rtt / 1000),
            record.requests,
            text(&record.server_name),
        );
    }
    for request in &requests {
        println!(
            "{}.{} {} {} {} status {:?} bytes {}/{} {:?} us {} {}",
            request.connection,
            request.index,
            text(&request.method),
            text(&request.host),
            text(&request.path),
            request.status,
            request.request_bytes,
            request.response_bytes,
            request.service_time_ns().map(|time| time / 1000),
            request.framing.as_str(),
            if request.complete { "complete" } else { "incomplete" },
        );
    }
    println!("{:?}", watch.live().counts);
    failure.map_or(Ok(()), |error| Err(error.into()))
}

fn text(word: &Option<Arc<[u8]>>) -> String {
    word.as_deref().map_or("-".into(), |word| word.escape_ascii().to_string())
}
