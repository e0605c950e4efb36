//! A route to add, and its rtnetlink message.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};

use super::family;

/// A route to add: `dst/prefix dev dev`, and the properties TCP takes from it.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// First address of the destination.
    pub dst: IpAddr,
    /// Length of the destination's prefix in bits.
    pub prefix: u8,
    /// The outgoing device.
    pub dev: &'a str,
    /// The source address of sockets that bind none. Must be an address of this namespace.
    pub src: Option<IpAddr>,
    /// The kind of destination.
    pub kind: RouteKind,
    /// Initial congestion window of TCP, in segments; `None`: the kernel's default (10).
    pub initcwnd: Option<u32>,
    /// Initial receive window of TCP, in segments.
    pub initrwnd: Option<u32>,
    /// Congestion control of TCP, by the kernel's name (`cubic`, `reno`, `bbr`).
    pub congestion: Option<&'a str>,
    /// Routing table; `None`: main (254) for unicast and local (255) for local routes.
    pub table: Option<u32>,
    /// Fail instead of replacing another route to the same destination.
    pub exclusive: bool,
}

/// The kind of destination of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteKind {
    /// Out of the device.
    #[default]
    Unicast,
    /// To this host: every address of the prefix is its own ("AnyIP"), and IPv4 sockets may bind to it.
    Local,
}

impl<'a> Route<'a> {
    /// A unicast route with the kernel's defaults.
    pub const fn new(dst: IpAddr, prefix: u8, dev: &'a str) -> Self {
        Route {
            dst,
            prefix,
            dev,
            src: None,
            kind: RouteKind::Unicast,
            initcwnd: None,
            initrwnd: None,
            congestion: None,
            table: None,
            exclusive: false,
        }
    }

    /// A local route with the kernel's defaults.
    pub const fn local(dst: IpAddr, prefix: u8, dev: &'a str) -> Self {
        Route { kind: RouteKind::Local, ..Route::new(dst, prefix, dev) }
    }

    pub(super) fn message(&self, device_index: u32) -> RouteMessage {
        let (kind, scope, default_table) = match self.kind {
            RouteKind::Unicast => (RouteType::Unicast, RouteScope::Link, u32::from(RouteHeader::RT_TABLE_MAIN)),
            RouteKind::Local => (RouteType::Local, RouteScope::Host, LOCAL_TABLE),
        };
        let mut message = RouteMessage::default();
        message.header.address_family = family(self.dst);
        message.header.destination_prefix_length = self.prefix;
        message.header.protocol = RouteProtocol::Static;
        // IPv6 has no scopes; the field is always universe.
        message.header.scope = if self.dst.is_ipv4() { scope } else { RouteScope::Universe };
        message.header.kind = kind;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::from(self.dst)),
            RouteAttribute::Oif(device_index),
            RouteAttribute::Table(self.table.unwrap_or(default_table)),
        ];
        if let Some(src) = self.src {
            message.attributes.push(RouteAttribute::PrefSource(RouteAddress::from(src)));
        }
        let metrics = self.metrics();
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        message
    }

    fn metrics(&self) -> Vec<RouteMetric> {
        let windows = [self.initcwnd.map(RouteMetric::InitCwnd), self.initrwnd.map(RouteMetric::InitRwnd)];
        let congestion = self.congestion.map(|name| RouteMetric::CcAlgo(name.to_owned()));
        windows.into_iter().chain([congestion]).flatten().collect()
    }
}

impl fmt::Display for Route<'_> {
    /// In the syntax of `ip route add`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == RouteKind::Local {
            write!(f, "local ")?;
        }
        write!(f, "{}/{} dev {}", self.dst, self.prefix, self.dev)?;
        if let Some(src) = self.src {
            write!(f, " src {src}")?;
        }
        if let Some(segments) = self.initcwnd {
            write!(f, " initcwnd {segments}")?;
        }
        if let Some(segments) = self.initrwnd {
            write!(f, " initrwnd {segments}")?;
        }
        if let Some(name) = self.congestion {
            write!(f, " congctl {name}")?;
        }
        if let Some(table) = self.table {
            write!(f, " table {table}")?;
        }
        Ok(())
    }
}

/// RT_TABLE_LOCAL of linux/rtnetlink.h.
const LOCAL_TABLE: u32 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_prints_in_the_syntax_of_ip_route() {
        let dst = "198.19.0.0".parse().unwrap();
        let route = Route { initcwnd: Some(2), congestion: Some("reno"), ..Route::new(dst, 16, "s0") };
        assert_eq!(route.to_string(), "198.19.0.0/16 dev s0 initcwnd 2 congctl reno");
        assert_eq!(Route::local(dst, 16, "lo").to_string(), "local 198.19.0.0/16 dev lo");
    }
}
