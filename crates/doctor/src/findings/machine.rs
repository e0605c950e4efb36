//! Kernel, cores, memory, limits, and the run store.

use schema::doctor::{Area, Finding, State};

use super::{not_ok, ok};
use crate::facts::{Facts, Machine, RunStoreFacts, Trial};

const AREA: Area = Area::Machine;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let machine = &facts.machine;
    let mut found = vec![kernel(machine), cores(machine), memory(machine), virtualisation(machine)];
    found.extend(frequency(machine));
    found.extend([descriptors(machine), ports(machine), run_store(&facts.run_store), io_uring(machine)]);
    found
}

fn kernel(machine: &Machine) -> Finding {
    let release = format!("Linux {} on {}", machine.facts.kernel, machine.facts.machine);
    match machine.kernel {
        Some(version) if version >= KERNEL_MIN => ok(AREA, "kernel", release),
        Some(_) => not_ok(
            State::Missing,
            AREA,
            "kernel",
            format!("{release}: older than {}.{}", KERNEL_MIN.0, KERNEL_MIN.1),
            &["serve, demo (openat2)"],
            Some("a newer kernel".into()),
        ),
        None => not_ok(State::Note, AREA, "kernel", format!("{release}: unknown version"), &[], None),
    }
}

fn cores(machine: &Machine) -> Finding {
    let (allowed, online) = (machine.allowed.list().len(), machine.facts.cores);
    let mut found = match allowed == online {
        true => format!("{online} online, all allowed"),
        false => format!("{online} online, {allowed} allowed ({})", machine.allowed),
    };
    if let Some(quota) = machine.quota {
        found.push_str(&format!("; a control group limits this process to {quota:.2} of them"));
    }
    let bounded = machine.quota.is_some_and(|quota| quota < allowed as f64);
    if allowed < 2 {
        let touches = ["capacity and timing error: server, path and load compete for the core"];
        return not_ok(State::Note, AREA, "cores", found, &touches, Some("two cores or more".into()));
    }
    if bounded {
        let touches = ["timing error, send lag: at the limit the whole run stalls for milliseconds"];
        let fix = "start the container or service without a CPU limit (--cpus, CPUQuota=)";
        return not_ok(State::Note, AREA, "cores", found, &touches, Some(fix.into()));
    }
    if allowed < online {
        return not_ok(State::Note, AREA, "cores", found, &["capacity"], Some("start without taskset".into()));
    }
    ok(AREA, "cores", found)
}

fn memory(machine: &Machine) -> Finding {
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let available = machine.memory_available_bytes;
    let connections = available / CONNECTION_BYTES;
    let found = format!(
        "{} of {} available: enough for about {} connections, both ends of each",
        gigabytes(available),
        gigabytes(machine.facts.memory_bytes),
        with_thousands_separators(connections / 1000 * 1000)
    );
    if connections < CONNECTIONS_EXPECTED {
        return not_ok(State::Note, AREA, "memory", found, &["many connections"], None);
    }
    ok(AREA, "memory", found)
}

fn virtualisation(machine: &Machine) -> Finding {
    let stolen = machine.steal_since_boot;
    let found = match (&machine.hypervisor, &machine.container) {
        (None, None) => "none detected".to_owned(),
        (Some(hypervisor), None) => format!("virtual machine: {hypervisor}"),
        (None, Some(container)) => format!("container: {container}"),
        (Some(hypervisor), Some(container)) => format!("virtual machine: {hypervisor}; container: {container}"),
    };
    let found = format!("{found}; {:.2} % of its CPU stolen since boot", 100.0 * stolen);
    if stolen > STEAL_MAX {
        let touches = ["all figures: the machine stalls while other guests run"];
        let fix = "a machine with dedicated cores, or fewer busy guests";
        return not_ok(State::Note, AREA, "virtualisation", found, &touches, Some(fix.into()));
    }
    ok(AREA, "virtualisation", found)
}

fn frequency(machine: &Machine) -> Option<Finding> {
    if machine.governors.is_empty() {
        return None;
    }
    let governors = machine.governors.join(", ");
    let steady = machine.governors.iter().all(|governor| governor == "performance");
    Some(if steady {
        ok(AREA, "frequency", format!("governor {governors}"))
    } else {
        not_ok(
            State::Note,
            AREA,
            "frequency",
            format!("governor {governors}: cores slow down when idle"),
            &["timing error at low rates, variation of capacity between runs"],
            Some("cpupower frequency-set -g performance".into()),
        )
    })
}

