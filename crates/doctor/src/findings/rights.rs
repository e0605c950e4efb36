//! What this user may do.

use std::collections::BTreeMap;

use schema::doctor::{Area, Finding, State};
use sys::namespace::Privilege;
use sys::sched::Urgency;

use super::{fine, not_fine, tried};
use crate::facts::{Facts, Rights};

const AREA: Area = Area::Rights;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let rights = &facts.rights;
    let mut found = vec![privilege(rights)];
    found.extend(ordinary_user(rights));
    found.push(real_time(rights));
    found.extend(tried(
        &rights.awake,
        State::WorthKnowing,
        AREA,
        "idle processors",
        &["lateness on a host with other guests"],
    ));
    found.extend(tried(&rights.capture, State::Lacking, AREA, "capture", &["watch -i"]));
    let through = ["bench and net through a path to a target outside the lab"];
    found.extend(tried(&rights.host_network, State::Lacking, AREA, "host network", &through));
    found
}

fn privilege(rights: &Rights) -> Finding {
    const NAME: &str = "privilege";
    match &rights.privilege {
        Privilege::Root if rights.in_user_namespace => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            format!("user {} is root of a user namespace and not of this machine", rights.user),
            &["--server-cpu", "server's receive work", "lateness"],
            Some("run as root of the machine, outside this container".into()),
        ),
        Privilege::Root => fine(AREA, NAME, format!("user {} holds CAP_SYS_ADMIN and CAP_NET_ADMIN", rights.user)),
        Privilege::UserNamespace => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            format!("user {} may make user namespaces, and is root in those", rights.user),
            &["targets outside the lab through a path", "watch -i", "--server-cpu", "lateness"],
            Some("run as root where these are wanted".into()),
        ),
        Privilege::None { why } => not_fine(
            State::Lacking,
            AREA,
            NAME,
            // What follows the first semicolon is a mend for all machines; this one is known better.
            why.split("; ").next().unwrap_or(why),
            &["everything with a path"],
            Some(namespaces_mend(&rights.settings)),
        ),
    }
}

/// What would let an ordinary user make namespaces: by the settings of this kernel, the one that refuses.
pub(crate) fn namespaces_mend(settings: &BTreeMap<&'static str, String>) -> String {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|found| found == value);
    let mut sets = Vec::new();
    if is("kernel.unprivileged_userns_clone", "0") {
        sets.push("kernel.unprivileged_userns_clone=1");
    }
    if is("kernel.apparmor_restrict_unprivileged_userns", "1") {
        sets.push("kernel.apparmor_restrict_unprivileged_userns=0");
    }
    if is("user.max_user_namespaces", "0") {
        sets.push("user.max_user_namespaces=10000");
    }
    if is("user.max_net_namespaces", "0") {
        sets.push("user.max_net_namespaces=10000");
    }
    if sets.is_empty() {
        "run as root; in a container, start that with --privileged, or with a seccomp profile that allows unshare"
            .into()
    } else {
        format!("run as root, or: sysctl -w {}", sets.join(" "))
    }
}

fn ordinary_user(rights: &Rights) -> Option<Finding> {
    let trial = rights.ordinary_user.as_ref()?;
    let mut finding =
        tried(trial, State::WorthKnowing, AREA, "ordinary users", &["bench --server, net and demo without root"])?;
    if finding.state != State::Fine && finding.mend.is_none() {
        finding.mend = Some(namespaces_mend(&rights.settings));
    }
    Some(finding)
}

fn real_time(rights: &Rights) -> Finding {
    const NAME: &str = "real-time class";
    let mend = || Some("run as root, or give this user LimitRTPRIO=1 (ulimit -r 1)".to_owned());
    match rights.urgency {
        Urgency::RealTime => {
            let limit = rights.settings.get("kernel.sched_rt_runtime_us");
            let ran = limit.and_then(|limit| limit.parse::<i64>().ok()).filter(|&limit| limit > 0);
            let ran = ran.map_or(String::new(), |micros| format!(", {} ms of every second", micros / 1000));
            fine(AREA, NAME, format!("SCHED_FIFO is given{ran}"))
        }
        Urgency::High => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            "SCHED_FIFO is refused, nice -20 is given",
            &["lateness beside other programs"],
            Some(if rights.user == 0 {
                "where control groups deal out real-time, run in one that has some (cpu.rt_runtime_us above 0)".into()
            } else {
                "run as root, or give this user LimitRTPRIO=1 (ulimit -r 1)".into()
            }),
        ),
        _ => not_fine(
            State::WorthKnowing,
            AREA,
            NAME,
            "neither SCHED_FIFO nor nice -20: path and load wait their turn beside other programs",
            &["lateness", "send lag"],
            mend(),
        ),
    }
}
