//! Verdicts of trials: good, bad, client or void.

use plan::Find;
use plan::slo::Slo;
use schema::document::{Check, CheckState, Document, Load, Validity, Verdict, Weight};
use schema::{Quantiles, TrialPart};

use super::{OBJECTIVE, plan, request};
use crate::search::growth::Growth;
use crate::search::sequence::TrialSequence;
use crate::search::simulated::{Server, Simulated};
use crate::search::trial::{Purpose, TrialEvidence, TrialRequest, TrialVerdict, figures, judge, with};
use crate::search::{checks, drive, result, trial};

fn document(p99_ms: u64, checks: Vec<Check>) -> Document {
    let times = Quantiles { count: 1000, mean: 1e6, p99: p99_ms * 1_000_000, ..Quantiles::default() };
    let late = Quantiles { max: 30_000_000, ..Quantiles::default() };
    let load =
        Load { offered_requests: 1000, completed: 1000, response_time_ns: times, send_lag_ns: late, ..Load::default() };
    Document { validity: Validity::from_checks(checks), ..Document::of_load(load, 10.0) }
}

fn failed(name: &str, value: f64) -> Check {
    Check {
        name: name.into(),
        state: CheckState::Failed,
        // Without the generator's delay the objective may have been met.
        weight: if name == "generator_on_time" { Weight::Invalid } else { Weight::Suspect },
        value: Some(value),
        limit: None,
        unit: String::new(),
        why: name.into(),
    }
}

/// The verdict on a trial of 100/s with these failed checks.
fn verdict(p99_ms: u64, growth_per_s: f64, loop_busy: f64, checks: &[(&str, f64)]) -> String {
    verdict_on(Find::Rate, p99_ms, growth_per_s, loop_busy, checks)
}

/// The verdict on a trial of another searched quantity.
fn verdict_on(find: Find, p99_ms: u64, growth_per_s: f64, loop_busy: f64, checks: &[(&str, f64)]) -> String {
    let document = document(p99_ms, checks.iter().map(|(name, value)| failed(name, *value)).collect());
    let growth = Growth { per_s: growth_per_s, bound_per_s: 2.0, chance_per_s: 1.0 };
    let request = TrialRequest { find, ..request(Purpose::Short, 100.0) };
    let evidence = TrialEvidence { document: &document, growth, loop_busy, lost: None, request: &request };
    judge(&evidence, &OBJECTIVE.parse::<Slo>().unwrap()).name().to_owned()
}

#[test]
fn trial_verdict_follows_objective_and_growth() {
    assert_eq!(verdict(199, 2.0, 0.1, &[]), "good");
    assert_eq!(verdict(200, 0.0, 0.1, &[]), "bad");
    assert_eq!(verdict(10, 2.1, 0.1, &[]), "bad");
}

#[test]
fn failed_check_of_each_class_gives_its_verdict() {
    for (check, good, bad) in [
        ("achieved_as_offered", "bad", "bad"),
        ("server_alive", "bad", "bad"),
        ("client_cpu", "client", "client"),
        ("no_unintended_drops", "client", "client"),
        ("wire_clock", "void", "void"),
        ("littles_law_requests", "void", "bad"),
        ("vantage_points_agree_requests", "void", "bad"),
        ("loop_not_stalled", "good", "void"),
        ("machine_undisturbed", "good", "void"),
        ("records_stored", "good", "bad"),
        ("wire_kept_up", "good", "bad"),
        ("a_check_of_tomorrow", "void", "void"),
    ] {
        // A stall of this length explains any growth.
        let value = if check == "loop_not_stalled" { 2e9 } else { 0.5 };
        assert_eq!(verdict(10, 0.0, 0.1, &[(check, value)]), good, "{check}");
        assert_eq!(verdict(300, 0.0, 0.1, &[(check, value)]), bad, "{check}");
    }
}

#[test]
fn late_generator_gives_client_bad_or_void_verdict() {
    let late = ("generator_on_time", 3e6);
    assert_eq!(verdict(10, 0.0, 0.85, &[late]), "client");
    // A load that passed still passed; a failed one is undecided.
    assert_eq!(verdict(10, 0.0, 0.79, &[late]), "good");
    assert_eq!(verdict(300, 0.0, 0.79, &[late]), "void");
    assert_eq!(verdict(10, 0.0, 0.79, &[late, ("connection_cap", 5.0)]), "bad");
    assert_eq!(verdict(10, 0.0, 0.85, &[late, ("connection_cap", 5.0)]), "client");
}

