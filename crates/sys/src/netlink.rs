//! Devices, addresses and routes, by rtnetlink; listening sockets, by sock_diag ([`SockDiag`]).
//!
//! A [`Netlink`] works on the network namespace of the thread that opened it, wherever it is used afterwards: open it
//! inside [`crate::namespace::NetNamespace::run`]. Each request waits for the kernel's response; none is on a hot path.

use std::fs;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;

use crate::error::{Error, Result};

pub use diag::{ListeningSocket, SockDiag, TcpInfo};
pub use existing::{ExistingRouteKind, Found};
pub use route::{Route, RouteKind};

mod diag;
mod existing;
mod route;

/// A netlink connection to the kernel for one network namespace.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// Counters of a device since its creation. On a TUN, `tx` counts packets from the kernel to the reader of the
/// descriptor, and `tx_dropped` those that found its queue full because the reader was late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets that arrived at the device (on a TUN: written to it).
    pub rx_packets: u64,
    /// Packets sent out of the device.
    pub tx_packets: u64,
    /// Bytes that arrived, without the virtio header.
    pub rx_bytes: u64,
    /// Bytes sent, without the virtio header.
    pub tx_bytes: u64,
    /// Received and dropped before the protocols processed them.
    pub rx_dropped: u64,
    /// Dropped instead of sent.
    pub tx_dropped: u64,
    /// Received and malformed.
    pub rx_errors: u64,
    /// Could not be sent.
    pub tx_errors: u64,
}

