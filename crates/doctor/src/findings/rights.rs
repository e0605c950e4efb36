//! Privileges of this user.

use std::collections::BTreeMap;

use schema::doctor::{Area, Finding, State};
use sys::namespace::Privilege;
use sys::sched::Urgency;

use super::{not_ok, ok, tried};
use crate::facts::{Facts, Rights};

const AREA: Area = Area::Rights;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let rights = &facts.rights;
    let mut found = vec![privilege(rights)];
    found.extend(ordinary_user(rights));
    found.push(real_time(rights));
    found.extend(tried(
        &rights.awake,
        State::Note,
        AREA,
        "idle processors",
        &["timing error on a host with other guests"],
    ));
    found.extend(tried(&rights.capture, State::Missing, AREA, "capture", &["watch -i"]));
    let through = ["bench and net through a path to a target outside the testbed"];
    found.extend(tried(&rights.host_network, State::Missing, AREA, "host network", &through));
    found
}

fn privilege(rights: &Rights) -> Finding {
    const NAME: &str = "privilege";
    match &rights.privilege {
        Privilege::Root if rights.in_user_namespace => not_ok(
            State::Note,
            AREA,
            NAME,
            format!("user {} is root of a user namespace, not of this machine", rights.user),
            &["--server-cpu", "server's receive processing", "timing error"],
            Some("run as root of the machine, outside this container".into()),
        ),
        Privilege::Root => ok(AREA, NAME, format!("user {} holds CAP_SYS_ADMIN and CAP_NET_ADMIN", rights.user)),
        Privilege::UserNamespace => not_ok(
            State::Note,
            AREA,
            NAME,
            format!("user {} can create user namespaces, and is root in them", rights.user),
            &["targets outside the testbed through a path", "watch -i", "--server-cpu", "timing error"],
            Some("run as root to use these".into()),
        ),
        Privilege::None { why } => not_ok(
            State::Missing,
            AREA,
            NAME,
            // The text after the first semicolon is a general fix; this one is specific.
            why.split("; ").next().unwrap_or(why),
            &["everything with a path"],
            Some(namespaces_fix(&rights.settings)),
        ),
    }
}

/// The fix that lets an ordinary user create namespaces: the kernel setting that refuses, if there is one.
pub(crate) fn namespaces_fix(settings: &BTreeMap<&'static str, String>) -> String {
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
        "run as root; for a container, start it with --privileged, or with a seccomp profile that allows unshare".into()
    } else {
        format!("run as root, or: sysctl -w {}", sets.join(" "))
    }
}

fn ordinary_user(rights: &Rights) -> Option<Finding> {
    let trial = rights.ordinary_user.as_ref()?;
    let mut finding =
        tried(trial, State::Note, AREA, "ordinary users", &["bench --server, net and demo without root"])?;
    if finding.state != State::Ok && finding.fix.is_none() {
        finding.fix = Some(namespaces_fix(&rights.settings));
    }
    Some(finding)
}

fn real_time(rights: &Rights) -> Finding {
    const NAME: &str = "real-time class";
    let fix = || Some("run as root, or give this user LimitRTPRIO=1 (ulimit -r 1)".to_owned());
    match rights.urgency {
        Urgency::RealTime => {
            let limit = rights.settings.get("kernel.sched_rt_runtime_us");
            let ran = limit.and_then(|limit| limit.parse::<i64>().ok()).filter(|&limit| limit > 0);
            let ran = ran.map_or(String::new(), |micros| format!(", {} ms of every second", micros / 1000));
            ok(AREA, NAME, format!("SCHED_FIFO is available{ran}"))
        }
        Urgency::High => not_ok(
            State::Note,
            AREA,
            NAME,
            "SCHED_FIFO is refused, nice -20 is available",
            &["timing error while other programs run"],
            Some(if rights.user == 0 {
                "run in a control group with real-time share (cpu.rt_runtime_us above 0)".into()
            } else {
                "run as root, or give this user LimitRTPRIO=1 (ulimit -r 1)".into()
            }),
        ),
        _ => not_ok(
            State::Note,
            AREA,
            NAME,
            "neither SCHED_FIFO nor nice -20: path and load wait while other programs run",
            &["timing error", "send lag"],
            fix(),
        ),
    }
}
