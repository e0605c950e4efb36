use super::*;

const LINK: LinkType = LinkType::Ethernet;

fn tcp() -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..4].copy_from_slice(&[0x9C, 0x40, 0, 80]);
    bytes[12] = 0x50;
    bytes.extend(b"GET");
    bytes
}

fn v4(protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 5, 10, 0, 0, 1];
    bytes[2..4].copy_from_slice(&(20 + content.len() as u16).to_be_bytes());
    [&bytes[..], content].concat()
}

fn v6(next: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = [0; 40];
    (bytes[0], bytes[6], bytes[7]) = (0x60, next, 64);
    bytes[4..6].copy_from_slice(&(content.len() as u16).to_be_bytes());
    [&bytes[..], content].concat()
}

fn udp(destination: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xC0, 0x01];
    bytes.extend(destination.to_be_bytes());
    bytes.extend((8 + content.len() as u16).to_be_bytes());
    bytes.extend([0, 0]);
    [&bytes[..], content].concat()
}

fn ethernet(kind: u16, content: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind.to_be_bytes(), content].concat()
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// The frame's TCP packet is the one of [`v4`] or [`v6`] around [`tcp`], and is at its end.
#[track_caller]
fn leads_to_tcp(link: LinkType, frame: &[u8], tunnels: &[Tunnel]) {
    let found = link.innermost(frame, frame.len());
    let Ok(Innermost::Tcp { at, packet, tunnels: seen }) = found else { panic!("{found:?}") };
    assert_eq!(at + packet.total_len, frame.len());
    assert_eq!(&frame[at + packet.transport_at..], tcp());
    let seen: Vec<Tunnel> = Tunnel::ALL.into_iter().filter(|&tunnel| seen.has(tunnel)).collect();
    assert_eq!(seen, tunnels);
    // With any captured length, the result is the same or a truncation.
    for length in 0..frame.len() {
        match link.innermost(&frame[..length], frame.len()) {
            Ok(cut) => assert_eq!(Ok(cut), found, "captured {length}"),
            Err(error) => assert!(matches!(error, Error::Truncated { .. }), "captured {length}: {error}"),
        }
    }
}

fn packets() -> [Vec<u8>; 2] {
    [v4(6, &tcp()), v6(6, &tcp())]
}

#[test]
fn ip_in_ip_is_followed_in_all_four_combinations() {
    for (packet, protocol) in packets().iter().zip([4, 41]) {
        leads_to_tcp(LINK, &ethernet(0x0800, &v4(protocol, packet)), &[Tunnel::IpInIp]);
        leads_to_tcp(LINK, &ethernet(0x86DD, &v6(protocol, packet)), &[Tunnel::IpInIp]);
        leads_to_tcp(LinkType::RawIp, &v6(protocol, packet), &[Tunnel::IpInIp]);
    }
    let deep = v4(4, &v6(41, &v6(4, &v4(6, &tcp()))));
    leads_to_tcp(LinkType::RawIp, &deep, &[Tunnel::IpInIp]);
}

#[test]
fn gre_is_followed_with_its_options_and_payloads() {
    let gre = |flags: u16, kind: u16, options: usize, content: &[u8]| {
        v4(47, &joined(&[&flags.to_be_bytes(), &kind.to_be_bytes(), &vec![0; options], content]))
    };
    let [four, six] = packets();
    for (flags, options) in [(0, 0), (0x2000, 4), (0x8000, 4), (0x1000, 4), (0xB000, 12)] {
        leads_to_tcp(LinkType::RawIp, &gre(flags, 0x0800, options, &four), &[Tunnel::Gre]);
    }
    leads_to_tcp(LinkType::RawIp, &gre(0, 0x86DD, 0, &six), &[Tunnel::Gre]);
    leads_to_tcp(LinkType::RawIp, &gre(0x2000, 0x6558, 4, &ethernet(0x0800, &four)), &[Tunnel::Gre]);
    leads_to_tcp(LinkType::RawIp, &gre(0, 0x8847, 0, &joined(&[&[0, 1, 1, 64], &four])), &[Tunnel::Gre, Tunnel::Mpls]);
    // PPTP: version 1 with key, sequence and acknowledgement.
    leads_to_tcp(LinkType::RawIp, &gre(0x3081, 0x880B, 12, &joined(&[&[0xFF, 3, 0, 0x21], &four])), &[Tunnel::Gre]);
    // WCCP, version 1 and 2.
    leads_to_tcp(LinkType::RawIp, &gre(0, 0x883E, 0, &four), &[Tunnel::Gre]);
    leads_to_tcp(LinkType::RawIp, &gre(0, 0x883E, 0, &joined(&[&[0; 4], &four])), &[Tunnel::Gre]);
    leads_to_tcp(LinkType::RawIp, &v4(17, &udp(4754, &joined(&[&[0, 0, 8, 0], &four]))), &[Tunnel::Gre]);
    let routed = gre(0x4000, 0x0800, 8, &four);
    assert_eq!(LinkType::RawIp.innermost(&routed, routed.len()), Ok(Innermost::Unread(Unread::Protocol(47))));
}

