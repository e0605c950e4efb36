//! Users, connections and new connections against simulated servers with known limits; and checks that read the
//! machine.

use plan::Find;
use stats::queueing::{Station, mva};

use super::*;

fn search_plan(find: Find, start: f64) -> CapacityPlan {
    CapacityPlan { find, ..plan(start) }
}

/// The number of ten seeds whose result is within 3 % of the truth, and the number whose interval contains it.
fn near(find: Find, truth: f64, simulated_server: impl Fn(u64) -> Simulated) -> (u32, u32) {
    let (mut near, mut covered) = (0, 0);
    for seed in 0..10 {
        let start = (truth * (0.1 + 1.6 * Rng::new(seed, 9).uniform())).round().max(1.0);
        let (part, verdict, end) = searched(&mut simulated_server(seed), search_plan(find, start));
        assert_eq!((end, verdict), (End::Found, Verdict::Valid), "seed {seed}: {:?}", part.notes);
        assert_eq!((part.find.as_str(), part.unit.as_str()), (find.name(), find.unit()));
        let result = part.result.expect("found");
        let [low, high] = part.interval.expect("found");
        assert!(find.is_rate() || [result, low, high].iter().all(|load| load.fract() == 0.0), "{low} {result} {high}");
        near += u32::from((result / truth - 1.0).abs() <= 0.03);
        covered += u32::from((low..=high).contains(&truth));
    }
    (near, covered)
}

#[test]
fn search_finds_the_most_users_of_a_closed_network() {
    // Four workers of 20 ms, users with think time 7 s and a limit of 200 ms: the rate times think and response time
    // (interactive response time law), once the workers are never idle. At one user fewer the response time is just
    // below 200 ms.
    let truth = 200.0 * (7.0 + 0.2) - 1.0;
    let (near_it, covered) = near(Find::Users, truth, |seed| Simulated::new(Server::four(), OBJECTIVE, seed));
    assert!(near_it == 10 && covered >= 9, "{near_it} and {covered} of 10");
    let simulated_server =
        |seed| Simulated { think: (3.0, false), ..Simulated::new(Server::one(50.0), "p90 < 200ms", seed) };
    let (near_it, covered) = near(Find::Users, 50.0 * (3.0 + 0.2) - 1.0, simulated_server);
    assert!(near_it >= 9 && covered >= 9, "{near_it} and {covered} of 10");
}

#[test]
fn search_for_random_users_agrees_with_mean_value_analysis() {
    // One worker of 5 ms, exponential, users with exponential think time 7 s: the largest number with a mean response
    // time under 300 ms.
    let points = mva(&[Station::queue(0.005)], 7.0, 2000);
    let truth = points.iter().rev().find(|point| point.response_s < 0.3).unwrap().users;
    assert!((1430..1480).contains(&truth), "{truth}");
    let simulated_server =
        |seed| Simulated { think: (7.0, true), ..Simulated::new(Server::exponential(200.0), "mean < 300ms", seed) };
    let mut near_it = 0;
    for seed in 0..10 {
        let long = Duration::from_secs(180);
        let plan = CapacityPlan { trial: long, confirm: Duration::ZERO, ..search_plan(Find::Users, 600.0) };
        let (part, ..) = searched(&mut simulated_server(seed), plan);
        near_it += u32::from(part.result.is_some_and(|result| (result / f64::from(truth) - 1.0).abs() <= 0.03));
    }
    assert!(near_it >= 9, "{near_it} of 10");
}

#[test]
fn search_for_users_reports_the_achieved_rate() {
    let (part, ..) = searched(&mut Simulated::new(Server::four(), OBJECTIVE, 1), search_plan(Find::Users, 500.0));
    let rate = part.rate_per_s.unwrap();
    assert!((rate / 200.0 - 1.0).abs() < 0.02, "{rate}");
    assert!(part.knee.is_some() && part.saturation_rate_per_s.is_some());
}

#[test]
fn search_finds_the_most_open_connections() {
    for truth in [137, 5000] {
        let server = Server { connections: truth, ..Server::four() };
        let simulated_server = |seed| Simulated::new(server.clone(), OBJECTIVE, seed);
        let (near_it, covered) = near(Find::Connections, truth as f64, simulated_server);
        assert!(near_it == 10 && covered >= 9, "{truth}: {near_it} and {covered} of 10");
    }
    let server = Server { connections: 137, ..Server::four() };
    let (part, ..) = searched(&mut Simulated::new(server, OBJECTIVE, 1), search_plan(Find::Connections, 64.0));
    assert_eq!(part.bound_by.name, "connections", "{:?}", part.bound_by);
    // The achieved rate over idle open connections is no figure of theirs, and there are no overload trials.
    assert_eq!((part.knee, part.saturation_rate_per_s, part.under_overload), (None, None, None));
    assert!(part.trials.iter().all(|trial| trial.stage != "overload" && trial.stage != "guess"));
}

