//! Scheduling class of a loop, which depends on other users of its core.

use std::net::SocketAddr;
use std::net::UdpSocket;

use sys::sched::{Cores, RealTimeLock, Urgency};

use crate::host::CorePlan;
use crate::topology::listening;
use plan::{Plan, Wait};

/// Whether a loop has a core of its own: the testbed pinned it there and the server elsewhere, or this process was
/// pinned from outside and no process that listens at `addresses` may run on that core. If this is unknown the answer
/// is no.
pub(super) fn has_own_core(cores: &CorePlan, allowed: &Cores, addresses: &[SocketAddr]) -> bool {
    cores.loop_core().is_some() || (is_pinned(allowed) && is_free_of_servers(allowed, addresses))
}

/// Whether a thread that may use these cores is pinned to one core of several.
pub(super) fn is_pinned(cores: &Cores) -> bool {
    cores.list().len() == 1 && sys::sched::cores_online() > 1
}

/// An open loop on its own core sleeps between arrivals: the real-time class keeps it on time while other programs run.
/// A closed loop may be busy all the time, as is a loop that spins: other programs would alternate with it. A loop
/// without its own core must not starve the server, and two on one core would not alternate.
pub(super) fn urgency(plan: &Plan, own_core: bool) -> (Urgency, Option<RealTimeLock>) {
    let sleeps = plan.load.is_open() && own_core && plan.host.wait != Wait::Spin;
    match sleeps.then(RealTimeLock::acquire).flatten() {
        Some(right) => (Urgency::RealTime, Some(right)),
        None => (Urgency::High, None),
    }
}

/// Whether none of these services runs on `cores`: each is on another host, or all its listening processes run
/// elsewhere. A Unix socket has no address, so nothing is known.
fn is_free_of_servers(cores: &Cores, addresses: &[SocketAddr]) -> bool {
    let apart = |address: &SocketAddr| match listening::cores_of(address.ip(), address.port()) {
        Some(theirs) => theirs.list().iter().all(|core| !cores.list().contains(core)),
        None => !is_of_this_host(address),
    };
    !addresses.is_empty() && addresses.iter().all(apart)
}

/// Whether this host has the address: it can be bound. (With net.ipv4.ip_nonlocal_bind foreign addresses can be bound
/// too, and every host counts as this one, which is the safe error.)
fn is_of_this_host(address: &SocketAddr) -> bool {
    UdpSocket::bind((address.ip(), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_free_only_if_the_service_is_known_to_run_elsewhere() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let own = Cores::allowed().unwrap();
        let nowhere = Cores::new(vec![100_000]);
        // This process listens, on all of its cores.
        assert!(!is_free_of_servers(&own, &[address]));
        assert!(is_free_of_servers(&nowhere, &[address]));
        // One address on this core is sufficient for `false`.
        let remote = "192.0.2.7:80".parse().unwrap();
        assert!(is_free_of_servers(&own, &[remote]));
        assert!(!is_free_of_servers(&own, &[remote, address]));
        drop(listener);
        // Unknown services, and services behind a Unix socket.
        assert!(!is_free_of_servers(&nowhere, &[address]));
        assert!(!is_free_of_servers(&nowhere, &[]));
    }

    #[test]
    fn a_core_pinned_by_the_testbed_is_the_loops_own() {
        let cores = Cores::new(vec![0, 1]);
        let split = CorePlan::new(plan::Placement::Split, &cores, 1);
        assert!(has_own_core(&split, &cores, &[]));
        assert!(!has_own_core(&CorePlan::default(), &cores, &[]));
        assert!(
            !has_own_core(&CorePlan::default(), &Cores::new(vec![0]), &[]),
            "pinned from outside, by an unknown program"
        );
    }
}