#[test]
fn erspan_of_every_type_is_followed() {
    let frame = ethernet(0x0800, &v4(6, &tcp()));
    let first = joined(&[&[0, 0, 0x88, 0xBE], &frame]);
    let second = joined(&[&[0x10, 0, 0x88, 0xBE, 0, 0, 0, 1], &[0x10, 5, 0, 1, 0, 0, 0, 0], &frame]);
    let third = joined(&[&[0x10, 0, 0x22, 0xEB, 0, 0, 0, 1], &[0x20, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], &frame]);
    let longer =
        joined(&[&[0x10, 0, 0x22, 0xEB, 0, 0, 0, 1], &[0x20, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 8], &frame]);
    for content in [first, second, third, longer] {
        leads_to_tcp(LINK, &ethernet(0x0800, &v4(47, &content)), &[Tunnel::Erspan]);
    }
}

#[test]
fn overlays_over_udp_are_followed() {
    let [four, six] = packets();
    let inner = ethernet(0x0800, &four);
    let tagged = ethernet(0x8100, &joined(&[&[0, 7, 0x86, 0xDD], &six]));
    for port in [4789, 8472, 4790] {
        let vxlan = joined(&[&[8, 0, 0, 0, 0, 0, 5, 0], &inner]);
        leads_to_tcp(LINK, &ethernet(0x0800, &v4(17, &udp(port, &vxlan))), &[Tunnel::Vxlan]);
    }
    let vxlan = joined(&[&[8, 0, 0, 0, 0, 0, 5, 0], &tagged]);
    leads_to_tcp(LINK, &ethernet(0x86DD, &v6(17, &udp(4789, &vxlan))), &[Tunnel::Vxlan]);
    // GPE names the next protocol.
    for (kind, content) in [(3, &inner), (1, &four), (2, &six)] {
        let gpe = joined(&[&[0x0C, 0, 0, kind, 0, 0, 5, 0], content]);
        leads_to_tcp(LinkType::RawIp, &v4(17, &udp(4789, &gpe)), &[Tunnel::Vxlan]);
    }
    let geneve = joined(&[&[2, 0, 0x65, 0x58, 0, 0, 5, 0], &[0; 8], &inner]);
    leads_to_tcp(LinkType::RawIp, &v4(17, &udp(6081, &geneve)), &[Tunnel::Geneve]);
    let geneve = joined(&[&[0, 0, 0x86, 0xDD, 0, 0, 5, 0], &six]);
    leads_to_tcp(LinkType::RawIp, &v4(17, &udp(6081, &geneve)), &[Tunnel::Geneve]);
    leads_to_tcp(LinkType::RawIp, &v4(17, &udp(6635, &joined(&[&[0, 0, 0x11, 64], &four]))), &[Tunnel::Mpls]);
    let gtp = joined(&[&[0x34, 255, 0, 0, 0, 0, 0, 1], &[0, 0, 0, 0x85], &[1, 0, 0, 0], &four]);
    leads_to_tcp(LinkType::RawIp, &v4(17, &udp(2152, &gtp)), &[Tunnel::Gtp]);
    // Datagrams to these ports without such a header stay datagrams.
    for port in [4789, 6081, 2152] {
        let other = v4(17, &udp(port, &[0xF0; 40]));
        let found = LinkType::RawIp.innermost(&other, other.len());
        assert!(port == 4789 || found == Ok(Innermost::Unread(Unread::Udp(port))), "{port}: {found:?}");
    }
}

