//! Checks of other processes on the server's cores.

use schema::document::{CheckState, Server, Weight};
use schema::{MovedFigure, OtherProcess, ServerCores};

use super::Case;

/// A thousand requests of 100 us each in ten seconds, on one core.
fn case(change: impl FnOnce(&mut ServerCores)) -> Case {
    let mut case = Case::good();
    let mut cores = ServerCores {
        cores: 1,
        elapsed_s: 10.0,
        other_processes_s: [0.5, 0.7],
        processes: vec![
            OtherProcess { pid: 4711, name: "hog".into(), cpu_s: 0.5, share: 0.05, ended_children: false },
            OtherProcess { pid: 12, name: "make".into(), cpu_s: 0.1, share: 0.01, ended_children: true },
        ],
        could_have_moved: Some(MovedFigure {
            figure: "p99_9".into(),
            value_ns: 30e6,
            by_ns: 300_000.0,
            limit_ns: 300_000.0,
        }),
        ..ServerCores::default()
    };
    change(&mut cores);
    case.document.server = Some(Server { cpu_us_per_request: Some(250.0), cores: Some(cores), ..Server::default() });
    case
}

fn found(case: &Case, name: &str) -> (CheckState, String) {
    let validity = case.judge();
    let check = validity.checks.iter().find(|check| check.name == name).unwrap();
    assert_eq!(check.weight, Weight::Suspect);
    (check.state, check.why.clone())
}

#[test]
fn a_tenth_of_the_servers_cpu_time_may_belong_to_other_processes() {
    let of = |not_attributable_s| {
        let mut case = case(|cores| cores.not_attributable_s = not_attributable_s);
        case.document.server.as_mut().unwrap().cpu_us_per_request = Some(2_500.0);
        found(&case, "server_cpu_attributable")
    };
    assert_eq!(of(0.25).0, CheckState::Ok);
    let (state, why) = of(0.251);
    assert_eq!(state, CheckState::Failed);
    assert!(
        why.contains("251 us") && why.contains("hog (pid 4711) 5.0 %") && why.contains("ended children of make"),
        "{why}"
    );
}

#[test]
fn an_idle_machine_passes_with_rare_requests() {
    let of = |of_cores, not_attributable_s| {
        let mut case = case(|cores| {
            cores.cores = of_cores;
            cores.not_attributable_s = not_attributable_s;
        });
        case.document.server.as_mut().unwrap().cpu_us_per_request = Some(50.0);
        found(&case, "server_cpu_attributable").0
    };
    assert_eq!((of(1, 0.1), of(1, 0.101)), (CheckState::Ok, CheckState::Failed));
    // With many cores each has its own timers.
    assert_eq!((of(16, 0.32), of(16, 0.321)), (CheckState::Ok, CheckState::Failed));
}

#[test]
fn other_processes_may_change_a_response_time_by_the_material_error() {
    let of = |by_ns| {
        let case = case(|cores| {
            cores.could_have_moved.as_mut().unwrap().by_ns = by_ns;
            cores.delayed_by_others_s = 0.45;
            cores.delayed_longest_ns = 49_600_000;
        });
        found(&case, "server_cores_undisturbed")
    };
    assert_eq!(of(300_000.0).0, CheckState::Ok);
    let (state, why) = of(300_001.0);
    assert_eq!(state, CheckState::Failed);
    assert!(why.contains("p99.9") && why.contains("49.6 ms at a time") && why.contains("hog (pid 4711)"), "{why}");
}

#[test]
fn server_cpu_checks_do_not_apply_without_a_server_of_the_testbed() {
    let mut none = Case::good();
    none.document.server = None;
    let mut unread = case(|_| ());
    unread.document.server.as_mut().unwrap().cores = None;
    for name in ["server_cpu_attributable", "server_cores_undisturbed"] {
        assert_eq!(found(&none, name).0, CheckState::NotApplicable);
        assert_eq!(found(&unread, name).0, CheckState::CouldNotRun);
    }
}