#[test]
fn late_generator_does_not_excuse_closed_connections() {
    let late = ("generator_on_time", 3e6);
    let on = |p99_ms, loop_busy, checks: &[(&str, f64)]| verdict_on(Find::Connections, p99_ms, 0.0, loop_busy, checks);
    // Slowed but passed; or undecided; or refused connections in any case.
    assert_eq!(on(10, 0.1, &[late]), "good");
    assert_eq!(on(300, 0.1, &[late]), "void");
    assert_eq!(on(10, 0.1, &[late, ("open_connections_established", 2.0)]), "bad");
    assert_eq!(on(10, 0.85, &[late, ("open_connections_established", 2.0)]), "client");
}

#[test]
fn good_trial_records_the_failed_checks_of_its_run() {
    let trial = |find: Find, p99_ms: u64, checks: Vec<Check>| {
        let document = document(p99_ms, checks);
        let request = TrialRequest { find, ..request(Purpose::Long, 100.0) };
        let evidence = TrialEvidence {
            document: &document,
            growth: Growth::default(),
            loop_busy: 0.1,
            lost: None,
            request: &request,
        };
        let slo = OBJECTIVE.parse::<Slo>().unwrap();
        let part = with(figures(&evidence, &slo), judge(&evidence, &slo));
        (part.verdict, part.run_verdict, part.run_doubts)
    };
    let of = |verdict: &str, run: &str, doubts: &[&str]| {
        (verdict.to_owned(), run.to_owned(), doubts.iter().map(ToString::to_string).collect::<Vec<String>>())
    };
    assert_eq!(trial(Find::Rate, 10, Vec::new()), of("good", "valid", &[]));
    let stalled = || failed("loop_not_stalled", 30e6);
    assert_eq!(trial(Find::Rate, 10, vec![stalled()]), of("good", "suspect", &["loop_not_stalled"]));
    let unread = Check { state: CheckState::CouldNotRun, ..failed("machine_undisturbed", 0.0) };
    assert_eq!(trial(Find::Rate, 10, vec![unread]), of("good", "suspect", &["machine_undisturbed"]));
    // Over idle open connections the times of the few requests are uncritical.
    let late = Check { weight: Weight::Invalid, ..failed("generator_on_time", 3e6) };
    assert_eq!(trial(Find::Connections, 10, vec![late]), of("good", "suspect", &["generator_on_time"]));
    // A load that is too high fails checks for that reason.
    assert_eq!(trial(Find::Rate, 300, vec![failed("achieved_as_offered", 0.5)]), of("bad", "", &[]));
}

#[test]
fn invalid_run_behind_the_result_makes_it_invalid() {
    let mut simulated = Simulated::new(Server::four(), OBJECTIVE, 1);
    let rules = simulated.rules(plan(60.0));
    let mut sequence = TrialSequence::new(&rules);
    let end = drive(&mut sequence, &mut simulated).unwrap();
    let trials = sequence.trials().to_vec();
    let result = result::part(&rules, &sequence, end.as_ref(), "objective").result.unwrap();
    let verdict = |is_spoilt: &dyn Fn(&TrialPart) -> bool, run_verdict: &str| {
        let mut sequence = TrialSequence::new(&rules);
        for trial in &trials {
            let mut trial = trial.clone();
            if is_spoilt(&trial) {
                trial.run_verdict = run_verdict.into();
                trial.run_doubts = vec!["loop_not_stalled".into()];
            }
            sequence.add(trial);
        }
        let part = result::part(&rules, &sequence, end.as_ref(), "objective");
        Validity::from_checks(checks::all(&rules, &sequence, &part)).verdict
    };
    assert_eq!(verdict(&|_| false, ""), Verdict::Valid);
    let at = |trial: &TrialPart| trial.load == result && trial.verdict == "good";
    assert_eq!(verdict(&at, "suspect"), Verdict::Suspect);
    assert_eq!(verdict(&at, "invalid"), Verdict::Invalid);
    // Confirmed below the result as well.
    let confirms = |trial: &TrialPart| trial.stage == "confirmation" && trial.load < result;
    assert!(trials.iter().any(confirms));
    assert_eq!(verdict(&confirms, "suspect"), Verdict::Suspect);
    // No figure is based on the first trials, and failed loads are judged by their trial alone.
    let aside = |trial: &TrialPart| ["guess", "limit", "calibration"].contains(&trial.stage.as_str());
    assert_eq!(verdict(&aside, "invalid"), Verdict::Valid);
}

