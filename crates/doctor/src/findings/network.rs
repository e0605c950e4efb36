//! What a path is built from.

use schema::doctor::{Area, Finding, State};
use sys::cgroup::BoundTrial;

use super::{fine, not_fine, tried};
use crate::facts::{Ends, Facts, Machine, Refusal, Rights, Trial};

const AREA: Area = Area::Network;

const REMOTE: [&str; 1] = ["bench --rtt, remote"];

const PATH: [&str; 1] = ["everything with a path"];

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let ends = &facts.ends;
    let lacking = |trial, name, touches: &[&str]| tried(trial, State::Lacking, AREA, name, touches);
    let tun = match &ends.tun {
        Trial::NotTried => Trial::Refused(Refusal { what: "not tried: no namespace to put it in".into(), mend: None }),
        trial => trial.clone(),
    };
    let mut found = Vec::new();
    found.extend(lacking(&ends.namespace, "namespaces", &PATH));
    found.extend(lacking(&tun, "tun", &PATH));
    found.extend(lacking(&ends.offload, "offloads", &["bytes/s through a path"]));
    found.extend(lacking(&ends.clients_v4, "client addresses", &PATH));
    found.extend(tried(
        &ends.clients_v6,
        State::WorthKnowing,
        AREA,
        "IPv6 addresses",
        &["targets by IPv6 through a path"],
    ));
    found.extend(lacking(&ends.place, "places", &["bench --server", "net", "demo"]));
    found.extend(steering(&ends.steering));
    found.extend(tried(
        &ends.loopback,
        State::WorthKnowing,
        AREA,
        "way to loopback",
        &["targets on 127.0.0.1 through a path"],
    ));
    found.push(range(&facts.rights));
    found.extend(tried(&ends.masquerade, State::WorthKnowing, AREA, "masquerading", &REMOTE));
    found.push(forwarding(&facts.rights));
    found.push(control_groups(ends));
    found.push(congestion(ends, &facts.machine));
    found
}

fn steering(trial: &Trial) -> Option<Finding> {
    let touches = ["server's CPU per request, capacity: receive work is not told apart"];
    tried(trial, State::WorthKnowing, AREA, "receive work", &touches)
}

fn range(rights: &Rights) -> Finding {
    const NAME: &str = "benchmark ranges";
    match &rights.range_taken {
        None => fine(AREA, NAME, "198.18.0.0/15 and 2001:2::/48 are nobody's on this host"),
        Some(route) => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            format!("this host routes {route} itself"),
            &["targets outside the lab through a path"],
            Some("take that route away, or start the server with --server".into()),
        ),
    }
}

fn forwarding(rights: &Rights) -> Finding {
    const NAME: &str = "host firewall";
    match &rights.forwarding_refused_by {
        None => fine(AREA, NAME, "no chain seen that drops what is forwarded"),
        Some(chain) => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            format!("chain {chain} drops what this host forwards, unless a rule lets it through"),
            &REMOTE,
            Some("iptables -I FORWARD -i yamabiko+ -j ACCEPT".into()),
        ),
    }
}

fn control_groups(ends: &Ends) -> Finding {
    const NAME: &str = "control groups";
    let touches = ["--server-cpu", "server's CPU: counted by the tick, from /proc"];
    match &ends.bound {
        Ok(BoundTrial::Bound) => fine(AREA, NAME, format!("{}; a bound on CPU was set and taken away", ends.cgroups)),
        Ok(BoundTrial::NotHandedOutYet) => fine(
            AREA,
            NAME,
            format!("{}; the first bound will tell a group above to hand the cpu controller out", ends.cgroups),
        ),
        Err(refusal) => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            format!("{}; {}", ends.cgroups, refusal.what),
            &touches,
            refusal.mend.clone(),
        ),
    }
}

fn congestion(ends: &Ends, machine: &Machine) -> Finding {
    const NAME: &str = "congestion control";
    let default = &machine.facts.congestion_control;
    let known = machine.congestion_controls.join(" ");
    if let Some(refusal) = ends.congestion.refusal() {
        let found = format!("{default} for every server: {}", refusal.what);
        return not_fine(State::WorthKnowing, AREA, NAME, found, &["--server-tcp cc="], refusal.mend.clone());
    }
    let found = format!("{default} unless said; this kernel has {known}");
    if default.starts_with("bbr") {
        let touches = ["loss: bbr hides what most servers suffer from"];
        return not_fine(State::WorthKnowing, AREA, NAME, found, &touches, Some("--server-tcp cc=cubic".into()));
    }
    fine(AREA, NAME, found)
}
