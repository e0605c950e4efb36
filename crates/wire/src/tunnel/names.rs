//! Names of unsupported protocols.

use std::fmt;

use super::Unread;

impl Unread {
    /// The kind of number: as in JSON.
    pub const fn kind(self) -> &'static str {
        match self {
            Unread::EtherType(_) => "ethertype",
            Unread::Llc(_) => "llc_sap",
            Unread::Ppp(_) => "ppp_protocol",
            Unread::Protocol(_) => "ip_protocol",
            Unread::Udp(_) => "udp_port",
            Unread::Family(_) => "address_family",
            Unread::Link(_) => "link_type",
            Unread::Depth => "depth",
        }
    }

    /// Its number; 0 if there is none.
    pub const fn number(self) -> u32 {
        match self {
            Unread::EtherType(number) | Unread::Ppp(number) | Unread::Udp(number) => number as u32,
            Unread::Family(number) | Unread::Link(number) => number as u32,
            Unread::Llc(number) | Unread::Protocol(number) => number as u32,
            Unread::Depth => 0,
        }
    }

    /// The protocol's common name, if any.
    pub fn name(self) -> Option<&'static str> {
        let names: &[(u32, &'static str)] = match self {
            Unread::EtherType(_) => ETHERTYPES,
            Unread::Llc(_) => LLC,
            Unread::Ppp(_) => PPP,
            Unread::Protocol(_) => PROTOCOLS,
            Unread::Udp(_) => UDP,
            Unread::Link(_) => LINKS,
            Unread::Family(_) | Unread::Depth => &[],
        };
        names.iter().find(|(number, _)| *number == self.number()).map(|(_, name)| *name)
    }
}

/// Such as `ARP (EtherType 0x0806)`.
impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self {
            Unread::EtherType(number) => format!("EtherType 0x{number:04x}"),
            Unread::Llc(number) => format!("LLC SAP 0x{number:02x}"),
            Unread::Ppp(number) => format!("PPP protocol 0x{number:04x}"),
            Unread::Protocol(number) => format!("IP protocol {number}"),
            Unread::Udp(number) => format!("UDP port {number}"),
            Unread::Family(number) => format!("address family {number}"),
            Unread::Link(number) => format!("LINKTYPE {number}"),
            Unread::Depth => return write!(f, "more than {} headers", super::DEPTH_MAX),
        };
        match self.name() {
            Some(name) => write!(f, "{name} ({number})"),
            None => f.write_str(&number),
        }
    }
}

const ETHERTYPES: &[(u32, &str)] = &[
    (0x0806, "ARP"),
    (0x0842, "Wake-on-LAN"),
    (0x22F3, "TRILL"),
    (0x22F4, "IS-IS"),
    (0x8035, "RARP"),
    (0x8808, "Ethernet flow control"),
    (0x8809, "LACP"),
    (0x8863, "PPPoE discovery"),
    (0x888E, "802.1X"),
    (0x88CC, "LLDP"),
    (0x88E5, "MACsec"),
    (0x88F7, "PTP"),
    (0x8902, "CFM"),
    (0x8906, "FCoE"),
    (0x9000, "loopback test"),
];
const LLC: &[(u32, &str)] = &[(0x42, "spanning tree"), (0xE0, "IPX"), (0xF0, "NetBIOS"), (0xFE, "IS-IS")];
const PPP: &[(u32, &str)] = &[
    (0x00FD, "compressed"),
    (0x0053, "encrypted"),
    (0xC021, "LCP"),
    (0xC023, "PAP"),
    (0xC223, "CHAP"),
    (0x8021, "IPCP"),
];
const PROTOCOLS: &[(u32, &str)] = &[
    (1, "ICMP"),
    (2, "IGMP"),
    (17, "UDP"),
    (50, "ESP"),
    (58, "ICMPv6"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (103, "PIM"),
    (108, "IPComp"),
    (112, "VRRP"),
    (115, "L2TPv3"),
    (132, "SCTP"),
];
const UDP: &[(u32, &str)] = &[
    (53, "DNS"),
    (67, "DHCP"),
    (68, "DHCP"),
    (69, "TFTP"),
    (123, "NTP"),
    (137, "NetBIOS"),
    (161, "SNMP"),
    (443, "QUIC"),
    (500, "IKE"),
    (514, "syslog"),
    (547, "DHCPv6"),
    (1194, "OpenVPN"),
    (1701, "L2TP"),
    (1900, "SSDP"),
    (2152, "GTP-U"),
    (3478, "STUN"),
    (3544, "Teredo"),
    (3784, "BFD"),
    (4500, "ESP or IKE"),
    (4789, "VXLAN"),
    (5353, "mDNS"),
    (5355, "LLMNR"),
    (6081, "GENEVE"),
    (51820, "WireGuard"),
];
const LINKS: &[(u32, &str)] = &[
    (6, "token ring"),
    (105, "802.11"),
    (117, "PFLOG"),
    (119, "802.11 with Prism header"),
    (127, "802.11 with radiotap"),
    (147, "private use"),
    (187, "Bluetooth HCI"),
    (189, "USB"),
    (195, "802.15.4"),
    (220, "USB"),
    (239, "NFLOG"),
    (249, "USBPcap"),
    (253, "netlink"),
];
