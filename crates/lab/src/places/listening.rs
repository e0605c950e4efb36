//! Whether the server listens yet, read from the kernel's socket table: nothing is sent to the server, so its first
//! connection is the load's.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use sys::sched::Cores;

/// What listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listening {
    /// Something that `address` reaches.
    Yes,
    /// Something, but on this address alone.
    Elsewhere(IpAddr),
    /// Nothing.
    No,
}

/// Every port something listens on in the namespace of process `pid`, in order.
pub fn ports(pid: i32) -> Vec<u16> {
    let mut ports: Vec<u16> = listeners(pid).into_iter().map(|(_, port)| port).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Looks for a listener on `port` that `address` reaches, in the namespace of process `pid`.
pub fn look(pid: i32, address: IpAddr, port: u16) -> Listening {
    let mut outcome = Listening::No;
    for (listener, listener_port) in listeners(pid) {
        if listener_port != port {
            continue;
        }
        if reaches(listener, address) {
            return Listening::Yes;
        }
        outcome = Listening::Elsewhere(listener);
    }
    outcome
}

/// The cores on which those run who listen on `port` of `address`, in this process's network namespace: every thread of every
/// process that has such a socket open. `None` if nobody listens, or if it cannot be told who: a process of another user,
/// or of another PID namespace.
pub fn cores_of(address: IpAddr, port: u16) -> Option<Cores> {
    let sockets: HashSet<String> = tables("self")
        .into_iter()
        .filter(|listener| listener.port == port && reaches(listener.address, address))
        .map(|listener| format!("socket:[{}]", listener.inode))
        .collect();
    if sockets.is_empty() {
        return None;
    }
    let (mut found, mut cores) = (HashSet::new(), Vec::new());
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let theirs = sockets_among(&process.path().join("fd"), &sockets);
        if theirs.is_empty() {
            continue;
        }
        let Ok(threads) = std::fs::read_dir(process.path().join("task")) else { continue };
        found.extend(theirs);
        for thread in threads.flatten() {
            let number = thread.file_name().to_str()?.parse().ok()?;
            // One that has ended meanwhile runs nowhere.
            cores.extend(Cores::of(number).into_iter().flat_map(|cores| cores.list().to_vec()));
        }
    }
    (found.len() == sockets.len()).then(|| Cores::new(cores))
}

/// Which of `sockets` a process has open, by its folder of descriptors.
fn sockets_among(folder: &Path, sockets: &HashSet<String>) -> HashSet<String> {
    let open = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = open.filter_map(|entry| std::fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok());
    names.filter(|name| sockets.contains(name)).collect()
}

/// Whether a connection to `address` comes to this listener. One on `[::]` takes IPv4 as well, unless it was told not to,
/// which the table does not show.
fn reaches(listener: IpAddr, address: IpAddr) -> bool {
    listener == address || listener.is_unspecified() && (listener.is_ipv6() || address.is_ipv4())
}

fn listeners(pid: i32) -> Vec<(IpAddr, u16)> {
    tables(&pid.to_string()).into_iter().map(|listener| (listener.address, listener.port)).collect()
}

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listener {
    address: IpAddr,
    port: u16,
    /// Its number, by which its owners are found.
    inode: u64,
}

/// All of them in the namespace of a process, by its name in /proc.
fn tables(process: &str) -> Vec<Listener> {
    let mut found = Vec::new();
    for (file, parse) in [("tcp", parse_v4 as fn(&str) -> Option<IpAddr>), ("tcp6", parse_v6)] {
        let table = std::fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        found.extend(table.lines().filter_map(|line| listener(line, parse)));
    }
    found
}

/// That of a line in state LISTEN (0A).
fn listener(line: &str, parse: fn(&str) -> Option<IpAddr>) -> Option<Listener> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    if state != "0A" {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let inode = fields.nth(5)?.parse().ok()?;
    Some(Listener { address: parse(address)?, port: u16::from_str_radix(port, 16).ok()?, inode })
}

fn parse_v4(text: &str) -> Option<IpAddr> {
    // Printed as one host-order number of the four network-order bytes.
    let number = u32::from_str_radix(text, 16).ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(number.to_ne_bytes())))
}

fn parse_v6(text: &str) -> Option<IpAddr> {
    let mut bytes = [0u8; 16];
    for (i, word) in bytes.chunks_exact_mut(4).enumerate() {
        let number = u32::from_str_radix(text.get(8 * i..8 * i + 8)?, 16).ok()?;
        word.copy_from_slice(&number.to_ne_bytes());
    }
    Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_socket_table_are_read() {
        let line =
            "   0: 010012C6:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100";
        let address = "198.18.0.1".parse().unwrap();
        assert_eq!(listener(line, parse_v4), Some(Listener { address, port: 8080, inode: 77 }));
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(listener(&established, parse_v4), None);
        let any = "  1: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 9";
        assert_eq!(listener(any, parse_v6), Some(Listener { address: "::".parse().unwrap(), port: 80, inode: 9 }));
        assert_eq!(listener("  sl  local_address rem_address   st", parse_v4), None);
    }

    #[test]
    fn one_on_every_ipv4_address_is_on_no_ipv6_address() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(reaches(address("0.0.0.0"), address("198.18.0.1")));
        assert!(reaches(address("::"), address("198.18.0.1")));
        assert!(reaches(address("::"), address("2001:2:0:1::1")));
        assert!(!reaches(address("0.0.0.0"), address("2001:2:0:1::1")));
        assert!(!reaches(address("::1"), address("2001:2:0:1::1")));
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let pid = std::process::id() as i32;
        assert_eq!(look(pid, "127.0.0.1".parse().unwrap(), port), Listening::Yes);
        let other = "127.0.0.2".parse().unwrap();
        assert_eq!(look(pid, other, port), Listening::Elsewhere("127.0.0.1".parse().unwrap()));
        let own = Cores::allowed().unwrap();
        let theirs = cores_of("127.0.0.1".parse().unwrap(), port).unwrap();
        assert!(own.list().iter().all(|core| theirs.list().contains(core)), "{theirs}");
        assert_eq!(cores_of(other, port), None);
        drop(socket);
        assert_eq!(look(pid, other, port), Listening::No);
    }
}
