//! Errors of time against reported figures: 100 ms at every percentile, so that 1 ms is material.

use super::*;
use schema::document::{PathInCapture, Weight};

/// A run whose requests the generator delayed by these times.
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

/// The first material error makes the run suspect, ten times that at the median or a hundred times in the tail invalid.
#[test]
fn a_material_error_of_time_is_suspect_and_a_large_one_invalid() {
    let verdict = |name: &str, spoil: &dyn Fn(&mut Case)| verdict_after(name, spoil);
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
                Some(PathInCapture { matched: 2_000, timing_error_ns, ..PathInCapture::default() });
        }),
    ];
    for (name, spoil) in tails {
        assert_eq!(verdict(name, &|case| spoil(case, 1_000_001)), Verdict::Suspect, "{name}");
        assert_eq!(verdict(name, &|case| spoil(case, 100_000_000)), Verdict::Suspect, "{name}");
        assert_eq!(verdict(name, &|case| spoil(case, 100_000_001)), Verdict::Invalid, "{name}");
    }
}

/// The nginx of the README over a distant path: 1.54 ms of timing error in 1.93 s.
#[test]
fn an_error_below_one_percent_or_50_us_is_not_material() {
    let mut case = Case::good();
    case.load().response_time_ns = alike(20_000, 1_930_000_000);
    case.path().timing_error_ns = alike(200_000, 1_540_000);
    case.delays =
        DelayBounds { all: alike(300, 19_000_000), longest: Duration::from_millis(300), ..DelayBounds::default() };
    case.health.longest_stall = Duration::from_millis(300);
    assert_eq!(case.judge().verdict, Verdict::Valid, "{:?}", case.judge());
    // 50 us are not material for a page that takes half a millisecond.
    case.document.path = None;
    case.load().response_time_ns = alike(20_000, 500_000);
    case.delays.all = alike(300, 50_000);
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Ok);
    case.delays.all = alike(300, 50_001);
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Failed);
}

#[test]
fn generator_on_time_states_its_bound_at_each_affected_figure() {
    let case = delayed(Quantiles { mean: 1e6, p99: 8_000_000, p99_9: 50_000_000, ..alike(40, 300_000) });
    let (state, weight, why) = found(&case, "generator_on_time");
    assert_eq!((state, weight), (CheckState::Failed, Weight::Suspect));
    assert!(why.contains("p99 by up to 8.00 ms of 100 ms, p99.9 by up to 50.0 ms of 100 ms"), "{why}");
    assert!(!why.contains("p95") && !why.contains("mean"), "{why}");
    let half = delayed(Quantiles { p50: 10_000_001, ..alike(40, 0) });
    assert_eq!(found(&half, "generator_on_time").1, Weight::Invalid);
    let tail = delayed(Quantiles { p99: 100_000_001, ..alike(40, 0) });
    assert_eq!(found(&tail, "generator_on_time").1, Weight::Invalid);
}

/// No percentile of ten requests is judged; their mean is.
#[test]
fn few_requests_are_judged_by_their_mean_and_lower_percentiles() {
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

/// Without the generator's delay the objective would have been met, so its outcome is unknown.
#[test]
fn an_objective_missed_by_the_generators_delay_makes_the_run_invalid() {
    let mut case = delayed(Quantiles { p99: 3_000_000, ..alike(40, 0) });
    for (objective, weight) in
        [("p99 < 99ms", Weight::Invalid), ("p99 < 96ms", Weight::Suspect), ("p99 < 101ms", Weight::Suspect)]
    {
        case.plan.slo = Some(objective.parse().unwrap());
        assert_eq!(found(&case, "generator_on_time").1, weight, "{objective}");
    }
    // An error below the material one leaves the outcome unchanged.
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
    assert!(why.contains("30 times") && why.contains("450 ms") && why.contains("4.5 %"), "{why}");
    case.delays.stalled = Duration::from_millis(99);
    assert_eq!(found(&case, "loop_not_stalled").0, CheckState::Ok);
    case.delays.by_stalls = Quantiles { p99: 8_000_000, ..alike(300, 0) };
    assert!(found(&case, "loop_not_stalled").2.contains("p99 by up to 8.00 ms"));
    // In a closed loop starts are never late, but responses are.
    case.delays.all = case.delays.by_stalls;
    assert_eq!(found(&case, "generator_on_time").0, CheckState::Failed);
}

/// 52 ms beyond the RTT, all of which stolen time may lengthen.
#[test]
fn stolen_time_is_compared_with_the_part_that_uses_cpu() {
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