#[test]
fn search_for_connections_is_limited_by_the_objective() {
    // 20 ms, and 0.1 ms per open connection: 200 ms at 1,800 connections.
    let server = Server { workers: 64, each_s: 1e-4, ..Server::four() };
    let simulated_server = |seed| Simulated::new(server.clone(), OBJECTIVE, seed);
    let (near_it, covered) = near(Find::Connections, 1800.0, simulated_server);
    assert!(near_it >= 9 && covered >= 9, "{near_it} and {covered} of 10");
}

#[test]
fn search_finds_the_highest_rate_of_new_connections() {
    // 1 ms for the request and 4 ms for the connection: 200/s, of 1,000 requests a second over keep-alive connections.
    let server = Server { accept_s: 0.004, ..Server::one(1000.0) };
    let simulated_server = |seed| Simulated::new(server.clone(), OBJECTIVE, seed);
    let (near_it, covered) = near(Find::NewConnections, 200.0, simulated_server);
    assert!(near_it == 10 && covered >= 9, "{near_it} and {covered} of 10");
    let (part, ..) = searched(&mut simulated_server(1), plan(300.0));
    assert!((part.result.unwrap() / 1000.0 - 1.0).abs() < 0.03, "{:?}", part.result);
}

#[test]
fn findings_are_reported_for_every_searched_quantity() {
    let degrades = Server { slower_by: 0.01, ..Server::four() };
    let (part, ..) = searched(&mut Simulated::new(degrades, OBJECTIVE, 1), search_plan(Find::Users, 500.0));
    let names: Vec<&str> = part.findings.iter().map(|finding| finding.name.as_str()).collect();
    assert!(names.contains(&"not_sustained"), "{names:?}");
    let lasts = part.findings.iter().find(|finding| finding.name == "not_sustained").unwrap();
    assert!(lasts.words.contains("users passed in short trials only"), "{}", lasts.words);
    let leaks = Server { leak: 1e6, connections: 800, ..Server::four() };
    for find in [Find::Users, Find::Connections, Find::NewConnections] {
        let (part, ..) = searched(&mut Simulated::new(leaks.clone(), OBJECTIVE, 1), search_plan(find, 300.0));
        let leak = part.findings.iter().find(|finding| finding.name == "memory_grows");
        assert!(part.result.is_some() && leak.is_some(), "{find:?}: {:?}", part.findings);
    }
}

#[test]
fn load_above_the_machines_limit_gives_no_result() {
    let server = Server { connections: 5000, ..Server::four() };
    let with = |most| Simulated { most, ..Simulated::new(server.clone(), OBJECTIVE, 1) };
    let (part, verdict, end) = searched(&mut with(3000.0), search_plan(Find::Connections, 500.0));
    assert_eq!((end, part.result, verdict), (End::ClientLimit { passed: 3000.0 }, None, Verdict::Invalid));
    assert!(
        part.notes[0].contains("The client is the limit (about 3000 connections here: open files)"),
        "{:?}",
        part.notes
    );
    assert_eq!(part.generator_limit.map(|limit| limit.how).as_deref(), Some("counted"));
    // Boundary values: 5,000 of 5,400 is more than nine tenths, of 5,700 less.
    let (part, verdict, _) = searched(&mut with(5400.0), search_plan(Find::Connections, 500.0));
    assert!(part.result.is_some() && verdict == Verdict::Invalid);
    let (part, verdict, _) = searched(&mut with(5700.0), search_plan(Find::Connections, 500.0));
    assert!(part.result.is_some() && verdict == Verdict::Valid);
    // For users the request rate counts, too: 150/s are 1,050 users with think time 7 s.
    let mut simulated = Simulated { generator: 150.0, ..Simulated::new(Server::four(), OBJECTIVE, 1) };
    let (part, verdict, end) = searched(&mut simulated, search_plan(Find::Users, 500.0));
    let End::ClientLimit { passed } = end else { panic!("{end:?}") };
    assert!(passed <= 1050.0 && part.result.is_none() && verdict == Verdict::Invalid, "{passed}");
}

#[test]
fn interrupted_search_for_users_resumes_with_the_same_trials() {
    let mut whole = Simulated { disturbed: vec![2], ..Simulated::new(Server::four(), OBJECTIVE, 7) };
    let rules = Rules {
        can_limit: true,
        ..whole.rules(CapacityPlan { start: None, overload: true, ..search_plan(Find::Users, 1.0) })
    };
    let mut sequence = TrialSequence::new(&rules);
    assert_eq!(drive(&mut sequence, &mut whole).unwrap(), Some(End::Found));
    let trials = sequence.trials().to_vec();
    for stage in ["guess", "limit", "short", "long", "confirmation", "overload"] {
        assert!(trials.iter().any(|trial| trial.stage == stage), "{stage}");
    }
    let mut again = TrialSequence::new(&rules);
    for (trial, request) in trials.iter().zip(&whole.requests) {
        assert_eq!(again.next(), Next::Make(*request));
        again.add(serde_json::from_str(&serde_json::to_string(trial).unwrap()).unwrap());
    }
}

