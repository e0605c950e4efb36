//! Headers of one frame: link layer, IP, TCP, options, as far as they are captured. The first byte selects the link
//! layer, the second how much longer the frame was on the wire.

use wire::ip::{Packet, TcpHeader};
use wire::link::{LinkType, Payload};
use wire::tcp::Options;

/// Offsets are inside the lengths that the headers state, and these inside the frame on the wire. A shorter capture of
/// the same frame gives the same headers or none.
pub fn run(bytes: &[u8]) {
    let [link, more, frame @ ..] = bytes else { return };
    let links =
        [LinkType::RawIp, LinkType::Ethernet, LinkType::LinuxCooked, LinkType::LinuxCookedV2, LinkType::Loopback];
    let link = links[usize::from(*link) % links.len()];
    let on_wire = frame.len() + usize::from(*more) * 16;
    let whole = read(link, frame, on_wire);
    for length in 0..frame.len().min(200) {
        let cut = read(link, &frame[..length], on_wire);
        assert!(cut.is_none() || cut == whole, "captured {length}: {cut:?}, whole {whole:?}");
    }
    let _ = wire::ipv4::Packet::new_checked(frame).map(|packet| (packet.payload().len(), packet.is_header_intact()));
    let _ = wire::ipv6::Packet::new_checked(frame).map(|packet| (packet.payload().len(), packet.transport()));
    let _ = wire::udp::Datagram::new_checked(frame).map(|datagram| datagram.payload().len());
    let _ = wire::tcp::Segment::new_checked(frame).map(|segment| segment.payload().len());
}

fn read(link: LinkType, frame: &[u8], on_wire: usize) -> Option<(Packet, TcpHeader)> {
    let Payload::Ip(start) = link.payload(frame).ok()? else { return None };
    assert!(start <= frame.len());
    let packet = Packet::parse(&frame[start..], on_wire - start).ok()?;
    assert!(packet.transport_at <= packet.total_len && packet.total_len <= on_wire - start);
    let bytes = frame.get(start + packet.transport_at..)?;
    let header = TcpHeader::parse(bytes, packet.total_len - packet.transport_at).ok()?;
    assert!(packet.transport_at + header.header_len <= packet.total_len);
    let options = Options::parse(bytes.get(20..header.header_len.min(bytes.len())).unwrap_or(&[]));
    assert!(options.sack().len() <= 4 && options.window_scale.unwrap_or(0) <= 14);
    Some((packet, header))
}
