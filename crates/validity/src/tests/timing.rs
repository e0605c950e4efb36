//! Errors of time against what is reported: 100 ms at every percentile, so that 1 ms is what is material.

use super::*;
use schema::document::{PathFromOutside, Weight};

/// A run whose requests were delayed by the generator, at each figure by so much.
fn delayed(by: Quantiles) -> Case {
    let mut case = Case::good();
    case.delays = DelayBounds { all: by, ..DelayBounds::default() };
    case
}

fn found(case: &Case, name: &str) -> (CheckState, Weight, String) {
    let checks = case.judge().checks;
    let check = checks.into_iter().find(|check| check.name == name).unwrap();
    (check.state, check.weight, check.why)
}

/// From the first error that matters on the run is suspect, and from ten times that at the median, a hundred times in the tail, invalid.
#[test]
fn an_error_of_time_casts_doubt_and_takes_the_meaning_where_it_is_large() {
    let verdict = |name: &str, spoil: &dyn Fn(&mut Case)| spoilt(name, spoil);
    let p50 = |ns| move |case: &mut Case| case.path().rtt_error_ns.as_mut().unwrap().p50 = ns;
    assert_eq!(verdict("rtt_as_configured", &p50(1_000_001)), Verdict::Suspect);
    assert_eq!(verdict("rtt_as_configured", &p50(10_000_000)), Verdict::Suspect);
    assert_eq!(verdict("rtt_as_configured", &p50(10_000_001)), Verdict::Invalid);
    type Tail = (&'static str, fn(&mut Case, u64));
    let tails: [Tail; 3] = [
        ("path_on_time", |case, ns| case.path().timing_error_ns.p99 = ns),
        ("rtt_tail_as_configured", |case, ns| case.handshake_error.as_mut().unwrap().p99 = ns),
        ("path_on_time_in_capture", |case, ns| {
            let timing_error_ns = alike(2_000, ns);
            case.path().packet_capture =
                Some(PathFromOutside { matched: 2_000, timing_error_ns, ..PathFromOutside::default() });
        }),
    ];
    for (name, spoil) in tails {
        assert_eq!(verdict(name, &|case| spoil(case, 1_000_001)), Verdict::Suspect, "{name}");
        assert_eq!(verdict(name, &|case| spoil(case, 100_000_000)), Verdict::Suspect, "{name}");
        assert_eq!(verdict(name, &|case| spoil(case, 100_000_001)), Verdict::Invalid, "{name}");
    }
}

/// README's nginx over a far away world: 1.54 ms of timing error in 1.93 s.
#[test]
fn what_cannot_have_moved_a_figure_refuses_no_run() {
    let mut case = Case::good();
    case.load().response_time_ns = alike(20_000, 1_930_000_000);
    case.path().timing_error_ns = alike(200_000, 1_540_000);
    case.delays =
        DelayBounds { all: alike(300, 19_000_000), longest: Duration::from_millis(300), ..DelayBounds::default() };
    case.health.standstill = Duration::from_millis(300);
    assert_eq!(case.judge().verdict, Verdict::Valid, "{:?}", case.judge());
    // And of a page that takes half a millisecond 50 us are nothing.
    case.document.path = None;
    case.load().response_time_ns = alike(20_000, 500_000);
    case.delays.all = alike(300, 50_000);
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Ok);
    case.delays.all = alike(300, 50_001);
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Failed);
}

#[test]
fn the_bound_is_stated_at_each_figure_that_it_may_have_moved() {
    let case = delayed(Quantiles { mean: 1e6, p99: 8_000_000, p99_9: 50_000_000, ..alike(40, 300_000) });
    let (state, weight, why) = found(&case, "generator_on_time");
    assert_eq!((state, weight), (CheckState::Failed, Weight::Suspect));
    assert!(why.contains("p99 by up to 8.00 ms of 100.0 ms, p99.9 by up to 50.0 ms of 100.0 ms"), "{why}");
    assert!(!why.contains("p95") && !why.contains("mean"), "{why}");
    let half = delayed(Quantiles { p50: 10_000_001, ..alike(40, 0) });
    assert_eq!(found(&half, "generator_on_time").1, Weight::Invalid);
    let tail = delayed(Quantiles { p99: 100_000_001, ..alike(40, 0) });
    assert_eq!(found(&tail, "generator_on_time").1, Weight::Invalid);
}

