//! States computed from invented facts: machines of other kinds than the one that runs the tests.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use schema::Quantiles;
use schema::doctor::{Ability, DoctorDocument, Finding, MAIN_VERB, Measured, State, VerbState, WakeUp};
use sys::accounting::HostFacts;
use sys::cgroup::BoundTrial;
use sys::namespace::Privilege;
use sys::sched::{Cores, Urgency};

use super::document;
use super::facts::{Ends, Facts, Machine, Refusal, Rights, RunStoreFacts, Trial};

fn worked() -> Trial {
    Trial::Worked("seen".into())
}

fn refused(what: &str, fix: Option<&str>) -> Trial {
    Trial::Refused(Refusal { what: what.into(), fix: fix.map(str::to_owned) })
}

/// Facts of root on a machine without any problem.
fn good() -> Facts {
    Facts {
        rights: Rights {
            user: 0,
            in_user_namespace: false,
            privilege: Privilege::Root,
            ordinary_user: Some(worked()),
            urgency: Urgency::RealTime,
            awake: worked(),
            capture: worked(),
            host_network: worked(),
            range_taken: None,
            forwarding_refused_by: None,
            settings: BTreeMap::from([("kernel.sched_rt_runtime_us", "950000".into())]),
        },
        ends: Ends {
            namespace: worked(),
            tun: worked(),
            offload: worked(),
            clients_v4: worked(),
            clients_v6: worked(),
            sandbox: worked(),
            steering: worked(),
            congestion: worked(),
            loopback: worked(),
            masquerade: worked(),
            forward_v6: worked(),
            bound: Ok(BoundTrial::Bound),
            cgroups: "version 2 (cpu, memory)".into(),
        },
        machine: Machine {
            facts: HostFacts {
                kernel: "6.12.48-amd64".into(),
                machine: "x86_64".into(),
                name: "lab".into(),
                cpu_model: "A CPU".into(),
                cores: 8,
                memory_bytes: 32_000_000_000,
                nofile: (1024, 1_048_576),
                ephemeral_ports: (32768, 60999),
                congestion_control: "cubic".into(),
            },
            kernel: Some((6, 12)),
            allowed: Cores::new((0..8).collect()),
            quota: None,
            memory_available_bytes: 24_000_000_000,
            hypervisor: None,
            container: None,
            steal_since_boot: 0.0,
            clock_source: ("tsc".into(), vec!["tsc".into(), "hpet".into()]),
            governors: vec!["performance".into()],
            congestion_controls: vec!["reno".into(), "cubic".into()],
            time_wait_max: Some(262_144),
            io_uring: worked(),
        },
        run_store: RunStoreFacts { root: PathBuf::from("/home/me/runs"), writable: true, free_bytes: Some(1 << 40) },
        measured: None,
    }
}

/// An ordinary user of the same machine.
fn ordinary() -> Facts {
    let mut facts = good();
    facts.rights.user = 1000;
    facts.rights.privilege = Privilege::UserNamespace;
    facts.rights.ordinary_user = None;
    facts.rights.urgency = Urgency::Ordinary;
    facts.rights.capture = refused("socket AF_PACKET: Operation not permitted", Some("run as root"));
    facts.rights.host_network = refused("RTM_SETLINK: Operation not permitted", Some("run as root"));
    facts.ends.steering = refused("write 1 to rps_cpus: Operation not permitted", Some("only root"));
    facts.ends.bound = Err(Refusal { what: "mkdir: Permission denied".into(), fix: Some("root".into()) });
    facts
}

/// A user who may not create namespaces because of this setting.
fn locked_out(setting: &'static str, value: &str) -> Facts {
    let mut facts = ordinary();
    facts.rights.privilege = Privilege::None {
        why: "unshare CLONE_NEWUSER: Operation not permitted; ordinary users may not make user namespaces here: .."
            .into(),
    };
    facts.rights.settings = BTreeMap::from([(setting, value.to_owned())]);
    facts.ends = Ends { bound: facts.ends.bound, cgroups: facts.ends.cgroups, ..Ends::default() };
    facts
}

