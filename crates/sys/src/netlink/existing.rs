//! Existing routes.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_DUMP, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType};
use nix::errno::Errno;

use super::{Netlink, family};
use crate::error::{Error, Result};

/// A route in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// First address of the destination; `None` for the default route.
    pub dst: Option<IpAddr>,
    /// Length of the destination's prefix in bits.
    pub prefix: u8,
    /// The kind of destination.
    pub kind: ExistingRouteKind,
    /// The number of its outgoing device, if any.
    pub device: Option<u32>,
    /// The routing table: main is 254, local 255.
    pub table: u32,
}

/// The kind of destination of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingRouteKind {
    /// Out of a device.
    Unicast,
    /// To this host.
    Local,
    /// Any other: broadcast, multicast, blackhole ..
    Other,
}

impl Found {
    /// Whether it applies to any address of `network`/`prefix`. Default routes, which apply to all addresses, do not
    /// count, nor do their replacements: 128.0.0.0/1 as set by a VPN, or 2000::/3.
    pub fn overlaps(&self, network: IpAddr, prefix: u8) -> bool {
        let common = self.prefix.min(prefix);
        self.prefix >= if network.is_ipv4() { DEFAULT_ROUTE_PREFIX_MAX } else { DEFAULT_ROUTE_PREFIX_MAX_V6 }
            && match (self.dst, network) {
                (Some(IpAddr::V4(own)), IpAddr::V4(other)) => {
                    (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(common)
                }
                (Some(IpAddr::V6(own)), IpAddr::V6(other)) => {
                    (own.to_bits() ^ other.to_bits()).leading_zeros() >= u32::from(common)
                }
                _ => false,
            }
    }

    fn from_message(message: &RouteMessage) -> Found {
        let mut found = Found {
            dst: None,
            prefix: message.header.destination_prefix_length,
            kind: match message.header.kind {
                RouteType::Unicast => ExistingRouteKind::Unicast,
                RouteType::Local => ExistingRouteKind::Local,
                _ => ExistingRouteKind::Other,
            },
            device: None,
            table: u32::from(message.header.table),
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(ip)) => found.dst = Some((*ip).into()),
                RouteAttribute::Destination(RouteAddress::Inet6(ip)) => found.dst = Some((*ip).into()),
                RouteAttribute::Oif(index) => found.device = Some(*index),
                RouteAttribute::Table(table) => found.table = *table,
                _ => {}
            }
        }
        found
    }
}

/// A route with a shorter prefix than this counts as a default route.
const DEFAULT_ROUTE_PREFIX_MAX: u8 = 8;
/// As above, for IPv6.
const DEFAULT_ROUTE_PREFIX_MAX_V6: u8 = 16;

impl Netlink {
    /// Every route of the family of `family_of`, in all tables.
    ///
    /// # Errors
    /// The kernel's response is malformed.
    pub fn routes(&mut self, family_of: IpAddr) -> Result<Vec<Found>> {
        let call = || "list routes".to_owned();
        let mut message = RouteMessage::default();
        message.header.address_family = family(family_of);
        self.send(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP, call)?;
        let mut found = Vec::new();
        loop {
            let datagram = self.receive(call)?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| Error::Unexpected { call: call(), answer: error.to_string() })?;
                let length = (answer.header.length as usize).next_multiple_of(4);
                match answer.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(route)) => {
                        found.push(Found::from_message(&route));
                    }
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::Error(error) => {
                        return Err(Error::of(call())(Errno::from_raw(error.code.map_or(0, |code| -code.get()))));
                    }
                    _ => {}
                }
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }

    /// The route of a packet from this host to `address`, by all its rules and tables.
    ///
    /// # Errors
    /// There is no route (ENETUNREACH, EHOSTUNREACH and others).
    pub fn route_to(&mut self, address: IpAddr) -> Result<Found> {
        let call = || format!("find the route to {address}");
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.header.table = RouteHeader::RT_TABLE_UNSPEC;
        message.attributes.push(RouteAttribute::Destination(address.into()));
        match self.exchange(RouteNetlinkMessage::GetRoute(message), 0, call)? {
            Some(RouteNetlinkMessage::NewRoute(route)) => Ok(Found::from_message(&route)),
            other => Err(Error::Unexpected { call: call(), answer: format!("{other:?}") }),
        }
    }

    /// The name of the device numbered `index`.
    ///
    /// # Errors
    /// There is no such device.
    pub fn link_name(&mut self, index: u32) -> Result<String> {
        use netlink_packet_route::link::{LinkAttribute, LinkMessage};
        let call = || format!("find device number {index}");
        let mut message = LinkMessage::default();
        message.header.index = index;
        match self.exchange(RouteNetlinkMessage::GetLink(message), 0, call)? {
            Some(RouteNetlinkMessage::NewLink(link)) => link
                .attributes
                .into_iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some(name),
                    _ => None,
                })
                .ok_or_else(|| Error::Unexpected { call: call(), answer: "no name".to_owned() }),
            other => Err(Error::Unexpected { call: call(), answer: format!("{other:?}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_overlaps_narrower_and_wider_networks() {
        let route = |dst: &str, prefix| Found {
            dst: Some(dst.parse().unwrap()),
            prefix,
            kind: ExistingRouteKind::Unicast,
            device: None,
            table: 254,
        };
        let benchmarks = ("198.18.0.0".parse().unwrap(), 15);
        let overlaps = |dst, prefix| route(dst, prefix).overlaps(benchmarks.0, benchmarks.1);
        assert!(overlaps("198.19.255.255", 32) && overlaps("198.18.0.0", 16) && overlaps("198.0.0.0", 8));
        assert!(!overlaps("198.20.0.0", 16) && !overlaps("198.17.255.255", 32) && !overlaps("2001:2::", 48));
        let everything = Found { dst: None, ..route("0.0.0.0", 0) };
        assert!(!everything.overlaps(benchmarks.0, benchmarks.1));
        assert!(!overlaps("128.0.0.0", 1), "half of a default route");
        assert!(!route("2000::", 3).overlaps("2001:2::".parse().unwrap(), 48), "all of IPv6 that is in use");
        assert!(route("2001:2:0:1::1", 128).overlaps("2001:2::".parse().unwrap(), 48));
    }
}