#[test]
fn growth_beyond_any_disturbance_is_bad() {
    // A stall of 40 ms explains some twelve requests at 100/s; 50 a second for 10 s are more.
    assert_eq!(verdict(300, 52.0, 0.1, &[("loop_not_stalled", 40e6)]), "bad");
    assert_eq!(verdict(300, 2.5, 0.1, &[("loop_not_stalled", 40e6)]), "void");
    // Three times 40 ms explain 300 ms against an objective of 200; three times 30 do not.
    assert_eq!(verdict(300, 0.0, 0.1, &[("loop_not_stalled", 30e6)]), "bad");
    // A generator that is 30 ms late explains three requests, or six; whether it was the limit is judged first.
    let late = ("generator_on_time", 3e6);
    assert_eq!(verdict(300, 2.5, 0.1, &[late]), "void");
    assert_eq!(verdict(300, 52.0, 0.1, &[late]), "bad");
    assert_eq!(verdict(300, 52.0, 0.85, &[late]), "client");
}

/// A timing error that cannot explain a missed objective voids no trial, and an immaterial one voids no passed trial.
#[test]
fn timing_error_below_the_excess_does_not_void_a_trial() {
    let of = |name: &str, value: f64, weight: Weight| Check { weight, unit: "ns".into(), ..failed(name, value) };
    let verdict = |p99_ms: u64, check: Check| {
        let document = document(p99_ms, vec![check]);
        let request = request(Purpose::Short, 100.0);
        let evidence = TrialEvidence {
            document: &document,
            growth: Growth::default(),
            loop_busy: 0.1,
            lost: None,
            request: &request,
        };
        judge(&evidence, &OBJECTIVE.parse::<Slo>().unwrap()).name().to_owned()
    };
    // The objective would be missed without the generator's delay, too.
    assert_eq!(verdict(300, of("generator_on_time", 3e6, Weight::Suspect)), "bad");
    assert_eq!(verdict(300, of("generator_on_time", 3e6, Weight::Invalid)), "void");
    for name in ["rtt_tail_as_configured", "path_on_time", "vantage_points_agree_service_time_tail"] {
        assert_eq!(verdict(10, of(name, 3e6, Weight::Suspect)), "good", "{name}");
        assert_eq!(verdict(300, of(name, 3e6, Weight::Suspect)), "bad", "{name}");
        assert_eq!(verdict(202, of(name, 3e6, Weight::Suspect)), "void", "{name}");
    }
    assert_eq!(verdict(10, of("rtt_as_configured", 30e6, Weight::Invalid)), "void");
}

#[test]
fn late_generator_near_its_limit_gives_client_verdict() {
    let on_time = Check {
        name: "generator_on_time".into(),
        state: CheckState::Ok,
        weight: Weight::Suspect,
        value: Some(50_001.0),
        limit: Some(100_000.0),
        unit: "ns".into(),
        why: String::new(),
    };
    let document = document(10, vec![on_time]);
    let judged = |limit: f64| {
        let request = TrialRequest { generator_limit: Some(limit), ..request(Purpose::Short, 100.0) };
        let evidence = TrialEvidence {
            document: &document,
            growth: Growth::default(),
            loop_busy: 0.1,
            lost: None,
            request: &request,
        };
        judge(&evidence, &OBJECTIVE.parse::<Slo>().unwrap())
    };
    assert!(matches!(judged(199.0), TrialVerdict::ClientLimit(_)));
    assert_eq!(judged(200.0), TrialVerdict::Good);
}

/// The sources of `validity`: every check in them has a class here.
#[test]
fn every_validity_check_has_a_class() {
    let sources = [
        include_str!("../../../../validity/src/lib.rs"),
        include_str!("../../../../validity/src/cache.rs"),
        include_str!("../../../../validity/src/little.rs"),
        include_str!("../../../../validity/src/steady.rs"),
        include_str!("../../../../validity/src/sockets.rs"),
        include_str!("../../../../validity/src/packets.rs"),
        include_str!("../../../../validity/src/timing.rs"),
        include_str!("../../../../validity/src/failures.rs"),
        include_str!("../../../../validity/src/server_cpu.rs"),
        include_str!("../../../../validity/src/shards.rs"),
    ];
    let mut names = 0;
    for source in sources {
        for start in ["Draft::new(\"", "law(evidence, \"", "law(\n            evidence,\n            \""] {
            for piece in source.split(start).skip(1) {
                let name = piece.split('"').next().unwrap();
                assert!(trial::has_class(name), "{name}: no class in judge.rs");
                names += 1;
            }
        }
    }
    assert!(names >= 58, "only {names} were found: has the syntax of checks in `validity` changed?");
}
