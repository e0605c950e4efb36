//! How many connections a load can have open at once on this machine, known before one is opened: by open files, ports, memory, and
//! addresses of clients. Whoever seeks the most that a server holds must know first what he could open himself.

use super::resources::{DESCRIPTORS_KEPT, PROCESSES_MAX};
use plan::Plan;
use sys::accounting::memory_available;

/// Ports of an address in the clients' namespace (`places/ends.rs` sets the range from 1024 to 65535).
const PORTS_EACH: u64 = 65_535 - 1_024 + 1;
/// Memory of the kernel for a connection, both ends and the path between them here (docs/notes: 6 to 10 KB).
const BYTES_EACH: u64 = 10_000;
/// Of the memory that is free, so much is left to servers and everything else: one over this.
const MEMORY_LEFT: u64 = 2;

/// The most connections, and what allows no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Possible {
    /// So many at once.
    pub connections: u64,
    /// A sentence without its end.
    pub words: String,
}

/// How many connections the load of a plan can have open at once. `each_a_client`: each of them, or the few of a user, is of a client with
/// an address of its own; otherwise the plan says how many clients there are.
pub fn connections_possible(plan: &Plan, each_a_client: bool) -> Possible {
    let clients = match (each_a_client, plan.path.is_some()) {
        (true, true) => u64::from(::path::AddressPlan::CLIENTS_MAX),
        (false, true) => u64::from(plan.load.clients),
        // All of them have this host's address.
        (_, false) => 1,
    };
    let ports = match (&plan.path, &plan.load.unix) {
        (_, Some(_)) => u64::MAX,
        (Some(_), None) => PORTS_EACH,
        (None, None) => u64::from(ports_easily_found()),
    };
    let addresses =
        plan.server.as_ref().map_or(plan.target.addresses.len() as u64, |server| u64::from(server.addresses));
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    possible(&Machine {
        descriptors: sys::limits::raise_open_files(),
        ports_each: ports.saturating_mul(addresses.max(1)),
        clients,
        // Where nobody knows, it is no limit.
        memory: Some(memory_available(&meminfo)).filter(|bytes| *bytes > 0),
    })
}

/// What there is.
struct Machine {
    /// Open files of a process.
    descriptors: u64,
    /// Ports of one client towards all addresses of the server.
    ports_each: u64,
    /// Addresses of clients.
    clients: u64,
    /// Bytes that are free.
    memory: Option<u64>,
}

fn possible(machine: &Machine) -> Possible {
    let files = machine.descriptors.saturating_sub(DESCRIPTORS_KEPT) * u64::from(PROCESSES_MAX);
    let ports = machine.ports_each.saturating_mul(machine.clients);
    let memory = machine.memory.map_or(u64::MAX, |bytes| bytes / MEMORY_LEFT / BYTES_EACH);
    let of_files = format!(
        "a process may have {} open files, and {PROCESSES_MAX} processes are the most: raise the limit (ulimit -n, or LimitNOFILE= of a service)",
        machine.descriptors
    );
    let of_ports = format!(
        "{} of clients with {} ports at hand each: give a path (--rtt 0ms is the shortest) with more --clients, or the server more addresses",
        if machine.clients == 1 { "one address".to_owned() } else { format!("{} addresses", machine.clients) },
        machine.ports_each
    );
    let of_memory = format!(
        "a connection takes about {} KB of the kernel's memory, both ends together, and half of what is free is left to the server",
        BYTES_EACH / 1000
    );
    let all = [(files, of_files), (ports, of_ports), (memory, of_memory)];
    let (connections, words) = all.into_iter().min_by_key(|(most, _)| *most).expect("three of them");
    Possible { connections, words }
}

/// Connections that one address can open to another without the kernel searching long for a port: it looks through
/// every second port of its range first, and when nine tenths of those are taken a connect takes a millisecond.
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
    fn the_least_of_files_ports_and_memory_is_the_most() {
        let machine = Machine { descriptors: 20_000, ports_each: PORTS_EACH, clients: 100, memory: None };
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
    fn a_plan_without_a_path_has_one_address() {
        let plan = |path: &str| {
            Plan::from_toml(&format!("[load]\nurl = \"http://127.0.0.1:1/\"\nduration = \"1s\"\n{path}"), "plan")
                .unwrap()
        };
        let direct = connections_possible(&plan(""), true).connections;
        assert!(direct > 0 && direct <= u64::from(ports_easily_found()), "{direct}");
        assert!(connections_possible(&plan("[path]\nrtt = \"0ms\"\n"), false).connections > 0);
    }
}
