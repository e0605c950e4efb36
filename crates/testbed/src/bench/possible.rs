//! Most connections that a load can have open at the same time on this machine, computed in advance from open files,
//! ports, memory and client addresses. A search for the most connections of a server needs this limit first.

use super::resources::{DESCRIPTORS_RESERVED, PROCESSES_MAX};
use plan::Plan;
use sys::accounting::memory_available;

/// Ports of an address in the clients' namespace (`topology/ends.rs` sets the range from 1024 to 65535).
const PORTS_PER_ADDRESS: u64 = 65_535 - 1_024 + 1;
/// Kernel memory of a connection, both ends and the path between them (docs/notes: 6 to 10 KB).
const KERNEL_BYTES_PER_CONNECTION: u64 = 10_000;
/// Connections may use the free memory divided by this; the rest is for servers and everything else.
const FREE_MEMORY_DIVISOR: u64 = 2;

/// The most connections, and the limit that applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Possible {
    /// Number of connections.
    pub connections: u64,
    /// The limit as text, without a full stop.
    pub words: String,
}

/// Most connections that the load of a plan can have open. `each_a_client`: each connection, or the few of a user,
/// belongs to a client with its own address; otherwise the plan has the number of clients.
pub fn connections_possible(plan: &Plan, each_a_client: bool) -> Possible {
    let clients = match (each_a_client, plan.path.is_some()) {
        (true, true) => u64::from(::path::AddressPlan::CLIENTS_MAX),
        (false, true) => u64::from(plan.load.clients),
        // Without a path all clients have this host's address.
        (_, false) => 1,
    };
    let ports = match (&plan.path, &plan.load.unix) {
        (_, Some(_)) => u64::MAX,
        (Some(_), None) => PORTS_PER_ADDRESS,
        (None, None) => u64::from(ports_easily_found()),
    };
    let addresses =
        plan.server.as_ref().map_or(plan.target.addresses.len() as u64, |server| u64::from(server.addresses));
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    possible(&Machine {
        descriptors: sys::limits::raise_open_files(),
        ports_each: ports.saturating_mul(addresses.max(1)),
        clients,
        // Unknown memory does not limit.
        memory: Some(memory_available(&meminfo)).filter(|bytes| *bytes > 0),
    })
}

/// Resources of this machine.
struct Machine {
    /// Open files of a process.
    descriptors: u64,
    /// Ports of one client towards all addresses of the server.
    ports_each: u64,
    /// Addresses of clients.
    clients: u64,
    /// Free bytes.
    memory: Option<u64>,
}

fn possible(machine: &Machine) -> Possible {
    let files = machine.descriptors.saturating_sub(DESCRIPTORS_RESERVED) * u64::from(PROCESSES_MAX);
    let ports = machine.ports_each.saturating_mul(machine.clients);
    let memory = machine.memory.map_or(u64::MAX, |bytes| bytes / FREE_MEMORY_DIVISOR / KERNEL_BYTES_PER_CONNECTION);
    let of_files = format!(
        "a process may have {} open files, and there are at most {PROCESSES_MAX} processes: raise the limit (ulimit -n, or LimitNOFILE= of a service)",
        machine.descriptors
    );
    let of_ports = format!(
        "{} of clients with {} ports each: give a path (--rtt 0ms is the shortest) with more --clients, or the server more addresses",
        if machine.clients == 1 { "one address".to_owned() } else { format!("{} addresses", machine.clients) },
        machine.ports_each
    );
    let of_memory = format!(
        "a connection takes about {} KB of the kernel's memory, both ends together, and half of the free memory is left to the server",
        KERNEL_BYTES_PER_CONNECTION / 1000
    );
    let all = [(files, of_files), (ports, of_ports), (memory, of_memory)];
    let (connections, words) = all.into_iter().min_by_key(|(most, _)| *most).expect("three of them");
    Possible { connections, words }
}

/// Ports from one address to another that the kernel finds quickly: it tries every second port of its range first, and
/// when nine tenths of those are used a connect takes a millisecond.
pub(super) fn ports_easily_found() -> u32 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u32>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) if first <= last => ((last - first).div_ceil(2) * 9 / 10).max(1),
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_files_ports_and_memory_applies() {
        let machine = Machine { descriptors: 20_000, ports_each: PORTS_PER_ADDRESS, clients: 100, memory: None };
        assert_eq!(possible(&machine).connections, 19_872 * 64);
        assert!(possible(&machine).words.contains("ulimit -n"));
        let one = possible(&Machine { clients: 1, ports_each: 12_704, ..machine });
        assert_eq!(one.connections, 12_704);
        assert!(one.words.starts_with("one address of clients"), "{}", one.words);
        let small = possible(&Machine { memory: Some(2_000_000_000), ..machine });
        assert_eq!(small.connections, 100_000);
        assert!(small.words.contains("10 KB"), "{}", small.words);
    }

    #[test]
    fn a_plan_without_a_path_has_one_client_address() {
        let plan = |path: &str| {
            Plan::from_toml(&format!("[load]\nurl = \"http://127.0.0.1:1/\"\nduration = \"1s\"\n{path}"), "plan")
                .unwrap()
        };
        let direct = connections_possible(&plan(""), true).connections;
        assert!(direct > 0 && direct <= u64::from(ports_easily_found()), "{direct}");
        assert!(connections_possible(&plan("[path]\nrtt = \"0ms\"\n"), false).connections > 0);
    }
}