fn descriptors(machine: &Machine) -> Finding {
    let (soft, hard) = machine.facts.nofile;
    let found =
        format!("{} (soft limit), {} (hard limit)", with_thousands_separators(soft), with_thousands_separators(hard));
    if hard < DESCRIPTORS_EXPECTED {
        let each = with_thousands_separators(hard.saturating_sub(128));
        let touches = [format!("-c: {each} connections per process; for more, bench uses several")];
        let fix = "ulimit -Hn 100000 as root, LimitNOFILE=100000 of a service, --ulimit nofile=100000 of a container";
        let touches: Vec<&str> = touches.iter().map(String::as_str).collect();
        let state = if hard < DESCRIPTORS_MIN { State::Missing } else { State::Note };
        return not_ok(state, AREA, "descriptors", found, &touches, Some(fix.into()));
    }
    ok(AREA, "descriptors", found)
}

fn ports(machine: &Machine) -> Finding {
    let (first, last) = machine.facts.ephemeral_ports;
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let waiting = machine
        .time_wait_max
        .map_or(String::new(), |most| format!("; TIME_WAIT: at most {}", with_thousands_separators(most)));
    let found = format!(
        "{first} to {last}: {} concurrent connections to one address and port{waiting}",
        with_thousands_separators(ports)
    );
    if ports < PORTS_EXPECTED {
        let touches = ["bench URL without a path, one connection per request"];
        let fix = "sysctl -w net.ipv4.ip_local_port_range='15000 65535'";
        return not_ok(State::Note, AREA, "ports", found, &touches, Some(fix.into()));
    }
    ok(AREA, "ports", found)
}

fn run_store(store: &RunStoreFacts) -> Finding {
    let root = store.root.display();
    let free_space = store.free_bytes.map_or(String::new(), |free| format!(", {:.1} GB free", free as f64 / 1e9));
    if !store.writable {
        return not_ok(
            State::Missing,
            AREA,
            "run store",
            format!("{root} is not writable"),
            &["every stored run"],
            Some("set YAMABIKO_RUNS to a writable directory, or give --no-save".into()),
        );
    }
    if store.free_bytes.is_some_and(|free| free < FREE_BYTES_EXPECTED) {
        let found = format!("{root}{free_space}");
        let fix = Some("set YAMABIKO_RUNS to a directory with more free space".into());
        return not_ok(State::Note, AREA, "run store", found, &["long runs: about 40 bytes per request"], fix);
    }
    ok(AREA, "run store", format!("{root}{free_space}"))
}

fn io_uring(machine: &Machine) -> Finding {
    let found = match &machine.io_uring {
        Trial::Worked(_) => "available".to_owned(),
        Trial::Refused(refusal) => format!("not available ({}): epoll is used, with more system calls", refusal.what),
        Trial::NotTried => "not tried".to_owned(),
    };
    ok(AREA, "io_uring", found)
}

/// Formats with thousands separators: 13427 is `13,427`.
pub(super) fn with_thousands_separators(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The static server opens files with openat2(2), which is of 5.6; all other calls are older.
const KERNEL_MIN: (u32, u32) = (5, 6);
/// Kernel memory of a connection, both ends: measured 6 to 10 KB.
const CONNECTION_BYTES: u64 = 10_000;
const CONNECTIONS_EXPECTED: u64 = 20_000;
/// A run counts as disturbed from 10 % on; a mean since boot of a tenth of that may hide such times.
const STEAL_MAX: f64 = 0.01;
/// Below this most plans with many connections are refused; most current systems allow far more.
const DESCRIPTORS_EXPECTED: u64 = 10_000;
/// A run's own descriptors, and some connections.
const DESCRIPTORS_MIN: u64 = 256;
/// The kernel's default range has 28,232 ports.
const PORTS_EXPECTED: u64 = 20_000;
/// Records of ten million requests, and captures.
const FREE_BYTES_EXPECTED: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::with_thousands_separators;

    #[test]
    fn numbers_have_thousands_separators() {
        assert_eq!((with_thousands_separators(0).as_str(), with_thousands_separators(999).as_str()), ("0", "999"));
        assert_eq!(
            (with_thousands_separators(1000).as_str(), with_thousands_separators(1_048_576).as_str()),
            ("1,000", "1,048,576")
        );
    }
}