#[test]
fn mpls_vlan_and_pppoe_headers_are_skipped() {
    let [four, six] = packets();
    let labels = joined(&[&[0, 1, 0, 64, 0, 2, 1, 64], &four]);
    leads_to_tcp(LINK, &ethernet(0x8847, &labels), &[Tunnel::Mpls]);
    leads_to_tcp(LINK, &ethernet(0x8847, &joined(&[&[0, 1, 1, 64], &six])), &[Tunnel::Mpls]);
    leads_to_tcp(LinkType::Mpls, &labels, &[Tunnel::Mpls]);
    let wire = joined(&[&[0, 1, 1, 64], &[0; 4], &ethernet(0x0800, &four)]);
    leads_to_tcp(LINK, &ethernet(0x8847, &wire), &[Tunnel::Mpls]);
    // A pseudowire without a control word, whose first address begins like an IP header.
    let mut inner = ethernet(0x0800, &four);
    inner[0] = 0x46;
    let bare = joined(&[&[0, 1, 1, 64], &inner]);
    let found = LINK.innermost(&ethernet(0x8847, &bare), 14 + bare.len());
    assert!(matches!(found, Ok(Innermost::Tcp { at: 32, .. })), "{found:?}");
    let session = |kind: [u8; 2], packet: &[u8]| {
        let length = (packet.len() as u16 + 2).to_be_bytes();
        joined(&[&[0x11, 0, 0, 1], &length, &kind, packet])
    };
    leads_to_tcp(LINK, &ethernet(0x8864, &session([0, 0x21], &four)), &[Tunnel::Pppoe]);
    leads_to_tcp(LINK, &ethernet(0x8864, &session([0, 0x57], &six)), &[Tunnel::Pppoe]);
    leads_to_tcp(LinkType::PppEther, &session([0, 0x21], &four), &[Tunnel::Pppoe]);
    leads_to_tcp(LINK, &ethernet(0x88A8, &joined(&[&[0, 1, 0x81, 0, 0, 2, 8, 0], &four])), &[]);
    leads_to_tcp(
        LINK,
        &ethernet(0x9100, &joined(&[&[0, 1, 0x88, 0x64], &session([0, 0x21], &four)])),
        &[Tunnel::Pppoe],
    );
    leads_to_tcp(LINK, &ethernet(30 + 8, &joined(&[&[0xAA, 0xAA, 3, 0, 0, 0, 8, 0], &four])), &[]);
    leads_to_tcp(LINK, &ethernet(0x8926, &joined(&[&[0, 1, 0, 2, 8, 0], &four])), &[]);
    leads_to_tcp(LINK, &ethernet(0x0800, &v4(97, &joined(&[&[0x30, 0], &ethernet(0x86DD, &six)]))), &[Tunnel::Other]);
    leads_to_tcp(LINK, &ethernet(0x0800, &v4(51, &joined(&[&[6, 1], &[0; 10], &tcp()]))), &[]);
    leads_to_tcp(LinkType::CiscoHdlc, &joined(&[&[0x0F, 0, 8, 0], &four]), &[]);
}

#[test]
fn tunnel_walk_finds_plain_packets_of_every_link_layer() {
    for (packet, kind) in packets().iter().zip([[8, 0], [0x86, 0xDD]]) {
        leads_to_tcp(LINK, &ethernet(u16::from_be_bytes(kind), packet), &[]);
        leads_to_tcp(LinkType::RawIp, packet, &[]);
        leads_to_tcp(LinkType::LinuxCooked, &joined(&[&[0; 14], &kind, packet]), &[]);
        leads_to_tcp(LinkType::LinuxCookedV2, &joined(&[&kind, &[0; 18], packet]), &[]);
        leads_to_tcp(LinkType::Loopback, &joined(&[&[2, 0, 0, 0], packet]), &[]);
    }
}

