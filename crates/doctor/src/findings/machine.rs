//! Kernel, cores, memory, limits, and where runs are kept.

use schema::doctor::{Area, Finding, State};

use super::{fine, not_fine};
use crate::facts::{BookFacts, Facts, Machine, Trial};

const AREA: Area = Area::Machine;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let machine = &facts.machine;
    let mut found = vec![kernel(machine), cores(machine), memory(machine), virtualisation(machine)];
    found.extend(frequency(machine));
    found.extend([descriptors(machine), ports(machine), book(&facts.book), io_uring(machine)]);
    found
}

fn kernel(machine: &Machine) -> Finding {
    let release = format!("Linux {} on {}", machine.facts.kernel, machine.facts.machine);
    match machine.kernel {
        Some(version) if version >= KERNEL_MIN => fine(AREA, "kernel", release),
        Some(_) => not_fine(
            State::Lacking,
            AREA,
            "kernel",
            format!("{release}: older than {}.{}", KERNEL_MIN.0, KERNEL_MIN.1),
            &["serve, demo (openat2)"],
            Some("a newer kernel".into()),
        ),
        None => not_fine(State::WorthKnowing, AREA, "kernel", format!("{release}: no version known here"), &[], None),
    }
}

fn cores(machine: &Machine) -> Finding {
    let (allowed, online) = (machine.allowed.list().len(), machine.facts.cores);
    let mut found = match allowed == online {
        true => format!("{online} online, all allowed"),
        false => format!("{online} online, {allowed} allowed ({})", machine.allowed),
    };
    if let Some(quota) = machine.quota {
        found.push_str(&format!("; a control group bounds this process to {quota:.2} of them"));
    }
    let bounded = machine.quota.is_some_and(|quota| quota < allowed as f64);
    if allowed < 2 {
        let touches = ["capacity and lateness: server, path and load take the core from one another"];
        return not_fine(State::WorthKnowing, AREA, "cores", found, &touches, Some("two cores or more".into()));
    }
    if bounded {
        let touches = ["lateness, send lag: at its bound the whole run stands still for milliseconds"];
        let mend = "start the container or service without a bound on CPU (--cpus, CPUQuota=)";
        return not_fine(State::WorthKnowing, AREA, "cores", found, &touches, Some(mend.into()));
    }
    if allowed < online {
        return not_fine(
            State::WorthKnowing,
            AREA,
            "cores",
            found,
            &["capacity"],
            Some("start without taskset".into()),
        );
    }
    fine(AREA, "cores", found)
}

fn memory(machine: &Machine) -> Finding {
    let gigabytes = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
    let available = machine.memory_available_bytes;
    let connections = available / CONNECTION_BYTES;
    let found = format!(
        "{} of {} available: room for some {} connections, both ends of each",
        gigabytes(available),
        gigabytes(machine.facts.memory_bytes),
        grouped(connections / 1000 * 1000)
    );
    if connections < CONNECTIONS_MIN {
        return not_fine(State::WorthKnowing, AREA, "memory", found, &["many connections"], None);
    }
    fine(AREA, "memory", found)
}

fn virtualisation(machine: &Machine) -> Finding {
    let stolen = machine.steal_since_boot;
    let found = match (&machine.hypervisor, &machine.container) {
        (None, None) => "none seen".to_owned(),
        (Some(hypervisor), None) => format!("virtual machine: {hypervisor}"),
        (None, Some(container)) => format!("container: {container}"),
        (Some(hypervisor), Some(container)) => format!("virtual machine: {hypervisor}; container: {container}"),
    };
    let found = format!("{found}; {:.2} % of its CPU stolen since boot", 100.0 * stolen);
    if stolen > STEAL_MAX {
        let touches = ["every figure: the machine stands still while others run"];
        let mend = "a machine with cores of its own, or quieter neighbours";
        return not_fine(State::WorthKnowing, AREA, "virtualisation", found, &touches, Some(mend.into()));
    }
    fine(AREA, "virtualisation", found)
}

fn frequency(machine: &Machine) -> Option<Finding> {
    if machine.governors.is_empty() {
        return None;
    }
    let governors = machine.governors.join(", ");
    let steady = machine.governors.iter().all(|governor| governor == "performance");
    Some(if steady {
        fine(AREA, "frequency", format!("governor {governors}"))
    } else {
        not_fine(
            State::WorthKnowing,
            AREA,
            "frequency",
            format!("governor {governors}: cores slow down when idle"),
            &["lateness at low rates, capacity from run to run"],
            Some("cpupower frequency-set -g performance".into()),
        )
    })
}

