//! Privileges of this user, read before the process enters a user namespace.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;

use sys::idle::Awake;
use sys::namespace::{Privilege, in_user_namespace, privilege};
use sys::netlink::Netlink;
use sys::probe;
use sys::sched::Urgency;

use super::facts::{Rights, Trial};

/// Tries what needs no namespace.
pub fn read() -> Rights {
    let privilege = privilege();
    let user = probe::user();
    let in_user_namespace = in_user_namespace();
    Rights {
        user,
        in_user_namespace,
        ordinary_user: (user == 0 && !in_user_namespace && privilege == Privilege::Root)
            .then(|| Trial::of(probe::ordinary_user(), "can create namespaces and open /dev/net/tun")),
        privilege,
        urgency: urgency(),
        awake: Trial::of(Awake::prevent_sleep(), "processors stay awake during a run"),
        capture: Trial::of(probe::packet_socket(), "packets of this host's devices can be captured"),
        host_network: Trial::of(probe::change_network(), "devices and routes of this host can be added"),
        range_taken: RANGES.iter().find_map(|(network, prefix)| first_route(network.parse().ok()?, *prefix)),
        forwarding_refused_by: sys::nft::forwarding_refused_by(IpAddr::from([0, 0, 0, 0])).ok().flatten(),
        settings: settings(|path| fs::read_to_string(path).ok()),
    }
}

/// The scheduling class that a thread gets when it requests the real-time class, tried in a thread of its own.
fn urgency() -> Urgency {
    let thread = std::thread::Builder::new().spawn(|| Urgency::RealTime.apply_to_this_thread());
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or(Urgency::Ordinary)
}

/// The first route of this host to any address of `network`.
fn first_route(network: IpAddr, prefix: u8) -> Option<String> {
    let mut netlink = Netlink::open().ok()?;
    let routes = netlink.routes(network).ok()?;
    let route = routes.iter().find(|route| route.overlaps(network, prefix))?;
    let device = route.device.and_then(|index| netlink.link_name(index).ok());
    let destination = route.dst.map_or("everything".into(), |dst| format!("{dst}/{}", route.prefix));
    Some(format!("{destination} by {}", device.as_deref().unwrap_or("no device")))
}

/// Reserved for benchmarks by RFC 2544 and RFC 5180: the addresses of the testbed.
const RANGES: [(&str, u8); 2] = [("198.18.0.0", 15), ("2001:2::", 48)];

/// The settings that decide who may create namespaces, as far as this kernel has them.
fn settings(read: impl Fn(&str) -> Option<String>) -> BTreeMap<&'static str, String> {
    let value = |name: &&'static str| {
        let text = read(&format!("/proc/sys/{}", name.replace('.', "/")))?;
        Some((*name, text.trim().to_owned()))
    };
    SETTINGS.iter().filter_map(value).collect()
}

const SETTINGS: [&str; 6] = [
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.io_uring_disabled",
    "kernel.sched_rt_runtime_us",
    "user.max_user_namespaces",
    "user.max_net_namespaces",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_settings_are_read() {
        let ubuntu = |path: &str| match path {
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns" => Some("1\n".to_owned()),
            "/proc/sys/user/max_user_namespaces" => Some("63459\n".to_owned()),
            _ => None,
        };
        let found = settings(ubuntu);
        assert_eq!(found.len(), 2);
        assert_eq!(found["kernel.apparmor_restrict_unprivileged_userns"], "1");
        assert_eq!(found["user.max_user_namespaces"], "63459");
    }
}
