//! What each verb can do here.

use schema::doctor::{Ability, AbilityState, MAIN_VERB};
use sys::namespace::Privilege;
use sys::sched::Urgency;

use super::facts::{Facts, Refusal, Trial};
use super::findings::namespaces_mend;

/// All verbs, or parts of them, the main ones first.
pub fn abilities(facts: &Facts) -> Vec<Ability> {
    let lab = lab(facts);
    // What stands in the way of the main job is said once.
    let same = lab.like(MAIN_VERB);
    let with = |outcome| and(&same, outcome);
    vec![
        ability("bench", "load on any URL, no path; ab", direct(facts)),
        ability(MAIN_VERB, "a server of the lab behind a path; demo, run, profile check", lab.clone()),
        ability("bench --server-cpu", "a bound on that server's CPU", with(share(facts))),
        ability("bench --server-tcp", "its congestion control", with(trial(&facts.ends.congestion))),
        ability("net", "any program at the far end of a path", same.clone()),
        ability("bench --rtt, this host", "a service of this host through a path; net --to", outside(facts, &same)),
        ability("bench --rtt, remote", "another host through a path; net --to", remote(facts, &same)),
        ability("IPv6 through a path", "targets by IPv6", with(trial(&facts.ends.clients_v6))),
        ability("watch -i", "live figures from a device", trial(&facts.rights.capture)),
        ability("watch -r", "figures and logs from a capture file; profile learn", Outcome::Works),
        ability("serve", "the static server", serve(facts)),
        ability("the book", "keeping runs, for report and runs", kept(facts)),
        ability("without root", "bench --server, net and demo as an ordinary user", rootless(facts, &same)),
    ]
}

/// What became of a verb, and why.
#[derive(Clone, Debug)]
enum Outcome {
    Works,
    InPart(String, Option<String>),
    No(Refusal),
}

impl Outcome {
    /// The same state, its reason left to the verb that has it.
    fn like(&self, verb: &str) -> Outcome {
        let what = format!("as {verb}");
        match self {
            Outcome::Works => Outcome::Works,
            Outcome::InPart(..) => Outcome::InPart(what, None),
            Outcome::No(_) => Outcome::No(Refusal { what, mend: None }),
        }
    }
}

fn ability(verb: &str, about: &str, outcome: Outcome) -> Ability {
    let (state, why, mend) = match outcome {
        Outcome::Works => (AbilityState::Works, String::new(), None),
        Outcome::InPart(why, mend) => (AbilityState::InPart, why, mend),
        Outcome::No(refusal) => (AbilityState::No, refusal.what, refusal.mend),
    };
    Ability { verb: verb.into(), about: about.into(), state, why, mend }
}

/// The worse of two; of two alike, the first.
fn and(first: &Outcome, second: Outcome) -> Outcome {
    match (first, &second) {
        (Outcome::No(_), _) | (Outcome::InPart(..), Outcome::Works | Outcome::InPart(..)) => first.clone(),
        _ => second,
    }
}

fn trial(trial: &Trial) -> Outcome {
    match trial {
        Trial::Worked(_) => Outcome::Works,
        Trial::Refused(refusal) => Outcome::No(refusal.clone()),
        Trial::NotTried => no("not tried, since something before it was refused", None),
    }
}

fn no(what: impl Into<String>, mend: Option<&str>) -> Outcome {
    Outcome::No(Refusal { what: what.into(), mend: mend.map(str::to_owned) })
}

fn direct(facts: &Facts) -> Outcome {
    let (_, hard) = facts.machine.facts.nofile;
    if hard <= DESCRIPTORS_KEPT {
        return no(format!("only {hard} files may be open at once"), Some("ulimit -Hn 100000 as root"));
    }
    Outcome::Works
}

