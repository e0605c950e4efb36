//! Network features that a path needs.

use schema::doctor::{Area, Finding, State};
use sys::cgroup::BoundTrial;

use super::{not_ok, ok, tried};
use crate::facts::{Ends, Facts, Machine, Refusal, Rights, Trial};

const AREA: Area = Area::Network;

const REMOTE: [&str; 1] = ["bench --rtt, remote"];

const PATH: [&str; 1] = ["everything with a path"];

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let ends = &facts.ends;
    let lacking = |trial, name, touches: &[&str]| tried(trial, State::Missing, AREA, name, touches);
    let tun = match &ends.tun {
        Trial::NotTried => {
            Trial::Refused(Refusal { what: "not tried: there is no namespace for it".into(), fix: None })
        }
        trial => trial.clone(),
    };
    let mut found = Vec::new();
    found.extend(lacking(&ends.namespace, "namespaces", &PATH));
    found.extend(lacking(&tun, "tun", &PATH));
    found.extend(lacking(&ends.offload, "offloads", &["bytes/s through a path"]));
    found.extend(lacking(&ends.clients_v4, "client addresses", &PATH));
    found.extend(tried(&ends.clients_v6, State::Note, AREA, "IPv6 addresses", &["targets by IPv6 through a path"]));
    found.extend(lacking(&ends.sandbox, "sandboxes", &["bench --server", "net", "demo"]));
    found.extend(steering(&ends.steering));
    found.extend(tried(&ends.loopback, State::Note, AREA, "way to loopback", &["targets on 127.0.0.1 through a path"]));
    found.push(range(&facts.rights));
    found.extend(tried(&ends.masquerade, State::Note, AREA, "masquerading", &REMOTE));
    found.push(forwarding(&facts.rights));
    found.push(control_groups(ends));
    found.push(congestion(ends, &facts.machine));
    found
}

fn steering(trial: &Trial) -> Option<Finding> {
    let touches = ["server's CPU per request, capacity: receive processing is not attributed to the server"];
    tried(trial, State::Note, AREA, "receive work", &touches)
}

fn range(rights: &Rights) -> Finding {
    const NAME: &str = "benchmark ranges";
    match &rights.range_taken {
        None => ok(AREA, NAME, "198.18.0.0/15 and 2001:2::/48 are unused on this host"),
        Some(route) => not_ok(
            State::Note,
            AREA,
            NAME,
            format!("this host routes {route} itself"),
            &["targets outside the testbed through a path"],
            Some("remove that route, or start the server with --server".into()),
        ),
    }
}

fn forwarding(rights: &Rights) -> Finding {
    const NAME: &str = "host firewall";
    match &rights.forwarding_refused_by {
        None => ok(AREA, NAME, "no chain with a policy that drops forwarded packets"),
        Some(chain) => not_ok(
            State::Note,
            AREA,
            NAME,
            format!("chain {chain} drops packets that this host forwards, unless a rule accepts them"),
            &REMOTE,
            Some("iptables -I FORWARD -i yamabiko+ -j ACCEPT".into()),
        ),
    }
}

fn control_groups(ends: &Ends) -> Finding {
    const NAME: &str = "control groups";
    let touches = ["--server-cpu", "server's CPU: counted in clock ticks, from /proc"];
    match &ends.bound {
        Ok(BoundTrial::Bound) => ok(AREA, NAME, format!("{}; a CPU limit was set and removed", ends.cgroups)),
        Ok(BoundTrial::NotHandedOutYet) => ok(
            AREA,
            NAME,
            format!("{}; the first limit will enable the cpu controller in a parent group", ends.cgroups),
        ),
        Err(refusal) => not_ok(
            State::Note,
            AREA,
            NAME,
            format!("{}; {}", ends.cgroups, refusal.what),
            &touches,
            refusal.fix.clone(),
        ),
    }
}

fn congestion(ends: &Ends, machine: &Machine) -> Finding {
    const NAME: &str = "congestion control";
    let default = &machine.facts.congestion_control;
    let known = machine.congestion_controls.join(" ");
    if let Some(refusal) = ends.congestion.refusal() {
        let found = format!("{default} for all servers: {}", refusal.what);
        return not_ok(State::Note, AREA, NAME, found, &["--server-tcp cc="], refusal.fix.clone());
    }
    let found = format!("default {default}; available: {known}");
    if default.starts_with("bbr") {
        let touches = ["packet loss: bbr hides an effect that most servers show"];
        return not_ok(State::Note, AREA, NAME, found, &touches, Some("--server-tcp cc=cubic".into()));
    }
    ok(AREA, NAME, found)
}
