//! A firewall table that exists as long as its descriptor.
//!
//! ```text
//!   path's device --> forwarded --> postrouting: masquerade --> uplink
//!   path's device <-- dup, drop <-- prerouting, after the response's address was translated back <-- uplink
//! ```
//!
//! Packets of the path's clients leave with this host's own address, and the responses are delivered back, without
//! changing a setting of any other device or of the host: the responses are passed on before the kernel would check
//! whether their device may forward. The table has the owner flag: only this process may change it, and the kernel
//! removes it when the socket is closed, however this process ends. Needs Linux 5.12 with nf_tables, its masquerading
//! and its dup statement.
//!
//! Source: Linux `include/uapi/linux/netfilter/nf_tables.h`, `nfnetlink.h`.

mod chains;
mod message;

use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;

use crate::error::{Error, Result};
use message::{Attributes, Batch, Family, expression};

pub use chains::forwarding_refused_by;

/// Masquerading of one network behind one device, during the lifetime of this value.
#[derive(Debug)]
pub struct Masquerade {
    /// Owns the table: the kernel removes it when the socket is closed.
    _socket: Socket,
    table: String,
}

impl Masquerade {
    /// In the calling thread's network namespace: packets from `network`/`prefix` (a multiple of 8) leave with this
    /// host's own address by the routed device, and the responses leave by the device numbered `device`. The rules are
    /// listed under the table name `table`. That device must be allowed to forward.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN; a missing kernel feature, by name; an existing table of this name.
    pub fn new(table: &str, network: IpAddr, prefix: u8, device: u32) -> Result<Masquerade> {
        Masquerade::load(table, &rules(table, network, prefix, Some(device)))
    }

    /// As above, for a namespace that forwards by itself and routes the responses itself: packets from
    /// `network`/`prefix` (a multiple of 8) leave with the address of their outgoing device, and the kernel translates
    /// the responses back.
    ///
    /// # Errors
    /// As of [`Masquerade::new`].
    pub fn of(table: &str, network: IpAddr, prefix: u8) -> Result<Masquerade> {
        Masquerade::load(table, &rules(table, network, prefix, None))
    }