fn measured() -> Measured {
    let late = |wait: &str, ahead_ns, p50, p99| WakeUp {
        wait: wait.into(),
        ahead_ns,
        late_ns: Quantiles { count: 100, p50, p99, max: p99, ..Quantiles::default() },
    };
    Measured {
        duration_s: 1.5,
        scheduling: "real-time (SCHED_FIFO)".into(),
        core: Some("7".into()),
        wake_up: vec![late("hybrid", 1_000_000, 3_000, 90_000), late("sleep", 1_000_000, 15_000, 5_000_000)],
        clock_read_ns: Quantiles { count: 200, p50: 25, p99: 30, ..Quantiles::default() },
        tun_write_ns: Some(Quantiles { count: 2000, p50: 900, p99: 4_000, ..Quantiles::default() }),
        ..Measured::default()
    }
}

fn finding<'a>(document: &'a DoctorDocument, name: &str) -> &'a Finding {
    document.findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("no finding `{name}`"))
}

fn verb<'a>(document: &'a DoctorDocument, name: &str) -> &'a Ability {
    document.verb(name).unwrap_or_else(|| panic!("no verb `{name}`"))
}

fn fix(document: &DoctorDocument, name: &str) -> String {
    finding(document, name).fix.clone().unwrap_or_default()
}

#[test]
fn a_machine_without_problems_has_only_ok_findings_and_verbs() {
    let document = document(Facts { measured: Some(measured()), ..good() });
    for finding in &document.findings {
        assert_eq!(finding.state, State::Ok, "{finding:?}");
        assert!(finding.touches.is_empty() && finding.fix.is_none(), "{finding:?}");
    }
    for ability in &document.verbs {
        assert_eq!((ability.state, ability.why.as_str()), (VerbState::Ok, ""), "{ability:?}");
    }
    assert!(document.ready());
    assert!(finding(&document, "timers").found.contains("3.0 us late at the median, 90 us at p99"));
    assert!(finding(&document, "clock").found.contains("25 ns"));
}

/// Rules for every document: names are unique, every finding that is not ok names what it touches, every verb that is
/// not ok has a reason, and all texts are ASCII.
#[test]
fn every_document_has_unique_names_reasons_and_ascii_text() {
    let mut old = good();
    old.machine.kernel = Some((4, 18));
    let mut small = good();
    small.machine.allowed = Cores::new(vec![3]);
    small.machine.facts.nofile = (64, 100);
    small.machine.memory_available_bytes = 0;
    small.machine.governors = vec!["powersave".into()];
    small.machine.facts.ephemeral_ports = (60_000, 60_999);
    small.machine.steal_since_boot = 0.4;
    small.run_store = RunStoreFacts { root: "/root".into(), writable: false, free_bytes: None };
    small.measured = Some(Measured { busy_share: 0.9, ..measured() });
    let bare = locked_out("user.max_user_namespaces", "0");
    for facts in [good(), ordinary(), old, small, bare] {
        let document = document(facts);
        let names: HashSet<&str> = document.findings.iter().map(|finding| finding.name.as_str()).collect();
        assert_eq!(names.len(), document.findings.len(), "duplicate name");
        let verbs: HashSet<&str> = document.verbs.iter().map(|ability| ability.verb.as_str()).collect();
        assert_eq!(verbs.len(), document.verbs.len(), "duplicate verb");
        for finding in &document.findings {
            assert_eq!(finding.touches.is_empty(), finding.state == State::Ok, "{finding:?}");
            assert!(finding.found.is_ascii() && !finding.found.is_empty(), "{finding:?}");
        }
        for ability in &document.verbs {
            assert_eq!(ability.why.is_empty(), ability.state == VerbState::Ok, "{ability:?}");
        }
    }
}