/// Everything that a server in the lab, or a program in `net`, needs.
fn lab(facts: &Facts) -> Outcome {
    let ends = &facts.ends;
    if let Privilege::None { why } = &facts.rights.privilege {
        let what = why.split("; ").next().unwrap_or(why).to_owned();
        return Outcome::No(Refusal { what, mend: Some(namespaces_mend(&facts.rights.settings)) });
    }
    for needed in [&ends.namespace, &ends.tun, &ends.clients_v4, &ends.place] {
        if !needed.worked() {
            return trial(needed);
        }
    }
    let mut short = Vec::new();
    if !matches!(facts.rights.urgency, Urgency::RealTime) {
        short.push("the path is not real-time");
    }
    if ends.steering.refusal().is_some() {
        short.push("the server's receive work is not told apart");
    }
    if facts.machine.allowed.list().len() < 2 {
        short.push("one core for everything");
    }
    if short.is_empty() {
        return Outcome::Works;
    }
    let mend =
        (facts.rights.user != 0 || facts.rights.in_user_namespace).then(|| "run as root of the machine".to_owned());
    Outcome::InPart(short.join("; "), mend)
}

fn share(facts: &Facts) -> Outcome {
    match &facts.ends.bound {
        Ok(_) => Outcome::Works,
        Err(refusal) => Outcome::No(refusal.clone()),
    }
}

/// A target that is not the lab's: the server's end of the path is put into the host's network.
fn outside(facts: &Facts, lab: &Outcome) -> Outcome {
    if matches!(facts.rights.privilege, Privilege::Root) {
        let right = and(lab, trial(&facts.rights.host_network));
        return match &facts.rights.range_taken {
            Some(route) => and(&right, no(format!("this host routes {route} itself"), Some("take that route away"))),
            None => right,
        };
    }
    // An ordinary user lacks this first, whatever else is missing.
    match trial(&facts.rights.host_network) {
        Outcome::Works => no("needs CAP_SYS_ADMIN besides CAP_NET_ADMIN", Some("run as root")),
        refused => refused,
    }
}

/// The same, with answers that have to find their way back.
fn remote(facts: &Facts, lab: &Outcome) -> Outcome {
    let through = and(&outside(facts, lab), trial(&facts.ends.masquerade));
    let through = match facts.ends.forward_v6.refusal() {
        Some(_) => and(
            &through,
            Outcome::InPart(
                "not by IPv6, which a single device can forward only from Linux 6.17 on".into(),
                Some("sysctl -w net.ipv6.conf.all.forwarding=1".into()),
            ),
        ),
        None => through,
    };
    match &facts.rights.forwarding_refused_by {
        Some(chain) => {
            let why = format!("chain {chain} of the host's firewall may drop it");
            and(&through, Outcome::InPart(why, Some("iptables -I FORWARD -i yamabiko+ -j ACCEPT".into())))
        }
        None => through,
    }
}

fn serve(facts: &Facts) -> Outcome {
    match facts.machine.kernel {
        Some(version) if version < (5, 6) => no("this kernel has no openat2", Some("a kernel of 5.6 or newer")),
        _ => Outcome::Works,
    }
}

fn kept(facts: &Facts) -> Outcome {
    if facts.book.writable {
        return Outcome::Works;
    }
    let why = format!("{} cannot be written to: runs are refused without --no-save", facts.book.root.display());
    no(why, Some("set YAMABIKO_RUNS to a folder of yours, or give --no-save"))
}

fn rootless(facts: &Facts, lab: &Outcome) -> Outcome {
    match &facts.rights.ordinary_user {
        None => lab.clone(),
        Some(tried) => match tried.refusal() {
            None => Outcome::Works,
            Some(refusal) => {
                let mend = refusal.mend.clone().unwrap_or_else(|| namespaces_mend(&facts.rights.settings));
                Outcome::No(Refusal { what: refusal.what.clone(), mend: Some(mend) })
            }
        },
    }
}

/// What a run needs besides its connections.
const DESCRIPTORS_KEPT: u64 = 128;
