//! Tunnels: one frame with any headers around its innermost packet. The first byte selects the link layer, the second
//! how much longer the frame was on the wire.

use wire::ip::TcpHeader;
use wire::link::LinkType;
use wire::tunnel::Innermost;
use wire::{Error, protocol};

const LINKS: [LinkType; 9] = [
    LinkType::Ethernet,
    LinkType::RawIp,
    LinkType::LinuxCooked,
    LinkType::LinuxCookedV2,
    LinkType::Loopback,
    LinkType::Ppp,
    LinkType::PppEther,
    LinkType::CiscoHdlc,
    LinkType::Mpls,
];

/// The innermost packet is inside the captured bytes, and its header inside the packet. A shorter capture of the same
/// frame gives the same result, or reports that bytes are missing.
pub fn run(bytes: &[u8]) {
    let [link, more, frame @ ..] = bytes else { return };
    let link = LINKS[usize::from(*link) % LINKS.len()];
    let on_wire = frame.len() + usize::from(*more) * 16;
    let whole = read(link, frame, on_wire);
    for length in 0..frame.len().min(300) {
        match read(link, &frame[..length], on_wire) {
            Err(Error::Truncated { needed, .. }) => assert!(needed > 0, "captured {length}"),
            cut => assert_eq!(cut, whole, "captured {length}"),
        }
    }
}

fn read(link: LinkType, frame: &[u8], on_wire: usize) -> Result<Innermost, Error> {
    let found = link.innermost(frame, on_wire)?;
    if let Innermost::Tcp { at, packet, .. } = found {
        assert!(at < frame.len() && packet.transport_at <= packet.total_len && packet.protocol == protocol::TCP);
        let rest = frame.get(at + packet.transport_at..).unwrap_or(&[]);
        let _ = TcpHeader::parse(rest, packet.total_len - packet.transport_at);
    }
    Ok(found)
}