#[test]
fn an_ordinary_user_has_the_testbed_and_not_the_host() {
    let document = document(ordinary());
    assert!(document.ready());
    assert_eq!(verb(&document, MAIN_VERB).state, VerbState::Partial);
    assert!(verb(&document, MAIN_VERB).why.contains("not real-time"));
    for works in ["bench", "serve", "watch -r", "run store"] {
        assert_eq!(verb(&document, works).state, VerbState::Ok, "{works}");
    }
    for refused in ["watch -i", "bench --rtt, this host", "bench --rtt, remote", "bench --server-cpu"] {
        assert_eq!(verb(&document, refused).state, VerbState::Missing, "{refused}");
    }
    assert_eq!(verb(&document, "bench --rtt, this host").fix.as_deref(), Some("run as root"));
    assert_eq!(verb(&document, "net").why, "as bench --server", "only the main verb states the reason");
}

#[test]
fn the_setting_that_refuses_namespaces_is_named() {
    for (setting, value, expected) in [
        ("kernel.apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel.unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user.max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("user.max_net_namespaces", "0", "user.max_net_namespaces=10000"),
        // If the settings allow it, the container's seccomp profile refuses.
        ("user.max_user_namespaces", "63459", "--privileged"),
    ] {
        let document = document(locked_out(setting, value));
        assert!(!document.ready());
        assert_eq!(finding(&document, "privilege").state, State::Missing);
        assert_eq!(finding(&document, "privilege").found, "unshare CLONE_NEWUSER: Operation not permitted");
        assert!(fix(&document, "privilege").contains(expected), "{}", fix(&document, "privilege"));
        assert_eq!(verb(&document, MAIN_VERB).fix, finding(&document, "privilege").fix);
        assert_eq!(verb(&document, "net").state, VerbState::Missing);
        assert_eq!(verb(&document, "bench").state, VerbState::Ok);
    }
}

#[test]
fn root_learns_which_features_ordinary_users_lack() {
    let mut facts = good();
    facts.rights.ordinary_user = Some(refused("unshare CLONE_NEWUSER: Operation not permitted", None));
    facts.rights.settings = BTreeMap::from([("kernel.apparmor_restrict_unprivileged_userns", "1".to_owned())]);
    let seen = document(facts);
    assert_eq!(finding(&seen, "ordinary users").state, State::Note);
    assert!(fix(&seen, "ordinary users").contains("apparmor"));
    assert_eq!(verb(&seen, "without root").state, VerbState::Missing);
    assert!(seen.ready(), "root does not need these features");
    let mut facts = good();
    facts.rights.ordinary_user = Some(refused("open /dev/net/tun: Permission denied", Some("chmod 666 /dev/net/tun")));
    assert_eq!(fix(&document(facts), "ordinary users"), "chmod 666 /dev/net/tun");
}

#[test]
fn a_container_without_dev_net_tun_cannot_have_a_path() {
    let mut facts = good();
    facts.rights.in_user_namespace = true;
    facts.machine.container = Some("Podman".into());
    facts.ends.tun =
        refused("open /dev/net/tun: No such file or directory", Some("modprobe tun, or --device /dev/net/tun"));
    facts.ends.steering = Trial::NotTried;
    let document = document(facts);
    assert!(!document.ready());
    assert!(verb(&document, MAIN_VERB).fix.as_deref().unwrap().contains("--device"));
    assert_eq!(finding(&document, "tun").state, State::Missing);
    assert!(finding(&document, "virtualisation").found.starts_with("container: Podman"));
    assert!(finding(&document, "privilege").found.contains("not of this machine"));
}

#[test]
fn routes_firewall_and_masquerading_limit_targets_outside_the_testbed() {
    let states = |facts: Facts| {
        let document = document(facts);
        ["bench --server", "bench --rtt, this host", "bench --rtt, remote"].map(|name| verb(&document, name).state)
    };
    use VerbState::{Missing, Ok, Partial};
    let mut facts = good();
    facts.rights.range_taken = Some("198.18.0.0/15 by eth0".into());
    assert_eq!(states(facts), [Ok, Missing, Missing]);
    let mut facts = good();
    facts.rights.forwarding_refused_by = Some("filter/FORWARD".into());
    assert_eq!(states(facts), [Ok, Ok, Partial]);
    let mut facts = good();
    facts.ends.forward_v6 = refused("sysctl force_forwarding: Missing such file or directory", None);
    assert_eq!(states(facts), [Ok, Ok, Partial], "another host with IPv4 only");
    let mut facts = good();
    facts.ends.masquerade =
        refused("nf_tables: add dup rule: Missing such file or directory", Some("modprobe nft_dup_ipv4"));
    assert_eq!(states(facts), [Ok, Ok, Missing]);
}

#[test]
fn few_cores_or_a_cpu_limit_are_notes() {
    let mut facts = good();
    facts.machine.quota = Some(2.0);
    let bounded = document(facts);
    assert_eq!(finding(&bounded, "cores").state, State::Note);
    assert!(finding(&bounded, "cores").found.contains("2.00"));
    let mut facts = good();
    // A limit above the number of cores has no effect.
    facts.machine.quota = Some(8.0);
    assert_eq!(finding(&document(facts), "cores").state, State::Ok);
    let mut facts = good();
    facts.machine.allowed = Cores::new(vec![5]);
    let one = document(facts);
    assert!(finding(&one, "cores").found.contains("8 online, 1 allowed (5)"));
    assert!(verb(&one, MAIN_VERB).why.contains("one core"));
}

#[test]
fn states_change_at_their_limits() {
    let state = |change: &dyn Fn(&mut Facts), name: &str| {
        let mut facts = good();
        change(&mut facts);
        finding(&document(facts), name).state
    };
    let files = |hard| move |facts: &mut Facts| facts.machine.facts.nofile = (hard, hard);
    assert_eq!(state(&files(10_000), "descriptors"), State::Ok);
    assert_eq!(state(&files(9_999), "descriptors"), State::Note);
    assert_eq!(state(&files(255), "descriptors"), State::Missing);
    let version = |version| move |facts: &mut Facts| facts.machine.kernel = Some(version);
    assert_eq!(state(&version((5, 6)), "kernel"), State::Ok);
    assert_eq!(state(&version((5, 5)), "kernel"), State::Missing);
    let stolen = |share| move |facts: &mut Facts| facts.machine.steal_since_boot = share;
    assert_eq!(state(&stolen(0.01), "virtualisation"), State::Ok);
    assert_eq!(state(&stolen(0.011), "virtualisation"), State::Note);
}

#[test]
fn a_clock_is_judged_by_its_cost_if_measured_otherwise_by_its_name() {
    let mut facts = good();
    facts.machine.clock_source = ("hpet".into(), vec!["hpet".into(), "acpi_pm".into()]);
    assert_eq!(finding(&document(facts.clone()), "clock").state, State::Note);
    // The measured cost decides, not the name.
    facts.measured = Some(measured());
    assert_eq!(finding(&document(facts), "clock").state, State::Ok);
    let mut facts = good();
    facts.measured =
        Some(Measured { clock_read_ns: Quantiles { count: 200, p50: 900, ..Quantiles::default() }, ..measured() });
    assert_eq!(finding(&document(facts), "clock").state, State::Note);
}

#[test]
fn timers_are_judged_by_hybrid_waits() {
    // The sleeping wait of `measured` is 5 ms late, which does not count.
    assert_eq!(finding(&document(Facts { measured: Some(measured()), ..good() }), "timers").state, State::Ok);
    let mut late = measured();
    late.wake_up[0].late_ns.p99 = 1_000_001;
    let document = document(Facts { measured: Some(late), ..good() });
    assert_eq!(finding(&document, "timers").state, State::Note);
    assert!(finding(&document, "timers").touches[0].contains("path_on_time"));
}

#[test]
fn bbr_as_default_is_a_note() {
    let mut facts = good();
    facts.machine.facts.congestion_control = "bbr".into();
    let document = document(facts);
    assert_eq!(finding(&document, "congestion control").state, State::Note);
    assert_eq!(fix(&document, "congestion control"), "--server-tcp cc=cubic");
}
