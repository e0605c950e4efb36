//! Makes packets of one connection.

/// A TCP segment over IPv4, as raw IP: `way` 0 from the client, 1 from the server. `next` are the sequence numbers.
pub fn segment(way: usize, next: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((40 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    let ends = [([198, 19, 0, 1], 40_000u16), ([198, 18, 0, 1], 80)];
    for end in [way, 1 - way] {
        packet.extend(ends[end].0);
    }
    for end in [way, 1 - way] {
        packet.extend(ends[end].1.to_be_bytes());
    }
    packet.extend(next[way].to_be_bytes());
    packet.extend((if flags & ACK != 0 { next[1 - way] } else { 0 }).to_be_bytes());
    packet.extend([0x50, flags, 3, 232, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const ACK: u8 = 16;
