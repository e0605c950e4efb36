//! TCP handshakes in a capture by tcpdump: an independent measurement of every client's RTT.
//!
//! At the server's end a client's RTT is the time from the outgoing SYN-ACK to the ACK that acknowledges it.

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

/// One handshake.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    /// Address of the client.
    pub client: Ipv4Addr,
    /// Time from the SYN-ACK to the ACK.
    pub rtt_ns: u64,
}

/// Every complete handshake of a capture with a client in 198.19.0.0/16, in no order.
pub fn handshakes(file: &Path) -> Vec<Handshake> {
    let bytes = fs::read(file).unwrap();
    let nanoseconds_a_unit = match u32_at(&bytes, 0) {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        magic => panic!("{}: not a pcap of this machine's byte order: {magic:x}", file.display()),
    };
    assert_eq!(u32_at(&bytes, 20), LINKTYPE_RAW, "a TUN device has no link header");

    // SYN-ACKs by the client's address and port. With an RTT above one second both ends retransmit without packet loss,
    // so the first SYN-ACK belongs to the first ACK.
    let mut waiting: HashMap<(u32, u16), u64> = HashMap::new();
    let mut found = Vec::new();
    let mut at = PCAP_HEADER;
    while at + RECORD_HEADER <= bytes.len() {
        let (seconds, fraction) = (u32_at(&bytes, at), u32_at(&bytes, at + 4));
        let captured_length = u32_at(&bytes, at + 8) as usize;
        at += RECORD_HEADER;
        let Some(packet) = bytes.get(at..at + captured_length) else { break };
        at += captured_length;
        let at_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * nanoseconds_a_unit;
        let Some(segment) = Segment::read(packet) else { continue };
        match segment.flags & (SYN | ACK | RST) {
            flags if flags == SYN | ACK => {
                waiting.entry((segment.destination, segment.destination_port)).or_insert(at_ns);
            }
            flags if flags & RST != 0 => {
                waiting.remove(&(segment.source, segment.source_port));
            }
            ACK => {
                if let Some(sent_ns) = waiting.remove(&(segment.source, segment.source_port)) {
                    found.push(Handshake { client: segment.source.into(), rtt_ns: at_ns - sent_ns });
                }
            }
            _ => {}
        }
    }
    found.retain(|handshake| handshake.client.octets()[..2] == [198, 19]);
    found
}

/// Fields of a TCP segment in an IPv4 packet.
struct Segment {
    source: u32,
    destination: u32,
    source_port: u16,
    destination_port: u16,
    flags: u8,
}

impl Segment {
    fn read(packet: &[u8]) -> Option<Segment> {
        let (&first, &protocol) = (packet.first()?, packet.get(9)?);
        if first >> 4 != 4 || protocol != 6 {
            return None;
        }
        let tcp = packet.get(usize::from(first & 15) * 4..)?;
        let port = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
        let address = |at: usize| Some(u32::from_be_bytes(packet.get(at..at + 4)?.try_into().ok()?));
        Some(Segment {
            source: address(12)?,
            destination: address(16)?,
            source_port: port(0)?,
            destination_port: port(2)?,
            flags: *tcp.get(13)?,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

const PCAP_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const LINKTYPE_RAW: u32 = 101;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