#[test]
fn unsupported_protocols_are_named() {
    let unread = |frame: &[u8]| match LINK.innermost(frame, frame.len()) {
        Ok(Innermost::Unread(what)) => what.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(unread(&ethernet(0x0806, &[0; 28])), "ARP (EtherType 0x0806)");
    assert_eq!(unread(&ethernet(0x1234, &[0; 28])), "EtherType 0x1234");
    assert_eq!(unread(&ethernet(38, &[0x42, 0x42, 3, 0])), "spanning tree (LLC SAP 0x42)");
    assert_eq!(unread(&ethernet(0x0800, &v4(50, &[0; 28]))), "ESP (IP protocol 50)");
    assert_eq!(
        (Unread::Udp(53).to_string(), Unread::Udp(9999).to_string()),
        ("DNS (UDP port 53)".into(), "UDP port 9999".into())
    );
    for frame in [ethernet(0x0800, &v4(17, &udp(53, &[0; 28]))), ethernet(0x86DD, &v6(17, &udp(9999, &[0; 28])))] {
        // A datagram may be one of QUIC.
        assert!(matches!(LINK.innermost(&frame, frame.len()), Ok(Innermost::Udp { .. })), "{frame:?}");
    }
    let session = joined(&[&[0x11, 0, 0, 1, 0, 4], &[0xC0, 0x21, 1, 1]]);
    assert_eq!(unread(&ethernet(0x8864, &session)), "LCP (PPP protocol 0xc021)");
    // An error message quotes the start of a TCP packet, which was not sent by a connection here.
    assert_eq!(
        unread(&ethernet(0x0800, &v4(1, &joined(&[&[3, 1, 0, 0, 0, 0, 0, 0], &v4(6, &tcp())])))),
        "ICMP (IP protocol 1)"
    );
}

#[test]
fn number_of_tunnel_headers_is_bounded() {
    let mut packet = v4(6, &tcp());
    for _ in 0..DEPTH_MAX - 2 {
        packet = v4(4, &packet);
    }
    let within = LinkType::RawIp.innermost(&packet, packet.len());
    assert!(matches!(within, Ok(Innermost::Tcp { .. })), "{within:?}");
    for _ in 0..3 {
        packet = v4(4, &packet);
    }
    assert_eq!(LinkType::RawIp.innermost(&packet, packet.len()), Ok(Innermost::Unread(Unread::Depth)));
    let labels = joined(&[&[0, 1, 0, 64].repeat(100), &v4(6, &tcp())]);
    assert_eq!(LinkType::Mpls.innermost(&labels, labels.len()), Ok(Innermost::Unread(Unread::Depth)));
}

#[test]
fn first_fragment_of_a_tunnel_contains_the_packet() {
    let inner = v4(6, &joined(&[&tcp(), &[7; 1000]]));
    let mut outer = v4(47, &joined(&[&[0, 0, 8, 0], &inner[..400]]));
    outer[6] = 0x20;
    let found = LinkType::RawIp.innermost(&outer, outer.len());
    let Ok(Innermost::Tcp { at: 24, packet, .. }) = found else { panic!("{found:?}") };
    assert_eq!(packet.total_len, inner.len(), "lengths are those of the packet inside");
    (outer[6], outer[7]) = (0, 50);
    assert_eq!(LinkType::RawIp.innermost(&outer, outer.len()), Ok(Innermost::LaterFragment));
}

#[test]
fn inconsistent_tunnel_lengths_are_errors() {
    let mut frame = ethernet(0x0800, &v4(4, &v4(6, &tcp())));
    frame[14 + 20 + 3] += 1;
    assert!(matches!(LINK.innermost(&frame, frame.len()), Err(Error::Length { .. })));
    let short = joined(&[&[0x11, 0, 0, 1, 0, 200], &[0, 0x21], &v4(6, &tcp())]);
    let frame = ethernet(0x8864, &short);
    assert!(matches!(LINK.innermost(&frame, frame.len()), Err(Error::Length { .. })));
}
