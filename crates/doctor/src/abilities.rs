//! What each verb can do on this machine.

use schema::doctor::{Ability, MAIN_VERB, VerbState};
use sys::namespace::Privilege;
use sys::sched::Urgency;

use super::facts::{Facts, Refusal, Trial};
use super::findings::namespaces_fix;

/// All verbs, or parts of them, the main ones first.
pub fn abilities(facts: &Facts) -> Vec<Ability> {
    let testbed = testbed(facts);
    // Only the main verb states the reason; other verbs refer to it.
    let same = testbed.same_as(MAIN_VERB);
    let with = |outcome| worse(&same, outcome);
    vec![
        ability("bench", "load on any URL, no path; ab", without_path(facts)),
        ability(MAIN_VERB, "a server behind a path; demo, run, profile check", testbed.clone()),
        ability("bench --server-cpu", "a CPU limit of that server", with(share(facts))),
        ability("bench --server-tcp", "congestion control of that server", with(trial(&facts.ends.congestion))),
        ability("net", "any program at the clients' end of a path", same.clone()),
        ability(
            "bench --rtt, this host",
            "a service on this host through a path; net --to",
            other_target(facts, &same),
        ),
        ability("bench --rtt, remote", "another host through a path; net --to", remote(facts, &same)),
        ability("IPv6 through a path", "IPv6 targets", with(trial(&facts.ends.clients_v6))),
        ability("watch -i", "live capture of a device", trial(&facts.rights.capture)),
        ability("watch -r", "figures and logs from a capture file; profile learn", Outcome::Ok),
        ability("serve", "the static server", serve(facts)),
        ability("run store", "stored runs, for report and runs", storing(facts)),
        ability("without root", "bench --server, net and demo as an ordinary user", rootless(facts, &same)),
    ]
}

/// State of a verb, and the reason.
#[derive(Clone, Debug)]
enum Outcome {
    Ok,
    Partial(String, Option<String>),
    Missing(Refusal),
}

impl Outcome {
    /// The state of another verb, with a reference to the verb that states the reason.
    fn same_as(&self, verb: &str) -> Outcome {
        let what = format!("as {verb}");
        match self {
            Outcome::Ok => Outcome::Ok,
            Outcome::Partial(..) => Outcome::Partial(what, None),
            Outcome::Missing(_) => Outcome::Missing(Refusal { what, fix: None }),
        }
    }
}

fn ability(verb: &str, about: &str, outcome: Outcome) -> Ability {
    let (state, why, fix) = match outcome {
        Outcome::Ok => (VerbState::Ok, String::new(), None),
        Outcome::Partial(why, fix) => (VerbState::Partial, why, fix),
        Outcome::Missing(refusal) => (VerbState::Missing, refusal.what, refusal.fix),
    };
    Ability { verb: verb.into(), about: about.into(), state, why, fix }
}

/// The worse of two outcomes; the first of two equal ones.
fn worse(first: &Outcome, second: Outcome) -> Outcome {
    match (first, &second) {
        (Outcome::Missing(_), _) | (Outcome::Partial(..), Outcome::Ok | Outcome::Partial(..)) => first.clone(),
        _ => second,
    }
}

fn trial(trial: &Trial) -> Outcome {
    match trial {
        Trial::Worked(_) => Outcome::Ok,
        Trial::Refused(refusal) => Outcome::Missing(refusal.clone()),
        Trial::NotTried => missing("not tried, because an earlier step was refused", None),
    }
}

fn missing(what: impl Into<String>, fix: Option<&str>) -> Outcome {
    Outcome::Missing(Refusal { what: what.into(), fix: fix.map(str::to_owned) })
}

fn without_path(facts: &Facts) -> Outcome {
    let (_, hard) = facts.machine.facts.nofile;
    if hard <= DESCRIPTORS_RESERVED {
        return missing(format!("only {hard} files may be open at the same time"), Some("ulimit -Hn 100000 as root"));
    }
    Outcome::Ok
}

