//! Whether several machines may offer this load to this host.
//!
//! One machine is at most a nuisance to a site; a hundred are an attack. So shards refuse hosts with public addresses,
//! unless a person has repeated the host's name (`--i-own-the-target`), or the host itself permits it by a file,
//! `/.well-known/yamabiko.txt`:
//!
//! ```text
//! # comment
//! load-test: allowed
//! max-rate: 5000
//! ```
//!
//! The file permits at most [`RATE_MAX`] requests per second of all shards together, or its own `max-rate`. The rate of
//! a closed loop has no bound, so the file does not permit it.

use std::net::{IpAddr, SocketAddr};

use load::{Arrivals, Target};

use super::resolve::Resolved;
use crate::error::TestbedError;
use crate::get::Request;
use crate::topology::target::resolve;

/// Path of the file by which a host permits load.
const PATH: &str = "/.well-known/yamabiko.txt";
/// Requests per second that a file without `max-rate` permits.
const RATE_MAX: f64 = 1_000.0;

/// Refuses a load of several machines that its target does not permit. Requests [`PATH`] of each public host that the
/// plan does not name as owned.
///
/// # Errors
/// A host that does not permit the load, or not at this rate; an owned host that is none of the load's.
pub(super) fn check(resolved: &Resolved, arrivals: &Arrivals) -> Result<(), TestbedError> {
    let plan = &resolved.plan;
    let mut hosts: Vec<(usize, &Target)> = Vec::new();
    for (number, target) in resolved.targets.iter().enumerate() {
        if !hosts.iter().any(|(_, other)| is_same(other, target)) {
            hosts.push((number, target));
        }
    }
    let names = |host: &str, target: &Target| host.eq_ignore_ascii_case(&target.host);
    if let Some(other) = plan.target.owned.iter().find(|owned| !hosts.iter().any(|(_, target)| names(owned, target))) {
        let hosts: Vec<&str> = hosts.iter().map(|(_, target)| target.host.as_str()).collect();
        return Err(TestbedError::Plan(format!(
            "[target] owned (--i-own-the-target): `{}` is not a host of this load; expected {}",
            units::printable(other),
            hosts.join(", ")
        )));
    }
    if resolved.shard.is_none() || plan.load.unix.is_some() {
        return Ok(());
    }
    for (number, target) in hosts {
        if plan.target.owned.iter().any(|owned| names(owned, target)) {
            continue;
        }
        let addresses = addresses_of(resolved, number, target);
        if !addresses.as_ref().is_none_or(|addresses| addresses.iter().any(|at| is_public(at.ip()))) {
            continue;
        }
        let refusal = match (&plan.load.proxy, &addresses) {
            (None, Some(addresses)) => permitted(resolved, target, addresses[0], arrivals).err(),
            _ => Some("behind a proxy (--proxy) its permission is not requested".into()),
        };
        if let Some(why) = refusal {
            return Err(TestbedError::Plan(format!(
                "several machines offer load to a host with a public address only with its permission: {why}; if {} is yours, or \
                 its owner has agreed, add --i-own-the-target {}",
                target.host, target.host
            )));
        }
    }
    Ok(())
}

fn is_same(one: &Target, other: &Target) -> bool {
    one.host.eq_ignore_ascii_case(&other.host) && one.port == other.port && one.secure == other.secure
}

/// The addresses that get the load, first those of connections; `None` if only a proxy knows them.
fn addresses_of(resolved: &Resolved, number: usize, target: &Target) -> Option<Vec<SocketAddr>> {
    let mut addresses = resolved.destination.endpoints.get(number)?.addresses().to_vec();
    if resolved.plan.load.proxy.is_some() {
        let behind = resolve(&target.host, target.port, &resolved.plan.target).ok()?;
        addresses.extend(behind.into_iter().map(|address| SocketAddr::new(address, target.port)));
    }
    (!addresses.is_empty()).then_some(addresses)
}

