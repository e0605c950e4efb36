//! Chains of the host that drop forwarded packets.

use std::net::IpAddr;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::message::{self, Answer, Family, attributes};
use crate::error::{Error, Result};

const POLICY_DROP: u32 = 0;

/// The chain, as `table/chain`, whose policy drops forwarded packets of this namespace that no rule accepts, as set by
/// Docker. `None` if there is none. Dropping rules are not examined, nor are those of the older iptables.
///
/// # Errors
/// No CAP_NET_ADMIN, or a kernel without nf_tables.
pub fn forwarding_refused_by(family_of: IpAddr) -> Result<Option<String>> {
    let mut socket = Socket::new(NETLINK_NETFILTER).map_err(Error::of("socket NETLINK_NETFILTER"))?;
    socket.bind_auto().map_err(Error::of("bind NETLINK_NETFILTER"))?;
    socket.connect(&SocketAddr::new(0, 0)).map_err(Error::of("connect NETLINK_NETFILTER"))?;
    for family in [Family::of(family_of), Family::INET] {
        socket.send(&message::dump(message::GET_CHAIN, family), 0).map_err(Error::of("ask for nf_tables chains"))?;
        let mut found = None;
        'dump: loop {
            let (bytes, _) = match socket.recv_from_full() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(Error::of("receive nf_tables chains"))?,
            };
            for answer in message::answers(&bytes) {
                if answer.ends() {
                    break 'dump;
                }
                found = found.or_else(|| refusing(&answer));
            }
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn refusing(chain: &Answer<'_>) -> Option<String> {
    let value = |attribute: u16| chain.attributes().find(|&(kind, _)| kind == attribute).map(|(_, value)| value);
    let hook = attributes(value(message::CHAIN_HOOK)?).find(|&(kind, _)| kind == message::HOOK_NUMBER)?.1;
    let drops = number(value(message::CHAIN_POLICY)?)? == POLICY_DROP;
    let forward = number(hook)? == message::HOOK_FORWARD;
    (drops && forward).then(|| {
        let name = |kind| String::from_utf8_lossy(value(kind).unwrap_or_default()).trim_end_matches('\0').to_owned();
        format!("{}/{}", name(message::CHAIN_TABLE), name(message::CHAIN_NAME))
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?))
}