/// What a server of the testbed, or a program in `net`, needs.
fn testbed(facts: &Facts) -> Outcome {
    let ends = &facts.ends;
    if let Privilege::None { why } = &facts.rights.privilege {
        let what = why.split("; ").next().unwrap_or(why).to_owned();
        return Outcome::Missing(Refusal { what, fix: Some(namespaces_fix(&facts.rights.settings)) });
    }
    for needed in [&ends.namespace, &ends.tun, &ends.clients_v4, &ends.sandbox] {
        if !needed.worked() {
            return trial(needed);
        }
    }
    let mut short = Vec::new();
    if !matches!(facts.rights.urgency, Urgency::RealTime) {
        short.push("the path is not real-time");
    }
    if ends.steering.refusal().is_some() {
        short.push("receive processing is not attributed to the server");
    }
    if facts.machine.allowed.list().len() < 2 {
        short.push("server, path and load share one core");
    }
    if short.is_empty() {
        return Outcome::Ok;
    }
    let fix =
        (facts.rights.user != 0 || facts.rights.in_user_namespace).then(|| "run as root of the machine".to_owned());
    Outcome::Partial(short.join("; "), fix)
}

fn share(facts: &Facts) -> Outcome {
    match &facts.ends.bound {
        Ok(_) => Outcome::Ok,
        Err(refusal) => Outcome::Missing(refusal.clone()),
    }
}

/// A target outside the testbed: the server's end of the path is in the host's network.
fn other_target(facts: &Facts, testbed: &Outcome) -> Outcome {
    if matches!(facts.rights.privilege, Privilege::Root) {
        let right = worse(testbed, trial(&facts.rights.host_network));
        return match &facts.rights.range_taken {
            Some(route) => {
                worse(&right, missing(format!("this host routes {route} itself"), Some("remove that route")))
            }
            None => right,
        };
    }
    // An ordinary user needs this first.
    match trial(&facts.rights.host_network) {
        Outcome::Ok => missing("needs CAP_SYS_ADMIN in addition to CAP_NET_ADMIN", Some("run as root")),
        refused => refused,
    }
}

/// A target on another host, whose responses must return through the path.
fn remote(facts: &Facts, testbed: &Outcome) -> Outcome {
    let through = worse(&other_target(facts, testbed), trial(&facts.ends.masquerade));
    let through = match facts.ends.forward_v6.refusal() {
        Some(_) => worse(
            &through,
            Outcome::Partial(
                "not with IPv6: forwarding for a single device needs Linux 6.17".into(),
                Some("sysctl -w net.ipv6.conf.all.forwarding=1".into()),
            ),
        ),
        None => through,
    };
    match &facts.rights.forwarding_refused_by {
        Some(chain) => {
            let why = format!("chain {chain} of the host's firewall may drop the packets");
            worse(&through, Outcome::Partial(why, Some("iptables -I FORWARD -i yamabiko+ -j ACCEPT".into())))
        }
        None => through,
    }
}

fn serve(facts: &Facts) -> Outcome {
    match facts.machine.kernel {
        Some(version) if version < (5, 6) => missing("this kernel has no openat2", Some("Linux 5.6 or newer")),
        _ => Outcome::Ok,
    }
}

fn storing(facts: &Facts) -> Outcome {
    if facts.run_store.writable {
        return Outcome::Ok;
    }
    let why = format!("{} is not writable: runs are refused without --no-save", facts.run_store.root.display());
    missing(why, Some("set YAMABIKO_RUNS to a writable directory, or give --no-save"))
}

fn rootless(facts: &Facts, testbed: &Outcome) -> Outcome {
    match &facts.rights.ordinary_user {
        None => testbed.clone(),
        Some(tried) => match tried.refusal() {
            None => Outcome::Ok,
            Some(refusal) => {
                let fix = refusal.fix.clone().unwrap_or_else(|| namespaces_fix(&facts.rights.settings));
                Outcome::Missing(Refusal { what: refusal.what.clone(), fix: Some(fix) })
            }
        },
    }
}

/// Descriptors of a run in addition to its connections.
const DESCRIPTORS_RESERVED: u64 = 128;