/// Of ten requests no percentile is known; that their mean was moved is.
#[test]
fn few_requests_are_judged_by_what_is_known_of_them() {
    let mut case = delayed(Quantiles { mean: 0.9e6, ..alike(3, 90_000_000) });
    case.load().response_time_ns.count = 10;
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Ok);
    case.delays.all.mean = 1.1e6;
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Failed);
    let mut case = delayed(Quantiles { p99: 9_000_000, ..alike(40, 0) });
    for (count, state) in [(1_999, CheckState::Ok), (2_000, CheckState::Failed)] {
        case.load().response_time_ns.count = count;
        assert_eq!(found(&case, "generator_on_time").0, state, "p99 of {count}");
    }
    case.handshake_error = Some(alike(79, 90_000_000));
    assert_eq!(case.state("rtt_tail_as_configured"), CheckState::NotApplicable);
}

/// Without the generator's delay the objective would have been met: nobody knows whether it was missed.
#[test]
fn an_objective_that_the_generator_may_have_missed_makes_the_run_invalid() {
    let mut case = delayed(Quantiles { p99: 3_000_000, ..alike(40, 0) });
    for (objective, weight) in
        [("p99 < 99ms", Weight::Invalid), ("p99 < 96ms", Weight::Suspect), ("p99 < 101ms", Weight::Suspect)]
    {
        case.plan.slo = Some(objective.parse().unwrap());
        assert_eq!(found(&case, "generator_on_time").1, weight, "{objective}");
    }
    // An error that does not matter leaves the outcome as it is.
    case.delays.all.p99 = 900_000;
    case.plan.slo = Some("p99 < 99.5ms".parse().unwrap());
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Ok);
}

#[test]
fn stalls_are_judged_in_open_and_in_closed_loops() {
    let mut case = Case::good();
    let stalled = Duration::from_millis(450);
    case.delays = DelayBounds { stalls: 30, longest: Duration::from_millis(15), stalled, ..DelayBounds::default() };
    case.health.wall = Duration::from_secs(10);
    case.health.idle = Duration::from_secs(5);
    assert_eq!(found(&case, "loop_not_stalled").0, CheckState::Ok, "an open loop catches up");
    case.plan.load.rate = None;
    let (state, weight, why) = found(&case, "loop_not_stalled");
    assert_eq!((state, weight), (CheckState::Failed, Weight::Suspect));
    assert!(why.contains("30 times") && why.contains("450.0 ms") && why.contains("4.5 %"), "{why}");
    case.delays.stalled = Duration::from_millis(99);
    assert_eq!(found(&case, "loop_not_stalled").0, CheckState::Ok);
    case.delays.by_stalls = Quantiles { p99: 8_000_000, ..alike(300, 0) };
    assert!(found(&case, "loop_not_stalled").2.contains("p99 by up to 8.00 ms"));
    // A closed loop's start is late for nothing, its answers are.
    case.delays.all = case.delays.by_stalls;
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Failed);
}

/// 52 ms beyond the distance, of which stolen time may lengthen all.
#[test]
fn stolen_time_is_held_against_what_takes_processor_time() {
    let state = |share, spoil: fn(&mut Case)| {
        let mut case = Case::good();
        case.document.run.host.steal_share = Some(share);
        spoil(&mut case);
        case.state("machine_undisturbed")
    };
    assert_eq!(state(0.019, |_| ()), CheckState::Ok);
    assert_eq!(state(0.020, |_| ()), CheckState::Failed);
    let quick: fn(&mut Case) = |case| case.load().response_time_ns = alike(20_000, 48_300_000);
    assert_eq!((state(0.100, quick), state(0.101, quick)), (CheckState::Ok, CheckState::Failed));
    let closed: fn(&mut Case) = |case| case.plan.load.rate = None;
    assert_eq!((state(0.010, closed), state(0.011, closed)), (CheckState::Ok, CheckState::Failed));
}