fn descriptors(machine: &Machine) -> Finding {
    let (soft, hard) = machine.facts.nofile;
    let found = format!("{} now, {} when asked for", grouped(soft), grouped(hard));
    if hard < DESCRIPTORS_WANTED {
        let each = grouped(hard.saturating_sub(128));
        let touches = [format!("-c: {each} connections in a process; for more, bench takes several")];
        let mend = "ulimit -Hn 100000 as root, LimitNOFILE=100000 of a service, --ulimit nofile=100000 of a container";
        let touches: Vec<&str> = touches.iter().map(String::as_str).collect();
        let state = if hard < DESCRIPTORS_MIN { State::Lacking } else { State::WorthKnowing };
        return not_fine(state, AREA, "descriptors", found, &touches, Some(mend.into()));
    }
    fine(AREA, "descriptors", found)
}

fn ports(machine: &Machine) -> Finding {
    let (first, last) = machine.facts.ephemeral_ports;
    let ports = u64::from(last.saturating_sub(first)) + 1;
    let waiting = machine.time_wait_max.map_or(String::new(), |most| format!("; TIME_WAIT: at most {}", grouped(most)));
    let found = format!("{first} to {last}: {} connections to one address and port at once{waiting}", grouped(ports));
    if ports < PORTS_WANTED {
        let touches = ["bench URL without a path, one connection per request"];
        let mend = "sysctl -w net.ipv4.ip_local_port_range='15000 65535'";
        return not_fine(State::WorthKnowing, AREA, "ports", found, &touches, Some(mend.into()));
    }
    fine(AREA, "ports", found)
}

fn book(book: &BookFacts) -> Finding {
    let root = book.root.display();
    let room = book.free_bytes.map_or(String::new(), |free| format!(", {:.1} GB free", free as f64 / 1e9));
    if !book.writable {
        return not_fine(
            State::Lacking,
            AREA,
            "book",
            format!("{root} cannot be written to"),
            &["every run that is kept"],
            Some("set YAMABIKO_RUNS to a folder of yours, or give --no-save".into()),
        );
    }
    if book.free_bytes.is_some_and(|free| free < ROOM_WANTED) {
        let found = format!("{root}{room}");
        let mend = Some("set YAMABIKO_RUNS to a folder with more room".into());
        return not_fine(State::WorthKnowing, AREA, "book", found, &["long runs: some 40 bytes a request"], mend);
    }
    fine(AREA, "book", format!("{root}{room}"))
}

fn io_uring(machine: &Machine) -> Finding {
    let found = match &machine.io_uring {
        Trial::Worked(_) => "available".to_owned(),
        Trial::Refused(refusal) => format!("none ({}): epoll serves as well, at more system calls", refusal.what),
        Trial::NotTried => "not tried".to_owned(),
    };
    fine(AREA, "io_uring", found)
}

/// 13427 is `13,427`.
pub(super) fn grouped(value: u64) -> String {
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

/// openat2(2), which the static server opens files with, is of 5.6; everything else is older.
const KERNEL_MIN: (u32, u32) = (5, 6);
/// Kernel memory of a connection, both ends, as measured: 6 to 10 KB.
const CONNECTION_BYTES: u64 = 10_000;
const CONNECTIONS_MIN: u64 = 20_000;
/// The gate calls a run disturbed from 10 % on; a mean since boot of a tenth of that hides such moments.
const STEAL_MAX: f64 = 0.01;
/// Below this most plans of many connections are refused; most systems of today allow far more.
const DESCRIPTORS_WANTED: u64 = 10_000;
/// What a run needs before its first connection, and some connections.
const DESCRIPTORS_MIN: u64 = 256;
/// The default range of the kernel has 28,232.
const PORTS_WANTED: u64 = 20_000;
/// Ten million requests' records, and captures.
const ROOM_WANTED: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_apart() {
        assert_eq!((grouped(0).as_str(), grouped(999).as_str()), ("0", "999"));
        assert_eq!((grouped(1000).as_str(), grouped(1_048_576).as_str()), ("1,000", "1,048,576"));
    }
}