    fn load(table: &str, batch: &Batch) -> Result<Masquerade> {
        let mut socket = Socket::new(NETLINK_NETFILTER).map_err(|error| {
            Error::of("socket NETLINK_NETFILTER")(error)
                .remedy(&[Errno::EPROTONOSUPPORT], "this kernel has no nf_tables (modprobe nf_tables)")
        })?;
        socket.bind_auto().map_err(Error::of("bind NETLINK_NETFILTER"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(Error::of("connect NETLINK_NETFILTER"))?;
        let bytes = batch.bytes();
        let sent = socket.send(&bytes, 0).map_err(Error::of("send nf_tables rules"))?;
        if sent != bytes.len() {
            return Err(Error::Unexpected {
                call: "send nf_tables rules".into(),
                answer: format!("took {sent} bytes"),
            });
        }
        receive(&socket, batch)?;
        Ok(Masquerade { _socket: socket, table: table.to_owned() })
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.table
    }
}

/// All rules as one transaction. `device`: the device to which the responses are passed on, if the kernel does not
/// route them itself.
fn rules(table: &str, network: IpAddr, prefix: u8, device: Option<u32>) -> Batch {
    let family = Family::of(network);
    let source_and_destination = if network.is_ipv4() { (12, 16) } else { (8, 24) };
    let address_bytes = if network.is_ipv4() { 4 } else { 16 };
    let network = match network {
        IpAddr::V4(network) => network.octets().to_vec(),
        IpAddr::V6(network) => network.octets().to_vec(),
    };
    let network = &network[..usize::from(prefix / 8)];
    let mut batch = Batch::new(family);
    batch.add("table", message::NEW_TABLE, |attributes| {
        attributes.text(message::TABLE_NAME, table).number(message::TABLE_FLAGS, message::TABLE_OWNER);
    });
    let chains = [
        ("out", "nat", message::HOOK_POSTROUTING, message::PRIORITY_SOURCE_NAT),
        ("back", "filter", message::HOOK_PREROUTING, AFTER_TRANSLATION),
    ];
    for (chain, kind, hook, priority) in chains.into_iter().take(1 + usize::from(device.is_some())) {
        batch.add("chain", message::NEW_CHAIN, |attributes| {
            attributes
                .text(message::CHAIN_TABLE, table)
                .text(message::CHAIN_NAME, chain)
                .nested(message::CHAIN_HOOK, |hooked| {
                    hooked.number(message::HOOK_NUMBER, hook).number(message::HOOK_PRIORITY, priority as u32);
                })
                .text(message::CHAIN_TYPE, kind);
        });
    }
    let (source, destination) = source_and_destination;
    batch.add("masquerade rule", message::NEW_RULE, |attributes| {
        rule(attributes, table, "out", |list| {
            expression::load_network_header(list, source, network.len() as u32);
            expression::compare(list, expression::EQUAL, network);
            expression::masquerade(list);
        });
    });
    let Some(device) = device else { return batch };
    batch.add("dup rule", message::NEW_RULE, |attributes| {
        rule(attributes, table, "back", |list| {
            expression::load_network_header(list, destination, network.len() as u32);
            expression::compare(list, expression::EQUAL, network);
            expression::load_incoming_device(list);
            expression::compare(list, expression::NOT_EQUAL, &device.to_ne_bytes());
            expression::load_network_header(list, destination, address_bytes);
            expression::immediate(list, expression::SECOND, &device.to_ne_bytes());
            expression::duplicate(list);
            expression::drop(list);
        });
    });
    batch
}

fn rule(attributes: &mut Attributes, table: &str, chain: &str, expressions: impl FnOnce(&mut Attributes)) {
    attributes
        .text(message::RULE_TABLE, table)
        .text(message::RULE_CHAIN, chain)
        .nested(message::RULE_EXPRESSIONS, expressions);
}

/// Every step of a batch is acknowledged, a failed one with its errno.
fn receive(socket: &Socket, batch: &Batch) -> Result<()> {
    let mut answered = 0;
    while answered < batch.steps() {
        let (bytes, _) = match socket.recv_from_full() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other.map_err(Error::of("receive from nf_tables"))?,
        };
        for answer in message::answers(&bytes) {
            let Some(errno) = answer.error() else { continue };
            if errno != 0 {
                let step = batch.step(answer.sequence).unwrap_or("rules");
                return Err(Error::of(format!("nf_tables: add {step}"))(Errno::from_raw(errno))
                    .remedy(&[Errno::EPERM], "this needs CAP_NET_ADMIN over the network namespace: run as root")
                    .remedy(&[Errno::ENOENT, Errno::EOPNOTSUPP, Errno::EINVAL, Errno::EPROTONOSUPPORT], NEEDS));
            }
            answered += 1;
        }
    }
    Ok(())
}

/// Responses are translated back at -100; afterwards their destination is the client.
const AFTER_TRANSLATION: i32 = -90;

const NEEDS: &str =
    "this needs Linux 5.12 or later with nf_tables, nft_masq and nft_dup_ipv4/6 (built in, or modprobe)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nft_rules_are_one_transaction() {
        for (device, expected) in [
            (Some(7), &[0x10, 0xa00, 0xa03, 0xa03, 0xa06, 0xa06, 0x11][..]),
            (None, &[0x10, 0xa00, 0xa03, 0xa06, 0x11]),
        ] {
            let batch = rules("yamabiko0", "198.19.0.0".parse().unwrap(), 16, device);
            assert_eq!(batch.steps(), expected.len() - 2);
            let bytes = batch.bytes();
            let kinds: Vec<u16> = message::answers(&bytes).map(|message| message.kind).collect();
            assert_eq!(kinds, expected);
            assert_eq!(bytes.len() % 4, 0);
        }
    }
}