/// Requests the host's permission, and compares the offered rate with it.
///
/// # Errors
/// Why the load is not permitted, without a full stop.
fn permitted(resolved: &Resolved, target: &Target, server: SocketAddr, arrivals: &Arrivals) -> Result<(), String> {
    let tls = if target.secure { resolved.tls().map_err(|error| error.to_string())? } else { None };
    let tls = tls.map(|tls| tls.for_one_request(&target.host)).transpose()?;
    let request = Request { server, authority: &target.authority, path: PATH, tls };
    let text = request.body().map_err(|error| format!("{}{PATH}: {error}", target.authority))?;
    let permission = Permission::parse(&text).map_err(|why| format!("{}{PATH}: {why}", target.authority))?;
    match arrivals.peak_per_second() {
        None => Err(format!("{}{PATH} bounds the rate, and a closed loop (-c) has no bound", target.authority)),
        Some(rate) if rate > permission.rate_max => Err(format!(
            "{}{PATH} permits {} requests per second, and this load has up to {rate:.0}",
            target.authority, permission.rate_max
        )),
        Some(_) => Ok(()),
    }
}

/// What a host permits.
#[derive(Debug, PartialEq)]
struct Permission {
    /// Requests per second of all machines together.
    rate_max: f64,
}

impl Permission {
    /// Reads `KEY: VALUE` lines. Unknown keys are ignored: later versions may have more.
    fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
        let (mut is_allowed, mut rate_max) = (false, RATE_MAX);
        for (key, value) in pairs {
            match key {
                "load-test" => is_allowed = value == "allowed",
                "max-rate" => {
                    let rate = value.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
                    rate_max = rate.ok_or_else(|| {
                        format!("max-rate: `{}`: expected requests per second", units::printable(value))
                    })?;
                }
                _ => {}
            }
        }
        if is_allowed { Ok(Permission { rate_max }) } else { Err("has no line `load-test: allowed`".into()) }
    }
}

/// Whether an address is one that the Internet routes, so that it may be another's.
///
/// Source: IANA's special-purpose address registries (RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [first, second, third, _] = address.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            let is_benchmarking = first == 198 && (second == 18 || second == 19);
            let is_reserved = first == 0 || first >= 240 || [first, second, third] == [192, 0, 0];
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_documentation()
                || address.is_multicast()
                || is_shared
                || is_benchmarking
                || is_reserved)
        }
        IpAddr::V6(address) => {
            let segments = address.segments();
            // NAT64 (RFC 6052) leads to IPv4 addresses anywhere.
            let is_translated = segments[..2] == [0x64, 0xff9b];
            let is_global = segments[0] & 0xe000 == 0x2000;
            let is_documentation = segments[..2] == [0x2001, 0xdb8] || segments[0] & 0xfff0 == 0x3ff0;
            let is_benchmarking = segments[..3] == [0x2001, 2, 0];
            is_translated || is_global && !is_documentation && !is_benchmarking
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "203.0.114.1",
            "2600::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "198.19.255.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "2001:db8::1",
            "2001:2:0:1::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
    }

    #[test]
    fn permission_is_explicit_and_bounds_the_rate() {
        let rate = |text: &str| Permission::parse(text).map(|permission| permission.rate_max);
        assert_eq!(rate("load-test: allowed\n"), Ok(RATE_MAX));
        assert_eq!(rate("# ours\r\n load-test :allowed\r\nmax-rate: 5000\r\nlater: x\r\n"), Ok(5000.0));
        // The page of a site that responds to every path with 200.
        for other in ["", "<html>load-test: allowed</html>", "load-test: no", "# load-test: allowed", "max-rate: 5"] {
            assert!(rate(other).unwrap_err().contains("load-test: allowed"), "{other}");
        }
        for wrong in ["x", "-1", "inf", "NaN", ""] {
            assert!(
                rate(&format!("load-test: allowed\nmax-rate: {wrong}")).unwrap_err().contains("max-rate"),
                "{wrong}"
            );
        }
    }
}