impl Netlink {
    /// Opens a connection for the calling thread's network namespace.
    ///
    /// # Errors
    /// The socket could not be made.
    pub fn open() -> Result<Netlink> {
        let mut socket =
            Socket::new(netlink_sys::protocols::NETLINK_ROUTE).map_err(Error::of("socket NETLINK_ROUTE"))?;
        socket.bind_auto().map_err(Error::of("bind NETLINK_ROUTE"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(Error::of("connect NETLINK_ROUTE"))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Brings a device up.
    ///
    /// # Errors
    /// No such device, or no CAP_NET_ADMIN over the namespace.
    pub fn link_up(&mut self, name: &str) -> Result<()> {
        let mut message = self.link(name)?;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(message), 0, || format!("bring device {name} up"))
    }

    /// Sets the MTU of a device, in bytes of IP packet (68 to 65,535 on a TUN).
    ///
    /// # Errors
    /// No such device, out of range, or no CAP_NET_ADMIN.
    pub fn set_mtu(&mut self, name: &str, bytes: u32) -> Result<()> {
        let mut message = self.link(name)?;
        message.attributes.push(LinkAttribute::Mtu(bytes));
        self.change(RouteNetlinkMessage::SetLink(message), 0, || format!("set mtu {bytes} of device {name}"))
    }

    /// Sets the queue length of a device in packets, beyond which it drops. Takes effect on a TUN immediately.
    ///
    /// # Errors
    /// No such device, or no CAP_NET_ADMIN.
    pub fn set_tx_queue_len(&mut self, name: &str, packets: u32) -> Result<()> {
        let mut message = self.link(name)?;
        message.attributes.push(LinkAttribute::TxQueueLen(packets));
        self.change(RouteNetlinkMessage::SetLink(message), 0, || format!("set txqueuelen {packets} of device {name}"))
    }

    /// Adds an address to a device. IPv6 addresses are usable immediately (no duplicate address detection).
    ///
    /// # Errors
    /// No such device, the address exists already, or no CAP_NET_ADMIN.
    pub fn add_address(&mut self, name: &str, ip: IpAddr, prefix: u8) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(ip);
        message.header.prefix_len = prefix;
        message.header.index = self.link_index(name)?;
        if ip.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.change(RouteNetlinkMessage::NewAddress(message), flags, || {
            format!("add address {ip}/{prefix} to device {name}")
        })
    }

    /// Adds a route; one to the same destination is replaced, or, if the new route is exclusive, stays.
    ///
    /// # Errors
    /// No such device, source address or congestion control; EEXIST for an exclusive one; or no CAP_NET_ADMIN.
    pub fn add_route(&mut self, route: &Route<'_>) -> Result<()> {
        let message = route.message(self.link_index(route.dev)?);
        let flags = NLM_F_CREATE | if route.exclusive { NLM_F_EXCL } else { NLM_F_REPLACE };
        self.change(RouteNetlinkMessage::NewRoute(message), flags, || format!("add route {route}")).map_err(|error| {
            match route.congestion {
                Some(_) => error.remedy(
                    &[Errno::EINVAL, Errno::ENOENT],
                    "check that the congestion control is in sysctl net.ipv4.tcp_available_congestion_control (modprobe tcp_NAME)",
                ),
                None => error,
            }
        })
    }

    /// The number of a device in this namespace.
    ///
    /// # Errors
    /// No such device.
    pub fn link_index(&mut self, name: &str) -> Result<u32> {
        Ok(self.find_link(name)?.header.index)
    }

    /// The counters of a device.
    ///
    /// # Errors
    /// No such device.
    pub fn link_statistics(&mut self, name: &str) -> Result<LinkStats> {
        self.find_link(name)?
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(stats) => Some(LinkStats {
                    rx_packets: stats.rx_packets,
                    tx_packets: stats.tx_packets,
                    rx_bytes: stats.rx_bytes,
                    tx_bytes: stats.tx_bytes,
                    rx_dropped: stats.rx_dropped,
                    tx_dropped: stats.tx_dropped,
                    rx_errors: stats.rx_errors,
                    tx_errors: stats.tx_errors,
                }),
                _ => None,
            })
            .ok_or_else(|| Error::Unexpected { call: find_call(name), answer: "no IFLA_STATS64".to_owned() })
    }

    fn find_link(&mut self, name: &str) -> Result<LinkMessage> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.exchange(RouteNetlinkMessage::GetLink(message), 0, || find_call(name))? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            other => Err(Error::Unexpected { call: find_call(name), answer: format!("{other:?}") }),
        }
    }

    /// A message that changes the device `name`, without a change yet.
    fn link(&mut self, name: &str) -> Result<LinkMessage> {
        let mut message = LinkMessage::default();
        message.header.index = self.link_index(name)?;
        Ok(message)
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16, call: impl Fn() -> String) -> Result<()> {
        self.exchange(message, flags | NLM_F_ACK, &call).map(drop).map_err(|error| {
            error.remedy(
                &[Errno::EPERM],
                "this needs CAP_NET_ADMIN over the network namespace: run as root, or rootless",
            )
        })
    }

    /// One request, one response: a message, or `None` for a plain acknowledgement.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        call: impl Fn() -> String,
    ) -> Result<Option<RouteNetlinkMessage>> {
        self.send(message, flags, &call)?;
        loop {
            let answer = self.receive(&call)?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
                .map_err(|error| Error::Unexpected { call: call(), answer: error.to_string() })?;
            // A response to an earlier request whose caller gave up is ignored.
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                NetlinkPayload::Error(error) => match error.code {
                    None => Ok(None),
                    Some(code) => Err(Error::of(call())(Errno::from_raw(-code.get()))),
                },
                other => Err(Error::Unexpected { call: call(), answer: format!("{other:?}") }),
            };
        }
    }
}

impl Netlink {
    fn send(&mut self, message: RouteNetlinkMessage, flags: u16, call: impl Fn() -> String) -> Result<()> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop).map_err(Error::of(call()))
    }

    /// One datagram: one message, or several in a dump.
    fn receive(&mut self, call: impl Fn() -> String) -> Result<Vec<u8>> {
        loop {
            match self.socket.recv_from_full() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => return other.map(|(bytes, _)| bytes).map_err(Error::of(call())),
            }
        }
    }
}

/// Writes a kernel setting, such as `net/ipv4/ip_forward`, under /proc/sys. Settings under `net` are those of the
/// calling thread's network namespace.
///
/// # Errors
/// No such setting, a value the kernel refuses, or no right to write it.
pub fn sysctl(path: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/{path}");
    fs::write(&path, value).map_err(Error::of(format!("write {value:?} to {path}")))
}

/// Disables IPv6 on a device, so that it sends no unsolicited packets (router solicitations, multicast reports). No
/// error on a kernel without IPv6.
///
/// # Errors
/// No such device, or no right to write the setting.
pub fn disable_ipv6(device: &str) -> Result<()> {
    if !fs::exists("/proc/sys/net/ipv6").unwrap_or(false) {
        return Ok(());
    }
    sysctl(&format!("net/ipv6/conf/{device}/disable_ipv6"), "1")
}

fn find_call(name: &str) -> String {
    format!("find device {name}")
}

fn family(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
