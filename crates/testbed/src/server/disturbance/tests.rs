use super::*;

const STEP_MS: u64 = 10;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Readings every 10 ms: time of other processes and waiting time of the server in each window, in microseconds.
fn disturbed(windows: impl IntoIterator<Item = (u64, u64)>) -> Disturbed {
    disturbed_until(u64::MAX, windows)
}

/// As above, with only this many windows in the phase.
fn disturbed_until(end: u64, windows: impl IntoIterator<Item = (u64, u64)>) -> Disturbed {
    let mut disturbance = Disturbance::default();
    let (mut others, mut waited) = (Duration::from_secs(7), Duration::from_secs(3));
    disturbance.add(Sample { at: Duration::ZERO, others: vec![others], waited });
    disturbance.begin();
    for (step, (others_us, waited_us)) in (1..).zip(windows) {
        others += Duration::from_micros(others_us);
        waited += Duration::from_micros(waited_us);
        disturbance.add(Sample { at: ms(step * STEP_MS), others: vec![others], waited });
        if step == end {
            disturbance.end();
        }
    }
    disturbance.finish()
}

#[test]
fn a_server_that_needs_no_core_is_not_disturbed() {
    let found = disturbed((0..500).map(|_| (9_000, 0)));
    assert_eq!((found.waited, found.longest), (Duration::ZERO, Duration::ZERO));
    assert_eq!(found.lasted, ms(5_000));
}

#[test]
fn a_server_that_waits_for_its_own_threads_is_not_disturbed() {
    // Eight workers on one core.
    let found = disturbed((0..500).map(|_| (20, 70_000)));
    assert_eq!(found.waited, ms(10));
    assert!(found.longest <= Duration::from_micros(40), "{found:?}");
}

#[test]
fn a_wait_reported_at_its_end_counts_before_it() {
    // Other processes have the core for 50 ms of every 500; the server's wait is reported when it runs again.
    let cycle = (0..50).map(|step| match step {
        0..5 => (10_000, 0),
        5 => (0, 48_000),
        _ => (0, 0),
    });
    let found = disturbed(std::iter::repeat_n(cycle, 10).flatten());
    assert!((ms(480)..=ms(500)).contains(&found.waited), "{found:?}");
    assert!((ms(48)..=ms(50)).contains(&found.longest), "{found:?}");
}

#[test]
fn a_wait_reported_after_the_phase_counts_in_it() {
    // Other processes have the core from 600 ms on; the phase ends at 1 s, and the server runs again at 1.1 s.
    let windows = (0..120).map(|step| match step {
        0..60 => (0, 0),
        60..110 => (10_000, 0),
        110 => (0, 500_000),
        _ => (0, 0),
    });
    let found = disturbed_until(100, windows);
    assert_eq!((found.waited, found.longest, found.lasted), (ms(400), ms(400), ms(1_000)));
}

/// A loop with the lowest weight has the core whenever the server does not need it.
#[test]
fn a_loop_with_the_lowest_weight_does_not_disturb() {
    let found = disturbed((0..500).map(|_| (9_900, 20)));
    // Twice 20 us per window, because a wait may have begun in the one before.
    assert!((ms(19)..=ms(20)).contains(&found.waited) && found.longest < Duration::from_micros(100), "{found:?}");
}

#[test]
fn a_late_counter_does_not_count_as_other_processes() {
    // The server's counter was read a millisecond after that of all processes: others seem to have had less, and catch
    // up.
    let mut disturbance = Disturbance::default();
    for (step, others_us) in [5_000_u64, 5_000, 4_000, 5_000, 4_500, 5_000, 5_010].into_iter().enumerate() {
        let at = ms(step as u64 * STEP_MS);
        disturbance.add(Sample { at, others: vec![Duration::from_micros(others_us)], waited: at });
        disturbance.begin();
    }
    assert_eq!(disturbance.finish().waited, Duration::from_micros(10));
}

#[test]
fn an_unknown_wait_counts_as_all_time_of_other_processes() {
    let mut disturbance = Disturbance::default();
    disturbance.begin();
    for step in 0..200_u64 {
        let others = Duration::from_micros(step * 1_000);
        disturbance.add(Sample { at: ms(step * STEP_MS), others: vec![others], waited: Duration::ZERO });
        if step == 100 {
            disturbance.waited_unknown_since(ms(500));
        }
    }
    // 50 windows of a millisecond each.
    assert_eq!(disturbance.finish().waited, ms(50));
}

/// A server that gets the core repeatedly for a short time has no long continuous wait.
#[test]
fn no_continuous_disturbance_is_longer_than_the_longest_wait() {
    let found = disturbed((0..500).map(|_| (9_000, 3_000)));
    assert_eq!(found.longest, ms(3), "{found:?}");
    assert!(found.waited >= ms(1_500), "{found:?}");
}