#[test]
fn cpu_steal_and_stalls_make_the_result_suspect() {
    let check = |disturbance| {
        let mut simulated = Simulated { disturbance, ..Simulated::new(Server::four(), OBJECTIVE, 1) };
        let rules = simulated.rules(plan(60.0));
        let mut sequence = TrialSequence::new(&rules);
        let end = drive(&mut sequence, &mut simulated).unwrap();
        let part = result::part(&rules, &sequence, end.as_ref(), "objective");
        checks::all(&rules, &sequence, &part).into_iter().find(|check| check.name == "host_undisturbed").unwrap()
    };
    // Boundary value: the width is 2 %.
    assert_eq!(check((0.0199, 0)).state, CheckState::Ok);
    let stolen = check((0.0201, 0));
    assert_eq!((stolen.state, stolen.weight), (CheckState::Failed, Weight::Suspect));
    assert!(stolen.why.starts_with("CPU steal exceeds the width"), "{}", stolen.why);
    // A failed trial takes some 200 ms and more: a stall of 1 ms is immaterial to it, one of a second is not.
    assert_eq!(check((0.0, 1_000_000)).state, CheckState::Ok);
    let still = check((0.0, 1_000_000_000));
    assert!(still.state == CheckState::Failed && still.why.contains("stalled"), "{}", still.why);
}

#[test]
fn cost_variation_between_trials_fails_its_check() {
    let trial = |stage: &str, verdict: &str, load: f64, used: f64, cost_us: f64| TrialPart {
        stage: stage.into(),
        verdict: verdict.into(),
        load,
        achieved_rate_per_s: used / cost_us * 1e6,
        server: Some(TrialServer { cpu_cores: used, may_use_cores: 0.05, ..TrialServer::default() }),
        ..TrialPart::default()
    };
    let near = |actual: Option<f64>, expected: f64| assert!((actual.unwrap() - expected).abs() < 1e-9, "{actual:?}");
    let trials = [
        trial("long", "bad", 1500.0, 0.05, 35.0),
        trial("confirmation", "bad", 1440.0, 0.0495, 38.5),
        trial("long", "good", 1440.0, 0.05, 30.0),
        // Too short; another load; unsaturated: the cost is unknown.
        trial("short", "bad", 1500.0, 0.05, 20.0),
        trial("long", "bad", 1900.0, 0.05, 20.0),
        trial("long", "bad", 1440.0, 0.0485, 20.0),
    ];
    near(checks::cost_spread(&trials, 1440.0), 0.1);
    assert_eq!(checks::cost_spread(&trials[1..3], 1440.0), None, "one of each verdict");
    // The CPU speed probe attributes the variation: over all long trials near the result, whatever their verdict,
    // except disturbed ones.
    assert_eq!(checks::cpu_probe_spread(&trials, 1440.0), None);
    let paced = |verdict: &str, load: f64, cpu_probe_ns: u64| TrialPart {
        cpu_probe_ns: Some(cpu_probe_ns),
        ..trial("long", verdict, load, 0.05, 35.0)
    };
    let paced = [
        paced("good", 1440.0, 10_000),
        paced("bad", 1500.0, 10_700),
        paced("void", 1440.0, 30_000),
        paced("bad", 1900.0, 5000),
    ];
    near(checks::cpu_probe_spread(&paced, 1440.0), 0.07);
    assert_eq!(checks::cpu_probe_spread(&paced[1..], 1440.0), None, "one trial has no spread");
    let machine = checks::spread_cause(0.1, Some(0.07));
    assert!(machine.starts_with("the machine's speed") && machine.contains("7.0 % longer"), "{machine}");
    assert!(checks::spread_cause(0.1, Some(0.01)).starts_with("the server's speed"));
    assert!(checks::spread_cause(0.1, None).starts_with("the speed of the machine or of the server"));
    // A server that waits for another resource has no such cost, and the check reports it.
    let mut simulated = Simulated::new(Server::four(), OBJECTIVE, 1);
    let rules = simulated.rules(plan(60.0));
    let mut sequence = TrialSequence::new(&rules);
    let end = drive(&mut sequence, &mut simulated).unwrap();
    let part = result::part(&rules, &sequence, end.as_ref(), "objective");
    let all = checks::all(&rules, &sequence, &part);
    let found = all.iter().find(|check| check.name == "cost_steady").unwrap();
    assert_eq!(found.weight, Weight::Suspect);
    assert!(found.state != CheckState::Failed, "{}", found.why);
}