#[test]
fn disturbances_of_different_cores_are_separate() {
    let mut disturbance = Disturbance::default();
    disturbance.begin();
    for step in 0..10_u64 {
        let others = vec![ms(step * 10), ms(step)];
        // The server runs again after 90 ms.
        let waited = if step == 9 { ms(90) } else { Duration::ZERO };
        disturbance.add(Sample { at: ms(step * STEP_MS), others, waited });
    }
    let found = disturbance.finish();
    assert_eq!((found.longest, found.waited), (ms(90), ms(90)), "a continuous span is on one core");
}

/// A thousand requests of 20 to 21 ms.
fn times() -> Histogram {
    let mut times = Histogram::new();
    (0..30_000).for_each(|nth| times.record(20_000_000 + nth % 1_000 * 1_000));
    times
}

#[test]
fn without_disturbance_no_figure_changes() {
    let quiet = Disturbed { lasted: Duration::from_secs(10), ..Disturbed::default() };
    assert_eq!(could_have_moved(&times(), &quiet, 0.5).unwrap().by_ns, 0.0);
    assert_eq!(could_have_moved(&Histogram::new(), &quiet, 0.5), None);
}

#[test]
fn short_disturbances_change_no_figure_materially() {
    // A percent of the time, 40 us at a time.
    let frequent = Disturbed {
        lasted: Duration::from_secs(10),
        waited: ms(100),
        longest: Duration::from_micros(40),
        weighted_s2: 0.1 * 40e-6,
    };
    let moved = could_have_moved(&times(), &frequent, 0.5).unwrap();
    assert!(moved.by_ns > 0.0 && moved.by_ns < 0.5 * moved.limit_ns, "{moved:?}");
    assert!((200_000.0..220_000.0).contains(&moved.limit_ns), "1 % of 20 ms");
}

#[test]
fn long_disturbances_change_the_tail() {
    let mut times = times();
    (0..3_000).for_each(|nth| times.record(25_000_000 + nth % 100 * 400_000));
    let busy = Disturbed { lasted: Duration::from_secs(10), waited: ms(900), longest: ms(50), weighted_s2: 0.9 * 0.05 };
    let moved = could_have_moved(&times, &busy, 0.1).unwrap();
    assert!(moved.figure.starts_with("p99") && moved.by_ns > 20e6 && moved.by_ns > 10.0 * moved.limit_ns, "{moved:?}");
}

#[test]
fn the_mean_changes_at_most_to_the_fastest_request() {
    let all = Disturbed { lasted: Duration::from_secs(10), waited: ms(9_000), longest: ms(400), weighted_s2: 2.0 };
    let moved = could_have_moved(&times(), &all, 0.5).unwrap();
    assert!(moved.by_ns <= 1.1e6, "{moved:?}: the times are from 20 to 21 ms");
}

/// One wait of a millisecond in ten seconds: one request in ten thousand, which changes no judged percentile, however
/// far apart the slowest are.
#[test]
fn one_short_disturbance_changes_no_judged_percentile() {
    let mut times = times();
    (0..150).for_each(|nth| times.record(24_000_000 + nth % 5 * 2_000_000));
    let once = |ms_each| Disturbed {
        lasted: Duration::from_secs(10),
        waited: ms(ms_each),
        longest: ms(ms_each),
        weighted_s2: 1e-6,
    };
    let moved = could_have_moved(&times, &once(1), 0.0).unwrap();
    assert!(moved.by_ns < moved.limit_ns, "{moved:?}");
    // Two requests in a thousand do.
    let moved = could_have_moved(&times, &once(20), 0.0).unwrap();
    assert!(moved.by_ns > moved.limit_ns && moved.figure == "p99_9", "{moved:?}");
}

/// The slowest of a thousand requests do not determine the 99.9th percentile, so a change of it is not certain.
#[test]
fn a_percentile_with_few_values_beyond_it_is_not_judged() {
    let once = Disturbed { lasted: Duration::from_secs(10), waited: ms(20), longest: ms(20), weighted_s2: 1e-6 };
    let of = |requests: u64| {
        let mut times = Histogram::new();
        (0..requests).for_each(|nth| times.record(if nth % 200 == 0 { 24_000_000 + nth * 10_000 } else { 20_000_000 }));
        could_have_moved(&times, &once, 0.0).unwrap()
    };
    assert!(of(1_300).by_ns < of(1_300).limit_ns, "{:?}", of(1_300));
    assert!(of(20_000).by_ns > of(20_000).limit_ns && of(20_000).figure == "p99_9", "{:?}", of(20_000));
}

#[test]
fn the_limit_for_short_times_is_50_us() {
    let mut times = Histogram::new();
    (0..1000).for_each(|nth| times.record(100_000 + nth));
    let others = |longest_us| Disturbed {
        lasted: Duration::from_secs(10),
        waited: ms(5_000),
        longest: Duration::from_micros(longest_us),
        weighted_s2: 5.0 * longest_us as f64 * 1e-6,
    };
    assert_eq!(could_have_moved(&times, &others(40), 0.0).unwrap().limit_ns, 50_000.0);
}
